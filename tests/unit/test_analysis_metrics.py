"""All metrics of a run of several sessions: a repeat counts once."""

from __future__ import annotations

import pytest
from study_fixture import Table, study_run

from ngraphbench.analysis.metrics import metrics

TABLE: Table = {
    "conv": {"eager": 10.0, "openvino": 2.0},
    "former": {"eager": 8.0, "openvino": 3.0},
    "slow": {"eager": 40.0, "openvino": 20.0},
}


@pytest.mark.parametrize("flags", [[], [{"flag": "untrusted", "detail": "A/A"}]])
def test_a_repeat_counts_once(flags: list[dict[str, str]]) -> None:
    once = metrics(*study_run(TABLE).parts)
    twice = metrics(*study_run(TABLE, session="s1", flags=flags, run=study_run(TABLE)).parts)
    names = {one.order.model_a for one in once.orders} | {o.order.model_b for o in once.orders}
    assert names == {"conv", "former", "slow"}
    assert len(twice.orders) == len(once.orders) == 3
    assert {one.order.verdict for one in twice.orders} == {"reversed", "kept"}
    assert {one.order.model_a for one in twice.orders} <= names
    assert [one.models for one in twice.rankings] == [one.models for one in once.rankings]
    assert [(one.count, one.of) for one in twice.speedups] == [(3, 3)]


def test_a_repeat_of_some_candidates_leaves_the_others() -> None:
    part = {name: {"eager": by["eager"]} for name, by in TABLE.items()}
    found = metrics(*study_run(part, session="s1", run=study_run(TABLE)).parts)
    # The older session alone has the compiled ones, and keeps the baselines beside them.
    assert {one.order.verdict for one in found.orders if one.order.under_compiler} == {
        *("reversed", "kept")
    }
