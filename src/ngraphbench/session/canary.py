"""Two fixed pieces of work, timed once a round: they tell how far the machine moved.

They never correct a result: arithmetic does not track bandwidth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from ngraphbench.types import Json

__all__ = ["Canaries"]

_COMPUTE_BYTES = 4 * 1024**2
_MEMORY_BYTES = 32 * 1024**2


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
        """Run both once and keep (epoch, round, compute ns, memory ns)."""
        started = self._now_ns()
        hashlib.sha256(self._block).digest()
        middle = self._now_ns()
        np.copyto(self._target, self._source)
        ended = self._now_ns()
        self.rows.append((epoch, number, middle - started, ended - middle))


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
