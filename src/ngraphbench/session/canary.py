"""Two fixed pieces of work, timed once a round: they tell how far the machine moved.

They never correct a result: arithmetic does not track bandwidth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from ngraphbench.types import Json

__all__ = ["Canaries", "describe"]

_COMPUTE_BYTES = 2 * 1024**2
_MEMORY_BYTES = 32 * 1024**2
_REPEATS = 5


class Canaries:
    """A compute and a bandwidth canary, and what they saw.

    ``now_ns`` is the clock they are timed with.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._block = bytes(_COMPUTE_BYTES)
        self._source = np.zeros(_MEMORY_BYTES // 8)
        self._target = np.ones_like(self._source)
        self.rows: list[tuple[int, int, int, int]] = []

    def sing(self, epoch: int, number: int) -> None:
        """Run both and keep (epoch, round, compute ns, memory ns), medians of a few runs.

        A single short run on a shared machine tells whether it was preempted, not how fast
        the machine is.
        """
        compute_ns = self._median(lambda: hashlib.sha256(self._block).digest())
        memory_ns = self._median(lambda: np.copyto(self._target, self._source))
        self.rows.append((epoch, number, compute_ns, memory_ns))

    def _median(self, work: Callable[[], object]) -> int:
        times: list[int] = []
        for _ in range(_REPEATS):
            started = self._now_ns()
            work()
            times.append(self._now_ns() - started)
        return sorted(times)[_REPEATS // 2]


def describe(rows: list[tuple[int, int, int, int]]) -> Json:
    """Return median, 5th and 95th percentile in ns, and spread (p95 - p5) / median."""
    found: Json = {}
    for name, column in (("compute", 2), ("memory", 3)):
        times = np.array([row[column] for row in rows], dtype=float)
        if len(times) == 0:
            continue
        low, median, high = (float(q) for q in np.quantile(times, (0.05, 0.5, 0.95)))
        found[name] = {
            "median_ns": median,
            "p05_ns": low,
            "p95_ns": high,
            "spread": (high - low) / median if median else 0.0,
        }
    return found
