"""2,000 sessions with a compiler in which something goes wrong at random: what grows, what is left.

It crashes, exits, hangs, answers wrongly or in another protocol, leaks, takes all memory, floods
its log, and leaves processes and files in its HOME and TMPDIR (in a twentieth of the sessions in
/tmp and /dev/shm too, where the agent is confined as on the devices of a fleet).

    python benchmarks/soak.py [SESSIONS] [--seed N] [--seconds S]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "system"))

LIMIT_MB = 8.0
"""By which memory may grow in 1,000 sessions: the client knows the name of each record."""


def main(sessions: int, seed: int, seconds: float) -> int:
    """Return 0 when nothing is left, no descriptor is kept, and memory grows by less than that."""
    with tempfile.TemporaryDirectory(prefix="ngb-soak.") as name:
        folder = Path(name).resolve()
        for place in ("home", "tmp"):
            (folder / place).mkdir()
        os.environ |= {
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "NGRAPHBENCH_LOCK": str(folder / "host.lock"),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        tempfile.tempdir = None
        from soaking import Soaked, soak

        began = time.monotonic()
        last: list[Soaked] = []

        def told(found: Soaked) -> None:
            last[:] = [found]
            if len(found.rows) % 50 == 0:
                size_bytes, *others = found.rows[-1]
                text = f"{size_bytes / 1e6:.1f} MB, {others} descriptors and threads"
                took_s = time.monotonic() - began
                print(f"{len(found.rows)} sessions, {took_s:.0f} s, {text}", flush=True)
            if time.monotonic() - began > seconds:
                raise TimeoutError

        try:
            soak(folder, sessions, seed=seed, told=told)
        except TimeoutError:
            print(f"The time is over: {len(last[0].rows)} of {sessions} sessions were run.")
        return _report(last[0], time.monotonic() - began)


def _report(found: object, took_s: float) -> int:
    from soaking import Soaked

    assert isinstance(found, Soaked)
    size_bytes, descriptors, threads = found.growth_per_1000()
    print(f"{len(found.rows)} sessions in {took_s:.0f} s")
    print(f"cells: {dict(sorted(found.statuses.items()))}")
    print(
        f"growth per 1,000 sessions: {size_bytes / 1e6:.2f} MB, {descriptors:.2f} descriptors,"
        f" {threads:.2f} threads"
    )
    print(f"last: {found.rows[-1][0] / 1e6:.0f} MB, {found.rows[-1][1:]} descriptors and threads")
    print(f"left behind: {len(found.left)}", *found.left[:20], sep="\n  ")
    grown = size_bytes / 1e6 > LIMIT_MB or descriptors > 0.5 or threads > 0.5
    return int(grown or bool(found.left))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sessions", nargs="?", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    sys.exit(main(given.sessions, given.seed, given.seconds))
