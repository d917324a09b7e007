from __future__ import annotations

from dataclasses import replace

import pytest
from curve_fixture import Times, depth_run, evidence
from hypothesis import given, settings
from hypothesis import strategies as st
from run_fixture import Run

from ngraphbench.analysis.depth import DepthFit, depth_fits
from ngraphbench.case import ModelRef

DEPTHS = (1, 2, 4, 8, 16)
few = settings(max_examples=8, deadline=None)


def line(alpha: float, beta: float) -> dict[int, float]:
    return {depth: alpha + beta * depth for depth in DEPTHS}


def fit(run: Run, label: str = "openvino") -> DepthFit:
    return next(found for found in depth_fits(evidence(run)) if found.label == label)


@few
@given(
    alpha=st.floats(0.01, 10.0),
    beta=st.floats(0.05, 10.0),
    eager=st.tuples(st.floats(0.01, 10.0), st.floats(0.05, 10.0)),
)
def test_a_straight_line_is_found(alpha: float, beta: float, eager: tuple[float, float]) -> None:
    found = fit(depth_run({"eager": line(*eager), "openvino": line(alpha, beta)}))
    assert found.alpha_ms is not None
    assert found.beta_ms is not None
    assert found.bend is not None
    assert found.repeat_gain is not None
    assert found.residual is not None
    # Drift of whole rounds scales the line; it cannot bend it.
    scale = found.beta_ms.estimate / beta
    assert 0.9 < scale < 1.1
    assert found.alpha_ms.estimate == pytest.approx(alpha * scale, rel=1e-4, abs=1e-6)
    assert found.bend.estimate == pytest.approx(1.0, rel=1e-6)
    assert abs(found.residual) < 1e-6
    assert found.lack_of_fit == pytest.approx(1.0)
    speedup = sum(eager) / (alpha + beta)
    assert found.repeat_gain.estimate == pytest.approx(eager[1] / beta / speedup, rel=1e-6)
    assert [speed.depth for speed in found.speedups] == list(DEPTHS)
    assert found.speedups[0].speedup.estimate == pytest.approx(speedup, rel=1e-6)


def test_an_overhead_that_is_spread_is_told_from_repetition() -> None:
    """Both speed-ups grow with depth; only the second one's blocks get cheaper."""
    spread = fit(depth_run({"eager": line(2.0, 4.0), "openvino": line(2.0, 1.0)}))
    exploited = {1: 3.0, 2: 4.0, 4: 6.0, 8: 8.0, 16: 11.0}
    cheaper = fit(depth_run({"eager": line(2.0, 4.0), "openvino": exploited}))
    for found in (spread, cheaper):
        assert found.trend is not None
        assert found.trend.low > 1.0
    assert spread.bend is not None
    assert spread.lack_of_fit is not None
    assert cheaper.bend is not None
    assert cheaper.lack_of_fit is not None
    assert spread.bend.low < 1.0 < spread.bend.high
    assert spread.lack_of_fit > 0.05
    assert cheaper.bend.high < 1.0
    assert cheaper.lack_of_fit < 0.01


def test_the_trend_is_per_doubling() -> None:
    times = {d: 10.0 * d**0.5 for d in DEPTHS}
    found = fit(depth_run({"eager": {d: 10.0 * d for d in DEPTHS}, "openvino": times}))
    assert found.trend is not None
    assert found.trend.estimate == pytest.approx(2**0.5, rel=1e-6)


def test_the_baseline_has_a_line_and_no_speedup() -> None:
    found = fit(depth_run({"eager": line(1.0, 2.0), "openvino": line(1.0, 1.0)}), "eager")
    assert found.beta_ms is not None
    assert found.speedups == ()
    assert found.repeat_gain is None


def test_failures_shorten_the_line_and_are_counted() -> None:
    times: Times = {"eager": line(1.0, 2.0), "openvino": {**line(1.0, 1.0), 8: "oom", 16: "oom"}}
    found = fit(depth_run(times))
    assert (found.coverage, found.depths, found.base_depth) == ("3 of 5", (1, 2, 4), 1)
    assert found.beta_ms is not None


def test_a_later_session_of_fewer_depths_leaves_the_line_as_it_is() -> None:
    times = {"eager": line(1.0, 2.0), "openvino": line(1.0, 1.0)}
    before = fit(depth_run(times))
    run = depth_run(times)
    session = run.session("s1")
    for record in [one for one in run.records if one["case"]["model"]["args"]["depth"] == 4]:
        ref = ModelRef(**record["case"]["model"])
        ms, status = (None, "timeout") if record["label"] == "eager" else (9.0, "ok")
        run.cell(session, ref, record["label"], 1, ms=ms, status=status)
    found = fit(run.summarise())
    # Slopes of costs hold nan here, which equals nothing.
    slopes = {"compile_slope_s": None, "memory_slope_bytes": None}
    assert replace(found, **slopes) == replace(before, **slopes)
    assert found.paired
    assert fit(run, "eager").coverage == "5 of 5"


@pytest.mark.parametrize(("own", "told"), [(4, ("4 of 5", True)), (2, ("3 of 5", False))])
def test_a_depth_of_another_session_is_taken_where_one_has_too_few(
    own: int, told: tuple[str, bool]
) -> None:
    there = dict.fromkeys(DEPTHS[:own])
    mine = {d: t if d in there else "timeout" for d, t in line(1.0, 1.0).items()}
    run = depth_run({"eager": line(1.0, 2.0), "openvino": mine})
    session = run.session("s1")
    for record in [one for one in run.records if one["case"]["model"]["args"]["depth"] == 16]:
        ref = ModelRef(**record["case"]["model"])
        run.cell(session, ref, record["label"], 1, ms=17.0)
    found = fit(run.summarise())
    assert (found.coverage, found.paired) == told


def test_one_depth_gives_a_reason() -> None:
    times: Times = {
        "eager": line(1.0, 2.0),
        "openvino": {**dict.fromkeys(DEPTHS, "crashed"), 1: 2.0},
    }
    found = fit(depth_run(times))
    assert found.reason == "1 of 5 depths have a result; two are needed"
    assert found.beta_ms is None


def test_two_depths_give_a_line_without_a_test_of_it() -> None:
    times: Times = {
        "eager": {d: t for d, t in line(1.0, 2.0).items() if d < 4},
        "openvino": {d: t for d, t in line(1.0, 1.0).items() if d < 4},
    }
    found = fit(depth_run(times))
    assert found.beta_ms is not None
    assert (found.lack_of_fit, found.bend, found.residual) == (None, None, None)


def test_slopes_of_costs() -> None:
    seconds = {depth: 5.0 + 0.5 * depth for depth in DEPTHS}
    run = depth_run({"eager": line(1.0, 2.0), "openvino": line(1.0, 1.0)}, compile_cold_s=seconds)
    found = fit(run)
    assert found.compile_slope_s is not None
    assert found.compile_slope_s.estimate == pytest.approx(0.5)
    assert found.memory_slope_bytes is not None
    assert found.memory_slope_bytes.estimate == pytest.approx(0.0)


def test_models_without_a_depth_are_no_series() -> None:
    run = depth_run({"eager": line(1.0, 2.0), "openvino": line(1.0, 1.0)})
    for record in run.records:
        record["case"]["model"]["args"] = {}
    assert depth_fits(evidence(run)) == []
