"""The kernel against known truth on a virtual clock, in full. Prints one row per scenario.

coverage: share of 95 % intervals that hold the truth (demand: 93 % and more). A/A: equal
programs declared different (5 % at most). wrong: the slower one declared faster at 3 % and at
10 % (1 % and 0.1 % at most). right: settled rightly at 3 %; the rest is left unresolved.

    python benchmarks/kernel.py [--sessions 1000] [--processes 2]
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kernel"))

from scenarios import DRIFTS
from sessions import Tally, tally

LAUNCH_SDS = (0.0, 0.005, 0.01, 0.02)


def row(task: tuple[str, float, int]) -> tuple[str, float, Tally]:
    """Return the counts of one scenario."""
    drift, launch_sd, sessions = task
    return drift, launch_sd, tally(drift, launch_sd=launch_sd, sessions=sessions)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    tasks = [(drift, sd, options.sessions) for drift in DRIFTS for sd in LAUNCH_SDS]
    print("drift     launch sd  coverage  A/A     wrong 3 %  wrong 10 %  right 3 %  bias 3 %  s")
    with ProcessPoolExecutor(options.processes) as pool:
        for drift, launch_sd, found in pool.map(row, tasks):
            print(
                f"{drift:<9} {launch_sd:>8.1%}  {found.coverage():>8.3f}"
                f"  {found.share(found.wrong, 'aa'):.3f}  {found.share(found.wrong, 'b3'):>9.4f}"
                f"  {found.share(found.wrong, 'b10'):>10.4f}"
                f"  {found.share(found.right, 'b3'):>9.2f}"
                f"  {found.bias['b3'] / found.sessions:>+8.2%}"
                f"  {found.seconds / found.sessions:.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
