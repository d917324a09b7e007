from __future__ import annotations

import math

import pytest
from curve_fixture import batch_run, evidence
from hypothesis import given, settings
from hypothesis import strategies as st
from run_fixture import Run

from ngraphbench.analysis.breakeven import BreakEven, break_evens, inferences
from ngraphbench.analysis.tables import Interval

seconds = st.floats(0.0, 1000.0)


def pair(eager_ms: float, mine_ms: float, *, noise: float = 0.0, **costs: object) -> Run:
    run = batch_run({"eager": {1: eager_ms}, "openvino": {1: mine_ms}}, noise=noise)
    eager, mine = run.records
    eager["costs"] = {**eager["costs"], "compile_cold_s": 0.0, "compile_warm_s": 0.0}
    mine["costs"] = {**mine["costs"], "compile_cold_s": 30.0, "compile_warm_s": 3.0, **costs}
    return run


def starts(run: Run) -> dict[str, BreakEven]:
    return {found.start: found for found in break_evens(evidence(run))}


def test_costs_over_time_saved() -> None:
    found = starts(pair(20.0, 10.0))
    for start, expected in (("cold", 3000.0), ("warm", 300.0)):
        calls = found[start].calls
        assert calls is not None
        # The fixture's machine drifts by 3 %, which moves latencies and not ratios.
        assert calls.estimate == pytest.approx(expected, rel=0.05)
        assert calls.low < expected < calls.high


def test_never_where_it_is_not_faster() -> None:
    cold = starts(pair(10.0, 20.0))["cold"]
    assert (cold.never, cold.calls) == (True, None)


def test_an_open_end_where_both_may_be_equal() -> None:
    cold = starts(pair(10.0, 9.99))["cold"]
    assert not cold.never
    assert cold.calls is not None
    assert math.isinf(cold.calls.high)


def test_several_cold_compiles_widen_it() -> None:
    narrow, wide = (
        starts(pair(20.0, 10.0, **costs))["cold"].calls
        for costs in ({}, {"compile_cold_samples_s": [20.0, 30.0, 45.0]})
    )
    assert narrow is not None
    assert wide is not None
    assert wide.low < narrow.low < narrow.high < wide.high


def test_tuning_is_paid_for_by_a_cold_start_alone() -> None:
    samples = [20.0, 30.0, 45.0]
    found = starts(pair(20.0, 10.0, tuning_s=70.0, compile_cold_samples_s=samples))
    cold, warm = found["cold"], found["warm"]
    assert cold.cost_s is not None
    assert warm.cost_s is not None
    assert cold.cost_s - warm.cost_s == pytest.approx(70.0 + 30.0 - 3.0)
    assert cold.calls is not None
    assert cold.calls.estimate == pytest.approx(10_000.0, rel=0.05)
    assert cold.calls.low > 8_000.0


def test_what_was_not_measured_is_a_reason() -> None:
    warm = starts(pair(20.0, 10.0, compile_warm_s=None))["warm"]
    assert warm.calls is None
    assert not warm.never
    assert warm.reason == "compile_warm_s was not measured of both"


@settings(deadline=None)
@given(costs=st.lists(seconds, min_size=3, max_size=3), saved=st.floats(1e-6, 10.0))
def test_bounds_hold_the_estimate(costs: list[float], saved: float) -> None:
    low, likely, high = sorted(costs)
    found = inferences((low, likely, high), Interval(saved, saved / 2, saved * 2, 0.95))
    assert found is not None
    assert 0.0 <= found.low <= found.estimate <= found.high
    assert found.estimate == pytest.approx(likely / saved)


def test_a_cheaper_start_pays_at_once() -> None:
    found = inferences((-3.0, -2.0, -1.0), Interval(1.0, 0.5, 2.0, 0.95))
    assert found == Interval(0.0, 0.0, 0.0, 0.95)
