"""The top set: holds the true best, does not hang on names, and follows Holm."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest

from ngraphbench.analysis.topset import Compare, resolved_slower, verdict_confidence
from ngraphbench.stats import Launch
from ngraphbench.summary import Comparison, Samples, compare, launch_of

ratios = st.lists(st.floats(0.98, 1.3), min_size=1, max_size=7)
spreads = st.floats(0.002, 0.05)
calm = settings(deadline=None, max_examples=50)


def normal(ratio: float, sd: float, confidence: float) -> Comparison:
    """Return what is known of a ratio whose log has a normal error of ``sd``."""
    half = sd * float(ndtri((1 + confidence) / 2))
    low, high = ratio * math.exp(-half), ratio * math.exp(half)
    return Comparison(ratio, low, high, low, high, rounds=30, epochs=3, confidence=confidence)


def against(times: dict[str, float], sd: float) -> Compare:
    return lambda a, b, confidence: normal(times[a] / times[b], sd, confidence)


def textbook(p_values: dict[str, float], alpha: float) -> set[str]:
    """Return the hypotheses that Holm rejects: by rank, up to the first that stands."""
    rejected: set[str] = set()
    for rank, key in enumerate(sorted(p_values, key=lambda key: p_values[key])):
        if p_values[key] > alpha / (len(p_values) - rank):
            break
        rejected.add(key)
    return rejected


@calm
@given(ratios, spreads, st.floats(0.8, 0.999))
def test_it_is_holms_procedure(others: list[float], sd: float, confidence: float):
    times = {"best": 1.0} | {f"c{i}": ratio for i, ratio in enumerate(others)}
    rivals = [key for key in times if key != "best"]
    found = resolved_slower("best", rivals, against(times, sd), confidence=confidence, tie=0.0)
    p_values = {key: 2 * float(ndtr(-abs(math.log(times[key])) / sd)) for key in rivals}
    rejected = {key for key in textbook(p_values, 1 - confidence) if times[key] > 1.0}
    faster = {key for key in rivals if times[key] <= 1.0}
    if not faster:
        assert found == rejected
    else:
        # What is faster is never rejected here, so the others get no easier levels from it.
        assert found <= rejected


@calm
@given(ratios, spreads, st.randoms(use_true_random=False))
def test_it_does_not_hang_on_names_or_their_order(others, sd, random):
    names = [f"c{i}" for i in range(len(others))]
    times = {"best": 1.0, **dict(zip(names, others, strict=True))}
    shuffled = random.sample(names, len(names))
    renamed = dict(zip(names, shuffled, strict=True))
    other_times = {"best": 1.0, **{renamed[name]: times[name] for name in names}}
    one = resolved_slower("best", names, against(times, sd), confidence=0.95, tie=0.02)
    two = resolved_slower("best", shuffled, against(other_times, sd), confidence=0.95, tie=0.02)
    assert {renamed[name] for name in one} == two


@calm
@given(ratios, spreads, st.floats(0.6, 0.99), st.floats(0.0, 1.0))
def test_who_asks_for_more_confidence_excludes_no_more(others, sd, confidence, more):
    times = {"best": 1.0} | {f"c{i}": ratio for i, ratio in enumerate(others)}
    rivals = [key for key in times if key != "best"]
    stricter = confidence + more * (0.9999 - confidence)
    few = resolved_slower("best", rivals, against(times, sd), confidence=stricter, tie=0.0)
    many = resolved_slower("best", rivals, against(times, sd), confidence=confidence, tie=0.0)
    assert few <= many


@calm
@given(ratios, spreads)
def test_a_wider_tie_zone_excludes_no_more(others, sd):
    times = {"best": 1.0} | {f"c{i}": ratio for i, ratio in enumerate(others)}
    rivals = [key for key in times if key != "best"]
    found = [
        resolved_slower("best", rivals, against(times, sd), confidence=0.95, tie=tie)
        for tie in (0.0, 0.02, 0.1)
    ]
    assert found[2] <= found[1] <= found[0]


def made(rng: np.random.Generator, times: dict[str, float], launch_sd: float) -> dict[str, Samples]:
    """Return three launches of twelve rounds on a machine that wanders."""
    epochs, rounds = 3, 12
    drift = np.cumsum(rng.normal(0, 0.01, epochs * rounds))
    return {
        key: {
            "epoch": np.repeat(np.arange(epochs), rounds),
            "round": np.tile(np.arange(rounds), epochs),
            "call_ns": 1e6
            * time
            * np.exp(
                drift
                + rng.normal(0, 0.015, epochs * rounds)
                + np.repeat(rng.normal(0, launch_sd, epochs), rounds)
            ),
        }
        for key, time in times.items()
    }


@pytest.mark.parametrize("launch_sd", [0.0, 0.01])
def test_it_holds_the_true_best_in_95_percent_of_sessions(launch_sd: float):
    sessions, held = 60, 0
    for seed in range(sessions):
        rng = np.random.default_rng(seed)
        times = dict(zip("abcdef", 1 + np.cumsum([0, *rng.uniform(0, 0.03, 5)]), strict=True))
        samples = made(rng, times, launch_sd)
        launch = launch_of(list(samples.values()))
        held += "a" in top(samples, launch)
    missed = sessions - held
    print(f"launch sd {launch_sd:.0%}: the best is in the top set of {held / sessions:.1%}")
    assert binomtest(missed, sessions, 0.05, alternative="greater").pvalue > 0.001


def top(samples: dict[str, Samples], launch: Launch) -> set[str]:
    def paired(a: str, b: str, confidence: float) -> Comparison | None:
        return compare(samples[a], samples[b], confidence=confidence, launch=launch)

    def time(key: str) -> float:
        found = paired(key, "a", 0.95)
        assert found is not None
        return found.estimate

    fastest, *rivals = sorted(samples, key=time)
    slower = resolved_slower(fastest, rivals, paired, confidence=0.95, tie=0.02)
    return set(samples) - slower


def test_a_race_leaves_the_verdict_what_it_has_not_spent():
    assert verdict_confidence(0.95, raced=False) == 0.95
    assert verdict_confidence(0.95, raced=True) == pytest.approx(1 - 0.05 / 3)
