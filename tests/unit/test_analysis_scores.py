from __future__ import annotations

import math

import pytest
from curve_fixture import batch_run, evidence
from hypothesis import given, settings
from hypothesis import strategies as st
from run_fixture import Run, full_run, model

from ngraphbench.analysis.scores import (
    Sample,
    es_score,
    s_score,
    scores,
    speedup_means,
    tolerances,
)
from ngraphbench.profiles import PROFILES

speedups = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=6)


def right(speedup: float) -> Sample:
    return Sample("timed", speedup=speedup, max_abs=1e-6, smallest_rtol=1e-6)


@settings(deadline=None)
@given(found=speedups)
def test_all_correct_is_the_geometric_mean(found: list[float]) -> None:
    samples = [right(speedup) for speedup in found]
    mean = math.exp(sum(map(math.log, found)) / len(found))
    assert s_score(samples, -5) == pytest.approx(mean)
    assert es_score(samples, 1) == pytest.approx(mean)


@settings(deadline=None)
@given(found=speedups, failed=st.integers(0, 4))
def test_failures_dilute_by_their_share(found: list[float], failed: int) -> None:
    samples = [right(speedup) for speedup in found] + [Sample("compile")] * failed
    share = len(found) / len(samples)
    alpha = math.exp(sum(map(math.log, found)) / len(found))
    assert s_score(samples, -5) == pytest.approx(alpha**share * 0.1 ** (1 - share))
    assert es_score(samples, -5) == pytest.approx(s_score(samples, -5))
    assert es_score(samples, 3) == pytest.approx(alpha**share)


def test_errors_are_forgiven_by_kind() -> None:
    samples = [right(2.0), Sample("runtime"), Sample("accuracy")]
    one, three = es_score(samples, 1), es_score(samples, 3)
    assert one == pytest.approx(2 ** (1 / 3) * (0.1**0.5) ** (2 / 3))
    assert three == pytest.approx(2 ** (1 / 3))


def test_a_tight_tolerance_makes_a_sample_incorrect() -> None:
    sample = Sample("timed", speedup=2.0, max_abs=1e-3, smallest_rtol=1e-2)
    assert s_score([sample], -5) == pytest.approx(0.1)
    assert s_score([sample], -1) == pytest.approx(2.0)


def test_no_samples_have_no_score() -> None:
    with pytest.raises(ValueError, match="no samples"):
        s_score([], 0)


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("fp16", (1e-3, 1e-5)),
        ("fp64", (1e-7, 1e-7)),
        ("fp32", (10**-5.886, 1e-5)),
        ("bf16", (10**-1.796, 1e-5)),
        ("int8", (0.0, 0.0)),
    ],
)
def test_tolerances(precision: str, expected: tuple[float, float]) -> None:
    assert tolerances(-5, precision) == pytest.approx(expected)


def two_models(**second: object) -> Run:
    run = Run(PROFILES["default"], noise=0.001)
    session = run.session()
    run.cell(session, model("A"), "eager", 1, ms=10.0)
    run.cell(session, model("A"), "openvino", 1, ms=5.0)
    run.cell(session, model("B"), "eager", 1, ms=10.0)
    run.cell(session, model("B"), "openvino", 1, **second)  # type: ignore[arg-type]
    return run.summarise()


def test_means_over_models() -> None:
    (found,) = speedup_means(evidence(two_models(ms=1.25)))
    assert (found.count, found.of) == (2, 2)
    assert found.geometric is not None
    assert found.geometric.low < 4.0 < found.geometric.high
    assert found.harmonic == pytest.approx(2 / (1 / 2 + 1 / 8), rel=0.01)


def test_what_failed_is_counted_and_not_imputed() -> None:
    (found,) = speedup_means(evidence(two_models(status="crashed")))
    assert (found.count, found.of) == (1, 2)
    assert found.geometric is not None
    assert found.geometric.estimate == pytest.approx(2.0, rel=0.02)


def test_scores_of_a_run() -> None:
    found = {score.compiler: score for score in scores(evidence(full_run()))}
    # One measured, one crashed at compile, one wrong, one unsupported.
    inductor = found["inductor"]
    assert inductor.samples == 4
    at = dict(zip(inductor.tolerances, inductor.s, strict=True))
    assert at[-5] == pytest.approx((20 / 11) ** (1 / 4) * 0.1 ** (3 / 4), rel=0.05)
    assert found["openvino"].samples == 4


def test_without_a_baseline_there_is_no_score() -> None:
    assert scores(evidence(batch_run({"eager": {1: "failed"}, "openvino": {1: 2.0}}))) == []
