from __future__ import annotations

import pytest

from ngraphbench.blockplan import blocks_of, blocks_s, describe
from ngraphbench.blocksummary import fewest_calls
from ngraphbench.case import Method
from ngraphbench.profiles import PROFILES

ALL = Method(tails_s=6.0, rate_per_s=30.0, in_flight=(1, 4), sustained_s=300.0)


def test_quick_measures_nothing_alone_unless_asked() -> None:
    assert blocks_of(Method(), PROFILES["quick"], 0) == []
    assert blocks_s(Method(), PROFILES["default"]) == pytest.approx(3.0)
    assert blocks_s(Method(), PROFILES["thorough"]) == pytest.approx(20.0)
    assert blocks_s(Method(tails_s=10.0), PROFILES["default"]) == pytest.approx(10.0)


def test_heat_comes_last_and_once() -> None:
    first, second = (blocks_of(ALL, PROFILES["default"], epoch) for epoch in (0, 1))
    words = ["tails", "paced at 30/s", "1 in flight", "4 in flight", "sustained"]
    assert [describe(block) for block in first] == words
    assert [describe(block) for block in second] == words[:-1]
    assert (first[0].seconds, first[-1].seconds, first[-1].slot_s) == (2.0, 300.0, 1.0)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
@pytest.mark.parametrize("rate", [1.0, 30.0, 1000.0])
def test_paced_blocks_allow_a_p99_where_time_does(profile, rate) -> None:
    method = Method(tails_s=1.0, rate_per_s=rate)
    paced = [blocks_of(method, profile, epoch)[1] for epoch in range(profile.epochs)]
    seconds = sum(block.seconds for block in paced)
    assert all(block.seconds >= 2.0 for block in paced)
    assert seconds <= max(30.0, profile.budget_ns / 1e9) + 1e-6
    if rate >= 30:
        assert sum(round(block.seconds * rate) for block in paced) >= fewest_calls(0.99)
