"""Fuzz for a while: ``fuzz.py SECONDS [TARGET...]``, each target for that long; exit 1 for faults.

What Hypothesis found smallest is printed, a fault once for each place where it is raised. Each
target runs in a process of its own, so that a crash of native code is told of too.
"""

from __future__ import annotations

import base64
import faulthandler
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from hypothesis import HealthCheck, Phase, given, seed, settings
from targets import TARGETS, Target, quiet

BATCH = 200
HANG_S = 30.0
MEMORY_BYTES = 6 * 1024**3
SAME_FAULT_MAX = 3


class Hang(Exception):
    """An input took longer than any may."""


@dataclass
class Found:
    """How many inputs were tried, and each fault by the place where it is raised."""

    inputs: int = 0
    faults: dict[str, str] = field(default_factory=dict)


@contextmanager
def limited(seconds: float = HANG_S) -> Iterator[None]:
    """Raise Hang in what takes longer, and end a process that is stuck in native code."""

    def late(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(4 * seconds, exit=True)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()


def try_inputs(target: Target, count: int, *, number: int, note: Callable[[Any], None]) -> None:
    """Check ``count`` inputs, which ``number`` decides; raises what the first bad one does."""

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        print_blob=False,
    )
    @given(target.inputs)
    def check(drawn: Any) -> None:
        note(drawn)
        with limited(), quiet():
            target.check(drawn)

    check()


def fuzz(target: Target, seconds: float, *, first: int, kept: Path) -> Found:
    """Return what was found in so many seconds; the input at hand is always in ``kept``."""
    found = Found()
    ends = time.monotonic() + seconds
    seen: dict[str, int] = {}
    last: list[Any] = [None]

    def note(drawn: Any) -> None:
        found.inputs += 1
        last[0] = drawn
        kept.write_bytes(pickle.dumps((found.inputs, found.faults, drawn)))

    number = first
    while time.monotonic() < ends and max(seen.values(), default=0) < SAME_FAULT_MAX:
        number += 1
        try:
            try_inputs(target, BATCH, number=number, note=note)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            key = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
            seen[key] = seen.get(key, 0) + 1
            told = "".join(traceback.format_exception(error))
            blob = base64.b64encode(pickle.dumps(last[0])).decode()
            found.faults.setdefault(key, f"{told}\n{last[0]!r}\n{blob}")
    return found


def in_a_child(target: Target, seconds: float, *, first: int) -> Found:
    """Return what ``fuzz`` finds in a process of its own, and what ended that before its time."""
    with tempfile.TemporaryDirectory(prefix="ngb-fuzz-") as folder:
        kept, done = Path(folder) / "kept", Path(folder) / "done"
        child = os.fork()
        if not child:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            try:
                done.write_bytes(pickle.dumps(fuzz(target, seconds, first=first, kept=kept)))
            finally:
                os._exit(0 if done.exists() else 1)
        _, status = os.waitpid(child, 0)
        if done.exists():
            return pickle.loads(done.read_bytes())
        inputs, faults, drawn = pickle.loads(kept.read_bytes())
        blob = base64.b64encode(pickle.dumps(drawn)).decode()
        return Found(inputs, {**faults, f"the process ended: {status}": f"{drawn!r}\n{blob}"})


def main(seconds: float, names: list[str]) -> int:
    faults = 0
    first = int(time.time()) * 1000
    for target in TARGETS:
        if names and target.name not in names:
            continue
        began = time.monotonic()
        found = in_a_child(target, seconds, first=first)
        took_s = time.monotonic() - began
        print(f"{target.name}: {found.inputs} inputs in {took_s:.0f} s, {len(found.faults)} faults")
        for key, told in found.faults.items():
            print(f"--- {target.name}: {key}\n{told}", flush=True)
        faults += len(found.faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
