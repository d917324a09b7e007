"""What the kernel rests on, taken out piece by piece: the proof must notice each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sessions
from sessions import Scenario, broken_demands, tally

from ngraphbench import stats, summary
from ngraphbench.session import kernel
from ngraphbench.summary import Comparison, Samples

pytestmark = pytest.mark.slow

SESSIONS = 20


def broken(scenario: Scenario) -> list[str]:
    return broken_demands(tally(scenario, sessions=SESSIONS), scenario.launch_sd)


def test_a_fixed_order_is_noticed_where_a_round_has_a_trend(monkeypatch: pytest.MonkeyPatch):
    scenario = Scenario("trend", launch_sd=0.0, trend=0.01)
    assert broken(scenario) == []
    monkeypatch.setattr(kernel, "round_order", lambda keys, repeats, generator: list(keys))
    assert {"coverage", "bias"} <= set(broken(scenario))


def half(samples: Samples, *, second: bool) -> Samples:
    """Return one half of the rounds of each launch, counted from 0."""
    rounds, epochs = samples["round"], samples["epoch"]
    middle = np.array([(rounds[epochs == epoch].max() + 1) // 2 for epoch in epochs])
    kept = (rounds >= middle) == second
    found = {name: values[kept] for name, values in samples.items()}
    return {**found, "round": (rounds - middle * second)[kept]}


def test_pairing_with_another_time_is_noticed_where_the_machine_drifts(
    monkeypatch: pytest.MonkeyPatch,
):
    scenario = Scenario("thermal", "thermal", launch_sd=0.0)
    assert broken(scenario) == []
    paired = summary.compare

    def unpaired(a: Samples, b: Samples, **settings: Any) -> Comparison | None:
        return paired(half(a, second=False), half(b, second=True), **settings)

    monkeypatch.setattr(summary, "compare", unpaired)
    monkeypatch.setattr(sessions, "compare", unpaired)
    assert {"coverage", "A/A", "bias"} <= set(broken(scenario))


def test_a_lost_launch_term_is_noticed_where_launches_differ(monkeypatch: pytest.MonkeyPatch):
    scenario = Scenario("launches", launch_sd=0.02)
    assert broken(scenario) == []
    monkeypatch.setattr(stats, "launch_half_width", lambda *_, **__: 0.0)
    assert {"coverage", "A/A"} <= set(broken(scenario))
