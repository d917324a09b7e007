"""Time, as an argument: the kernel never calls ``time`` itself."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "RealClock", "VirtualClock"]


class Clock(Protocol):
    """A monotonic clock in nanoseconds."""

    def now_ns(self) -> int: ...


class RealClock:
    """The machine's monotonic clock."""

    def now_ns(self) -> int:
        return time.monotonic_ns()


class VirtualClock:
    """A clock that moves only when told to: sessions of minutes take milliseconds.

    >>> clock = VirtualClock()
    >>> clock.advance_ns(5)
    >>> clock.now_ns()
    5
    """

    def __init__(self) -> None:
        self._now_ns = 0

    def now_ns(self) -> int:
        return self._now_ns

    def advance_ns(self, duration_ns: int) -> None:
        if duration_ns < 0:
            raise ValueError("time does not run backwards")
        self._now_ns += duration_ns
