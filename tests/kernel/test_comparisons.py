"""``ngb compare`` against known truth: a fast subset of what ``make bench-compare`` does in full.

Of pairs of runs of the same programs, any regression is declared in at most 5 % (rejected where a
binomial test gives p < 0.001); a program that was made slower is found, and no other is blamed.
"""

from __future__ import annotations

import pytest
from comparisons import Comparing, Found, count
from sessions import too_often

from ngraphbench import stats

pytestmark = pytest.mark.slow


def spelled(comparing: Comparing, found: Found) -> str:
    return f"{comparing}: declared {found.declared}, seen {found.seen} of {found.pairs}"


@pytest.mark.parametrize(
    ("comparing", "pairs"),
    [
        (Comparing("walk", profile="quick"), 150),
        (Comparing("bursts"), 15),
    ],
    ids=str,
)
def test_a_run_against_its_repeat(comparing: Comparing, pairs: int):
    found = count(comparing, pairs=pairs)
    print(spelled(comparing, found))
    assert not too_often(found.declared, pairs, 0.05)


@pytest.mark.parametrize(
    "comparing",
    [Comparing("ar-slow", slower=0.10), Comparing(launch_sd=0.005, slower=0.05)],
    ids=str,
)
def test_a_slow_down_is_found(comparing: Comparing):
    found = count(comparing, pairs=15)
    print(spelled(comparing, found))
    assert not too_often(found.pairs - found.seen, found.pairs, 0.05)
    assert not too_often(found.blamed, found.pairs, 0.05)


def test_a_slow_down_below_the_threshold_is_not_taken_for_found():
    found = count(Comparing(launch_sd=0.005, slower=0.02), pairs=8)
    assert too_often(found.pairs - found.seen, found.pairs, 0.05)


def test_without_the_launch_term_it_would_cry_wolf(monkeypatch: pytest.MonkeyPatch):
    comparing = Comparing(profile="quick", launch_sd=0.02)
    monkeypatch.setattr(stats, "launch_half_width", lambda *_, **__: 0.0)
    assert too_often(count(comparing, pairs=100).declared, 100, 0.05)
