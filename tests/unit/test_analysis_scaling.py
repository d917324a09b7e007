from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from curve_fixture import Times, batch_run, evidence
from hypothesis import given, settings
from hypothesis import strategies as st
from run_fixture import Run

from ngraphbench.analysis.friction import Friction, frictions
from ngraphbench.analysis.scaling import Scaled, Scaling, log2_weights, scalings

BATCHES = (1, 2, 4, 16)
EXACT = 1e-9
few = settings(max_examples=8, deadline=None)
times_ms = st.floats(0.05, 500.0)


def scaling(run: Run, label: str = "openvino") -> Scaling:
    return next(found for found in scalings(evidence(run)) if found.label == label)


def friction(run: Run, label: str = "openvino") -> Friction:
    return next(found for found in frictions(evidence(run)) if found.label == label)


def rows(found: Scaling) -> dict[int, Scaled]:
    return {row.batch: row for row in found.rows}


def of(ms: dict[int, float], eager: dict[int, float] | None = None) -> Run:
    return batch_run({"eager": eager or dict.fromkeys(ms, 100.0), "openvino": ms})


@few
@given(unit=times_ms, power=st.sampled_from([0.0, 1.0, 2.0]))
def test_powers_of_the_batch_size(unit: float, power: float) -> None:
    """L constant, L ~ b, L ~ b^2: RTR b, 1, 1/b; ASE 1, 1/b, 1/b^2; r 0, 1, 2."""
    run = of({b: unit * b**power for b in BATCHES})
    for batch, row in rows(scaling(run)).items():
        assert row.rtr is not None
        assert row.ase is not None
        assert row.rtr.estimate == pytest.approx(batch ** (1 - power), rel=EXACT)
        assert row.ase.estimate == pytest.approx(batch**-power, rel=EXACT)
    profile = friction(run)
    for step in profile.steps:
        assert step.friction.estimate == pytest.approx(power, abs=EXACT)
    assert (profile.knee is None) == (power < 1)


@few
@given(offset=times_ms, slope=times_ms)
def test_affine_latency(offset: float, slope: float) -> None:
    """L = o + kb: 0 < ASE <= 1, 1 <= RTR < 1 + o/k, r in [0, 1] and non-decreasing."""
    run = of({b: offset + slope * b for b in BATCHES})
    for row in rows(scaling(run)).values():
        assert row.ase is not None
        assert row.rtr is not None
        assert 0.0 < row.ase.estimate <= 1.0 + EXACT
        assert 1.0 - EXACT <= row.rtr.estimate < (1.0 + offset / slope) * (1.0 + EXACT)
        assert not row.suspicious
    frictions_seen = [step.friction.estimate for step in friction(run).steps]
    assert all(-EXACT <= r <= 1.0 + EXACT for r in frictions_seen)
    pairs = itertools.pairwise(frictions_seen)
    assert all(later >= earlier - EXACT for earlier, later in pairs)


@few
@given(ms=st.lists(times_ms, min_size=4, max_size=4))
def test_where_no_larger_batch_is_quicker_bounds_hold(ms: list[float]) -> None:
    """L non-decreasing: RTR in (0, b], ASE at most 1, no friction below 0."""
    run = of(dict(zip(BATCHES, sorted(ms), strict=True)))
    for row in scaling(run).rows:
        assert row.rtr is not None
        assert row.ase is not None
        assert 0.0 < row.rtr.estimate <= row.batch * (1.0 + EXACT)
        assert row.ase.estimate <= 1.0 + EXACT
        assert not row.suspicious
    assert all(step.friction.estimate >= -EXACT for step in friction(run).steps)


@few
@given(ms=st.lists(times_ms, min_size=4, max_size=4), factor=st.floats(0.01, 100.0))
def test_metrics_do_not_depend_on_the_unit(ms: list[float], factor: float) -> None:
    one = of(dict(zip(BATCHES, ms, strict=True)))
    other = of({b: factor * t for b, t in zip(BATCHES, ms, strict=True)})
    plain, scaled = scaling(one), scaling(other)
    steps = zip(friction(one).steps, friction(other).steps, strict=True)
    assert all(
        a.friction.estimate == pytest.approx(b.friction.estimate, abs=1e-6) for a, b in steps
    )
    for a, b in zip(plain.rows, scaled.rows, strict=True):
        assert a.rtr is not None
        assert b.rtr is not None
        assert a.bsr is not None
        assert b.bsr is not None
        assert a.rtr.estimate == pytest.approx(b.rtr.estimate, rel=1e-6)
        assert a.bsr.estimate == pytest.approx(b.bsr.estimate, rel=1e-6)


@few
@given(
    mine=st.lists(times_ms, min_size=4, max_size=4),
    theirs=st.lists(times_ms, min_size=4, max_size=4),
)
def test_bsr_of_itself_is_one_and_roles_invert_it(mine: list[float], theirs: list[float]) -> None:
    a, b = dict(zip(BATCHES, mine, strict=True)), dict(zip(BATCHES, theirs, strict=True))
    one, other = rows(scaling(of(a, b))), rows(scaling(of(b, a)))
    for batch in BATCHES:
        forth, back = one[batch].bsr, other[batch].bsr
        assert forth is not None
        assert back is not None
        assert forth.estimate * back.estimate == pytest.approx(1.0, rel=1e-6)
        # It is the ratio of two ASE, and of two speed-ups.
        assert forth.estimate == pytest.approx((a[1] / a[batch]) / (b[1] / b[batch]), rel=1e-6)
    for row in scaling(of(a, b), "eager").rows:
        assert row.bsr is not None
        assert (row.bsr.low, row.bsr.estimate, row.bsr.high) == (1.0, 1.0, 1.0)


@few
@given(ms=st.lists(times_ms, min_size=3, max_size=3))
def test_an_out_of_memory_batch_changes_coverage_alone(ms: list[float]) -> None:
    measured = dict(zip((1, 2, 4), ms, strict=True))
    eager = {1: 9.0, 2: 9.5, 4: 11.0}
    before = scaling(batch_run({"eager": eager, "openvino": measured}))
    times: Times = {"eager": {**eager, 8: 20.0}, "openvino": {**measured, 8: "oom"}}
    after = scaling(batch_run(times))
    assert (before.coverage, after.coverage) == ("3 of 3", "3 of 4")
    assert (before.censored, after.censored) == ("", "oom")
    assert (after.largest, after.base) == (4, 1)
    assert after.rows[-1] == Scaled(8, "oom")
    assert before.summary is not None
    assert after.summary is not None
    assert after.summary.grid == before.summary.grid
    for a, b in zip(before.rows, after.rows, strict=False):
        assert a.rtr is not None
        assert b.rtr is not None
        assert a.rtr.estimate == pytest.approx(b.rtr.estimate, rel=1e-6)
    assert after.summary.mean_ase is not None
    assert before.summary.mean_ase is not None
    assert after.summary.mean_ase.estimate == pytest.approx(before.summary.mean_ase.estimate)


@few
@given(ms=st.lists(times_ms, min_size=3, max_size=3))
def test_a_batch_that_nobody_could_run_changes_nothing_else(ms: list[float]) -> None:
    """Every metric with its interval, the knee and saturation stay as they are."""
    measured = dict(zip((1, 2, 4), ms, strict=True))
    eager = {1: 9.0, 2: 9.5, 4: 11.0}
    before = batch_run({"eager": eager, "openvino": measured})
    gone: Times = {"eager": {**eager, 8: "oom"}, "openvino": {**measured, 8: "oom"}}
    after = batch_run(gone)
    told = {"coverage": "3 of 4", "censored": "oom"}
    for label in gone:
        plain = scaling(before, label)
        rows_after = (*plain.rows, Scaled(8, "oom"))
        assert scaling(after, label) == replace(plain, rows=rows_after, **told)
        assert friction(after, label) == replace(friction(before, label), **told)


def test_the_mean_friction_telescopes() -> None:
    run = of({1: 3.0, 2: 3.5, 4: 5.0, 16: 21.0})
    profile, found = friction(run), rows(scaling(run))[16].ase
    assert profile.mean is not None
    assert found is not None
    assert profile.mean.estimate == pytest.approx(-math.log(found.estimate) / math.log(16))
    steps = [(math.log(s.high_batch / s.low_batch), s.friction.estimate) for s in profile.steps]
    assert profile.mean.estimate == pytest.approx(sum(w * r for w, r in steps) / math.log(16))


def test_means_are_over_log_batch_on_the_common_grid() -> None:
    run = batch_run(
        {
            "eager": dict.fromkeys((1, 2, 4, 8), 10.0),
            "openvino": {1: 1.0, 2: 2.0, 4: 4.0, 8: "oom"},
        }
    )
    for label, ase in (("eager", 1.0), ("openvino", (1.0 * 0.5 + 0.5 * 1.0 + 0.25 * 0.5) / 2)):
        found = scaling(run, label).summary
        assert found is not None
        assert found.grid == (1, 2, 4)
        assert found.mean_ase is not None
        assert found.mean_ase.estimate == pytest.approx(ase)
        assert found.last is not None
        assert found.last.batch == 4


def test_weights_add_up() -> None:
    assert sum(log2_weights(BATCHES)) == pytest.approx(1.0)


def test_without_batch_one_the_base_is_the_smallest_measured() -> None:
    run = batch_run({"eager": {1: 9.0, 2: 10.0, 4: 11.0}, "openvino": {1: "oom", 2: 2.0, 4: 3.0}})
    found = scaling(run)
    assert (found.base, found.bsr_base, found.coverage) == (2, 2, "2 of 3")
    row = rows(found)[4]
    assert row.ase is not None
    assert row.ase.estimate == pytest.approx(2.0 / 3.0)
    # Candidates of another base are not on its grid, nor it on theirs.
    mine, theirs = found.summary, scaling(run, "eager").summary
    assert mine is not None
    assert theirs is not None
    assert (mine.grid, theirs.grid) == ((2, 4), (1, 2, 4))


def test_bsr_has_its_own_base_where_the_baseline_lacks_one() -> None:
    run = batch_run({"eager": {1: "oom", 2: 8.0, 4: 16.0}, "openvino": {1: 1.0, 2: 2.0, 4: 2.0}})
    found = scaling(run)
    assert (found.base, found.bsr_base) == (1, 2)
    row = rows(found)
    assert row[1].bsr is None
    assert row[4].bsr is not None
    assert row[4].bsr.estimate == pytest.approx(2.0)


def test_fewer_than_two_batch_sizes_give_a_reason() -> None:
    run = batch_run({"eager": {1: 9.0, 2: 10.0}, "openvino": {1: 2.0, 2: "crashed"}})
    found = scaling(run)
    assert found.summary is None
    assert found.reason == "1 of 2 batch sizes have a result; two are needed"
    assert rows(found)[1].ase is None
    assert friction(run).reason == found.reason


@pytest.mark.parametrize("status", ["wrong", "failed", "unstable", "timeout"])
def test_what_is_no_result_is_left_out_and_named(status: str) -> None:
    run = batch_run({"eager": {1: 9.0, 2: 10.0}, "openvino": {1: 2.0, 2: 3.0, 4: 1.0}})
    run.records[-1]["status"] = status
    found = scaling(run)
    assert (found.coverage, found.censored) == ("2 of 3", status)


def test_padded_batches_are_flagged() -> None:
    run = of({1: 2.0, 2: 3.0})
    run.records[-1]["flags"] = [{"flag": "batch-padded", "detail": "2 as 8"}]
    assert rows(scaling(run))[2].flags == ("batch-padded",)


def test_better_than_perfect_is_flagged_and_not_clipped() -> None:
    row = rows(scaling(of({1: 10.0, 2: 5.0})))[2]
    assert row.ase is not None
    assert row.ase.estimate == pytest.approx(2.0)
    assert row.suspicious


def test_a_removed_overhead_looks_worse_while_it_is_faster_everywhere() -> None:
    """The trap: 7.1x faster at batch 1, 1.85x at 64, and yet ASE 0.10 against 0.39."""
    run = batch_run({"eager": {1: 7.1, 64: 18.5}, "openvino": {1: 1.0, 64: 10.0}})
    mine, theirs = rows(scaling(run))[64], rows(scaling(run, "eager"))[64]
    assert mine.ase is not None
    assert theirs.ase is not None
    assert mine.bsr is not None
    assert (round(mine.ase.estimate, 2), round(theirs.ase.estimate, 2)) == (0.10, 0.38)
    assert mine.bsr.high < 1.0


def test_sessions_apart_are_said_to_be_unpaired_and_are_wider() -> None:
    ms: Times = {"eager": {1: 9.0, 4: 20.0}, "openvino": {1: 2.0, 4: 6.0}}
    together, apart = scaling(batch_run(ms)), scaling(batch_run(ms, apart=True))
    one, other = rows(together)[4], rows(apart)[4]
    assert (one.paired, other.paired) == (True, False)
    assert one.ase is not None
    assert other.ase is not None
    assert other.ase.high / other.ase.low > 1.05 * one.ase.high / one.ase.low
    # Each speed-up is paired in its session, so drift cancels in BSR all the same.
    assert one.bsr is not None
    assert other.bsr is not None
    assert other.bsr.estimate == pytest.approx(one.bsr.estimate, rel=1e-6)


@pytest.mark.parametrize("unit", [1.0, 0.013])
def test_knee_and_saturation(unit: float) -> None:
    run = of({b: unit * ms for b, ms in {1: 4.0, 2: 4.2, 4: 5.0, 8: 10.0, 16: 20.0}.items()})
    found = friction(run)
    assert (found.knee, found.knee_before) == (4, 4)
    assert found.highest is not None
    assert found.highest.low_batch >= 4
    assert found.saturation is not None
    assert (found.saturation.batch, found.saturation.rising) == (4, False)
    assert found.saturation.throughput is not None


def test_batches_that_share_no_rounds_with_the_best_leave_saturation_open() -> None:
    run = of({1: 4.0, 2: 7.0, 4: 9.0})
    mine = [r for r in run.records if r["label"] == "openvino" and r["case"]["batch"] > 1]
    for record, late in zip(mine, (False, True), strict=True):
        samples = run.samples[record["measurement"]["samples"]]
        kept = (samples["round"] >= 3) == late
        run.samples[record["measurement"]["samples"]] = {k: v[kept] for k, v in samples.items()}
    found = friction(run)
    assert found.mean is not None
    assert found.saturation is None


def test_a_missing_batch_brackets_the_knee() -> None:
    run = batch_run(
        {"eager": {1: 9.0, 2: 10.0, 4: 11.0}, "openvino": {1: 1.0, 2: "failed", 4: 4.0}}
    )
    found = friction(run)
    assert (found.knee, found.knee_before) == (1, 4)
    assert [(s.low_batch, s.high_batch, s.gap) for s in found.steps] == [(1, 4, True)]


def test_noise_keeps_a_knee_from_being_claimed() -> None:
    ms = {1: 1.0, 2: 1.0 * 2**0.92}
    run = batch_run({"eager": ms, "openvino": ms}, noise=0.1, rounds=8)
    assert friction(run).knee is None
    assert friction(run).steps[0].friction.low < 0.9


def test_a_curve_that_still_rises_is_said_to() -> None:
    found = friction(of({1: 1.0, 2: 1.1, 4: 1.3})).saturation
    assert found is not None
    assert (found.at_batch, found.rising) == (4, True)
