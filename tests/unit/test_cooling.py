from __future__ import annotations

from collections.abc import Callable

import pytest

from ngraphbench.session.cooling import Cooling


class Stove:
    """Cools by half a degree a second while one sleeps."""

    def __init__(self, celsius: float | None, *, falls: float = 0.5) -> None:
        self.celsius = celsius
        self.falls = falls
        self.seconds = 0.0

    def read(self) -> float | None:
        return self.celsius

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        if self.celsius is not None:
            self.celsius -= self.falls * seconds

    def cooling(self, interrupted: Callable[[], bool] = lambda: False) -> Cooling:
        return Cooling(self.read, interrupted, lambda: self.seconds, self.sleep)


def test_all_begin_as_cool_as_the_first() -> None:
    stove = Stove(45.0)
    cooling = stove.cooling()
    assert cooling.wait() == 45.0 and stove.seconds == 0
    stove.celsius = 60.0
    assert cooling.wait() == pytest.approx(47.0)
    assert stove.seconds == 26


def test_patience_ends() -> None:
    stove = Stove(45.0, falls=0.01)
    cooling = stove.cooling()
    cooling.wait()
    stove.celsius = 90.0
    assert cooling.wait() == pytest.approx(88.2)
    assert stove.seconds == 180


def test_an_interrupt_ends_the_wait() -> None:
    stove = Stove(45.0)
    cooling = stove.cooling(lambda: stove.seconds >= 3)
    cooling.wait()
    stove.celsius = 90.0
    cooling.wait()
    assert stove.seconds == 3


def test_without_a_sensor_nothing_waits() -> None:
    stove = Stove(None)
    assert stove.cooling().wait() is None and stove.seconds == 0
