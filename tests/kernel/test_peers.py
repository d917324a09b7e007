"""What other tools' rules do under drift, and ours at the same seconds; in full: bench-peers."""

from __future__ import annotations

import numpy as np
import pytest
from rules import OURS, Bench, Count, mann_whitney_cut, order_statistics, outcomes, sequential
from scenarios import DRIFTS, Machine
from scipy.stats import mannwhitneyu
from sessions import TRUTH
from test_proof import too_often

from benchmarks.replay import TRACES, read_trace, replay

SESSIONS = 60


def counts(drift: str) -> dict[str, Count]:
    found: dict[str, Count] = {}
    for seed in range(SESSIONS):
        said = outcomes(
            lambda rng: Bench(Machine(rng, DRIFTS[drift](rng))),
            seed=seed,
            seconds=60.0,
            peers=(sequential,),
        )
        for name, outcome in said.items():
            found.setdefault(name, Count()).add(outcome, TRUTH)
    return found


@pytest.mark.parametrize("drift", ["ar-slow", "thermal"])
def test_one_after_another_misleads_where_interleaving_does_not(drift: str):
    found = counts(drift)
    ours, theirs = found[OURS], found["sequential mean"]
    assert ours.seconds == pytest.approx(theirs.seconds, rel=0.02)
    assert theirs.misordered >= 0.15 * SESSIONS
    assert theirs.covered <= 0.4 * theirs.intervals
    assert not too_often(ours.wrong, SESSIONS, 0.01)
    assert not too_often(ours.misordered, SESSIONS, 0.01)
    assert ours.right >= 0.5 * SESSIONS
    assert not too_often(ours.intervals - ours.covered, ours.intervals, 0.07)


def test_a_quiet_machine_is_measured_well_by_all():
    found = counts("quiet")
    for name in (OURS, "sequential mean", "sequential median"):
        one = found[name]
        assert one.misordered == 0
        assert not too_often(one.intervals - one.covered, one.intervals, 0.07)


def test_the_rank_interval_belongs_to_the_exact_test():
    generator = np.random.default_rng(0)
    own, base = generator.standard_normal((2, 9))
    end = np.sort(np.subtract.outer(own, base).ravel())[mann_whitney_cut(9, 9) - 1]
    outside, inside = (
        mannwhitneyu(own - end + step, base, method="exact").pvalue for step in (1e-9, -1e-9)
    )
    assert inside != outside
    assert min(inside, outside) <= 0.05 < max(inside, outside)


def test_order_statistics_of_ten_are_the_second_and_the_ninth():
    assert list(order_statistics(np.arange(1.0, 11.0))) == [2.0, 5.5, 9.0]


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.csv")), ids=lambda path: path.stem)
def test_a_trace_is_replayed_within_what_was_recorded(path):
    trace = read_trace(path)
    assert trace.head["cpu_model"]
    assert trace.length_s > 100
    assert np.all(np.diff(trace.at_s) > 0)
    drift = replay(trace, np.random.default_rng(0))
    levels = [drift(now_s) for now_s in np.arange(0.0, 3 * trace.length_s, 0.5)]
    assert min(levels) >= trace.log_slowdown.min()
    assert max(levels) <= trace.log_slowdown.max()
    assert np.std(levels) > 0
