"""Summaries and verdicts from samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraphbench.stats import (
    LAUNCH_PRIOR,
    Launch,
    hodges_lehmann,
    serial_inflation,
    signed_rank_interval,
)
from ngraphbench.summary import (
    Comparison,
    Logs,
    Rounds,
    compare,
    launch_of,
    location,
    round_logs,
    side_by_side,
    summarise,
    verdict,
)


def made(call_ns: np.ndarray, *, epochs: int = 1, calls: int = 10) -> dict[str, np.ndarray]:
    count = len(call_ns)
    per_epoch = count // epochs
    return {
        "epoch": np.arange(count) // per_epoch,
        "round": np.arange(count) % per_epoch,
        "call_ns": call_ns.astype(float),
        "calls": np.full(count, calls),
        "slot_ns": (call_ns * calls).astype(np.int64),
        "first_ns": call_ns * 2,
        "cpu_ns": call_ns * calls * 2,
        "nivcsw": np.zeros(count, dtype=np.int64),
    }


def noisy(mean_ns: float, *, seed: int, count: int = 24, sd: float = 0.01) -> np.ndarray:
    return mean_ns * np.exp(sd * np.random.default_rng(seed).standard_normal(count))


def test_common_drift_cancels_in_pairs():
    drift = np.exp(np.linspace(0, 0.5, 24))
    found = compare(made(2e6 * drift), made(1e6 * drift), confidence=0.95)
    assert found is not None
    assert found.estimate == pytest.approx(2.0)
    assert found.within_high / found.within_low == pytest.approx(1.0, abs=1e-9)


def test_the_launch_term_widens_the_claim():
    found = compare(made(noisy(2e6, seed=1)), made(noisy(1e6, seed=2)), confidence=0.95)
    assert found is not None
    assert found.low < found.within_low < found.estimate < found.within_high < found.high


def test_more_launches_narrow_the_claim():
    def width(epochs: int) -> float:
        a, b = made(noisy(2e6, seed=1), epochs=epochs), made(noisy(1e6, seed=2), epochs=epochs)
        found = compare(a, b, confidence=0.95)
        assert found is not None
        return math.log(found.high / found.low)

    assert width(3) < width(1)


def test_only_rounds_that_both_were_in_are_compared():
    a, b = made(np.full(10, 2e6)), made(np.full(10, 1e6))
    b = {name: column[:6] for name, column in b.items()}
    found = compare(a, b, confidence=0.95)
    assert found is not None
    assert found.rounds == 6


def test_nothing_shared_is_not_compared():
    a, b = made(np.full(4, 2e6)), made(np.full(4, 1e6))
    b["epoch"] = b["epoch"] + 5
    assert compare(a, b, confidence=0.95) is None


def test_two_slots_of_a_round_count_as_one():
    samples = made(np.array([1e6, 1e6, 4e6]))
    samples["round"] = np.array([0, 1, 1])
    logs = round_logs(samples)
    assert logs.rounds.keys == ((0, 0), (0, 1))
    assert logs.values == pytest.approx(np.log([1e6, 2e6]))


def test_candidates_stand_side_by_side_in_the_rounds_that_all_share():
    keys = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    a = Logs(Rounds.of(keys), np.arange(5.0))
    b = Logs(Rounds.of(keys[1:]), np.arange(10.0, 14.0))
    c = Logs(Rounds.of([keys[0], *keys[2:]]), np.arange(20.0, 24.0))
    rounds, values = side_by_side([a, b, c])
    assert rounds.keys == ((0, 2), (1, 0), (1, 1))
    assert [column.tolist() for column in values] == [[2, 3, 4], [11, 12, 13], [21, 22, 23]]
    assert [part.tolist() for part in rounds.by_epoch(values[0])] == [[2], [3, 4]]


@pytest.mark.parametrize("lengths", [(12,), (9, 9, 9), (14, 9, 11)])
def test_a_location_is_the_mean_over_launches_each_by_itself(lengths: tuple[int, ...]):
    rng = np.random.default_rng(5)
    epochs = [np.cumsum(rng.standard_normal(count)) for count in lengths]
    centres = [hodges_lehmann(column) for column in epochs]
    residuals = np.concatenate([c - centre for c, centre in zip(epochs, centres, strict=True)])
    low, high = signed_rank_interval(residuals, 0.9)
    wider = math.sqrt(sum(lengths) * sum(1 / n for n in lengths)) / len(lengths)
    wider *= serial_inflation(epochs)
    middle = float(np.mean(centres))
    expected = (middle, middle + wider * min(low, 0.0), middle + wider * max(high, 0.0))
    assert location(epochs, 0.9) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.floats(0.2, 5.0))
def test_swapping_sides_inverts_a_comparison(seed: int, ratio: float):
    a, b = made(noisy(1e6 * ratio, seed=seed)), made(noisy(1e6, seed=seed + 1))
    there, back = compare(a, b, confidence=0.95), compare(b, a, confidence=0.95)
    assert there is not None
    assert back is not None
    assert there.estimate * back.estimate == pytest.approx(1.0)
    assert there.low * back.high == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.05, 1.2, "faster"),
        (0.8, 0.95, "slower"),
        (0.99, 1.01, "tie"),
        (1.001, 1.015, "tie"),
        (0.97, 1.3, "unresolved"),
        (0.9, 1.01, "unresolved"),
        (1.001, 1.3, "faster"),
    ],
)
def test_verdicts(low: float, high: float, expected: str):
    found = Comparison(
        estimate=math.sqrt(low * high),
        low=low,
        high=high,
        within_low=low,
        within_high=high,
        rounds=10,
        epochs=3,
        confidence=0.95,
    )
    assert verdict(found, 0.02) == expected


def test_no_comparison_is_unresolved():
    assert verdict(None, 0.02) == "unresolved"


def test_summary_of_constant_slots_is_exact():
    found = summarise(
        made(np.full(12, 2e6)),
        batch=8,
        confidence=0.95,
        tie=0.02,
        baseline=made(np.full(12, 6e6)),
        baseline_label="eager",
    )
    assert found is not None
    assert found["latency_ms"]["estimate"] == pytest.approx(2.0)
    assert found["throughput_per_s"]["estimate"] == pytest.approx(8 / 2e-3)
    assert found["vs_baseline"]["estimate"] == pytest.approx(3.0)
    assert found["vs_baseline"]["verdict"] == "faster"
    assert found["vs_baseline"]["baseline"] == "eager"


def test_one_slot_is_no_summary():
    assert summarise(made(np.full(1, 2e6)), batch=1, confidence=0.95, tie=0.02) is None


def test_launch_spread_needs_several_launches():
    single = [made(noisy(1e6, seed=i)) for i in range(3)]
    assert launch_of(single) == LAUNCH_PRIOR
    several = [made(noisy(1e6, seed=i), epochs=3) for i in range(3)]
    assert launch_of(several).degrees > LAUNCH_PRIOR.degrees


def test_a_wide_launch_spread_blocks_a_verdict():
    a, b = made(noisy(1.03e6, seed=1)), made(noisy(1e6, seed=2))
    wide = compare(a, b, confidence=0.95, launch=Launch(0.05, 10))
    assert verdict(wide, 0.02) == "unresolved"
