"""Canaries: medians of repeats, and what is said of them."""

from __future__ import annotations

import itertools

import pytest

from ngraphbench.session.canary import Canaries, describe


def test_one_preemption_does_not_move_a_canary():
    # Each reading of the clock moves it by 10 ns; one run in five is preempted for long.
    steps = itertools.cycle([10] * 9 + [10_000])
    clock = itertools.accumulate(steps)
    canaries = Canaries(lambda: next(clock))
    for number in range(8):
        canaries.sing(0, number)
    assert [row[:2] for row in canaries.rows] == [(0, number) for number in range(8)]
    assert {ns for row in canaries.rows for ns in row[2:]} == {10}


def test_spread_is_p95_less_p5_over_the_median():
    rows = [(0, i, 100 + i, 200) for i in range(101)]
    found = describe(rows)
    assert found["compute"]["spread"] == pytest.approx(90 / 150)
    assert found["memory"] == {
        "median_ns": 200.0,
        "p05_ns": 200.0,
        "p95_ns": 200.0,
        "spread": 0.0,
    }


def test_no_round_no_canary():
    assert describe([]) == {}
