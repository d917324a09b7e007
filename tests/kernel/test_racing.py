"""Races against known truth: a fast subset of what ``make bench-racing`` does in full.

Demands: the true best is dropped or called slower in at most 1 %; one of two equals is called
the fastest alone in at most 5 %; a decision takes at most half of the time that it takes when
everyone is measured to the end. A test rejects only what a binomial test gives p < 0.001.
"""

from __future__ import annotations

import statistics

import pytest
from races import Naive, false_winner, outcome, run_race
from scenarios import DRIFTS
from sessions import too_often

SESSIONS = 6
SPREADS = (0.0, 0.01, 0.02)


@pytest.mark.parametrize("drift", sorted(DRIFTS))
def test_the_best_is_not_dropped_and_equals_share_the_top(drift: str):
    found = [outcome(drift, launch_sd=spread, sessions=SESSIONS) for spread in SPREADS]
    cases = SESSIONS * len(SPREADS)
    assert not too_often(sum(one.wrong for one in found), cases, 0.01)
    assert not too_often(sum(one.false for one in found), cases, 0.05)
    assert sum(one.named for one in found) > 0


def test_far_slower_ones_are_gone_in_the_first_launch():
    raced = run_race("walk", seed=1, launch_sd=0.01)
    assert {"b20", "b50", "b100"} <= set(raced.dropped)
    assert raced.samples["b100"]["epoch"].max() == 0
    assert raced.samples["b50"]["epoch"].max() == raced.epochs - 1


def test_a_race_takes_half_of_the_time_of_measuring_everyone_to_the_end():
    found = outcome("quiet", launch_sd=0.0, sessions=9, compared=9)
    print(f"time ratio {statistics.median(found.ratios):.2f}")
    assert statistics.median(found.ratios) <= 0.5


def test_naive_peeking_fails_this_proof():
    false = sum(false_winner("quiet", seed=s, launch_sd=0.0, kind=Naive) for s in range(25))
    print(f"naive peeking: a false winner in {false / 25:.0%} of exact ties")
    assert too_often(false, 25, 0.05)


def test_the_same_race_again_goes_the_same_way():
    one, two = (run_race("bursts", seed=3, launch_sd=0.01) for _ in range(2))
    assert one.dropped == two.dropped
    assert (one.top, one.slots, one.seconds) == (two.top, two.slots, two.seconds)
