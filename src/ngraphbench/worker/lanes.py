"""Requests in flight: each lane is a program of its own, run back to back by its own thread.

All lanes start together once each has warmed up in its thread. What counts is a window from
that start: a lane's last request reaches beyond it and counts by the share that lies within,
so that neither ramp nor drain is part of the throughput.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from ngraphbench.plugin import Program
from ngraphbench.worker.timing import Clock

__all__ = ["Flight", "run_lanes"]

WARM_CALLS = 3
START_PATIENCE_S = 3600.0
"""A lane may compile in its first call; the parent's deadline bounds it all."""


@dataclass(frozen=True, slots=True)
class Flight:
    """(start, end) of every request in ns from the common start, by start; and the window.

    The window is shorter than asked for when ``calls_max`` ended it.
    """

    rows: list[tuple[int, int]]
    window_ns: int


@dataclass(slots=True)
class _Start:
    """What the lanes share: the barrier they leave together, and when the window ends."""

    now: Clock
    window_ns: int
    began_ns: int = 0
    stop_ns: int = 0
    failures: list[BaseException] = field(default_factory=list)

    def __call__(self) -> None:
        self.began_ns = self.now()
        self.stop_ns = self.began_ns + self.window_ns


def run_lanes(lanes: Sequence[Program], *, window_ns: int, calls_max: int, now: Clock) -> Flight:
    """Return every request of ``lanes``, each run back to back for ``window_ns``.

    A lane makes at most its share of ``calls_max``. What a lane raises is raised here, once
    all have ended.
    """
    start = _Start(now, window_ns)
    barrier = threading.Barrier(len(lanes), action=start)
    share = max(1, calls_max // len(lanes))
    rows: list[array[int]] = [array("q") for _ in lanes]
    threads = [
        threading.Thread(
            target=_fly, args=(lane, start, barrier, row, share), name=f"lane-{place}", daemon=True
        )
        for place, (lane, row) in enumerate(zip(lanes, rows, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if start.failures:
        raise start.failures[0]
    pairs = [
        (row[i] - start.began_ns, row[i + 1] - start.began_ns)
        for row in rows
        for i in range(0, len(row), 2)
    ]
    # A lane that had its share of calls is idle from then on: all count up to there alone.
    full = [row[-1] - start.began_ns for row in rows if len(row) >= 2 * share]
    return Flight(sorted(pairs), min([window_ns, *full]))


def _fly(
    lane: Program, start: _Start, barrier: threading.Barrier, row: array[int], share: int
) -> None:
    run, sync, now, append = lane.run, lane.sync, start.now, row.append
    try:
        for _ in range(WARM_CALLS):
            run()
            sync()
        barrier.wait(START_PATIENCE_S)
        stop = start.stop_ns
        for _ in range(share):
            began = now()
            if began >= stop:
                return
            run()
            sync()
            append(began)
            append(now())
    except threading.BrokenBarrierError:
        # Another lane failed while it warmed up, and has said why.
        return
    except BaseException as error:  # SystemExit too: a plugin must not end the worker
        start.failures.append(error)
        barrier.abort()
