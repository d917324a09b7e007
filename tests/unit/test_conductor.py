"""How a session fills its rounds, over programs that answer at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from virtual_agent import EPOCHS, ROUNDS, VirtualEngine, virtual_agents, virtual_plan

from ngraphbench.campaign import Campaign
from ngraphbench.store.rundir import RunDir
from ngraphbench.store.samples import read_samples


def slots_by_batch(folder: Path, batches: tuple[int, ...]) -> dict[int, set[int]]:
    """Return how many slots the cells of each batch size had, over the whole session."""
    plan = virtual_plan("m")
    (session,) = plan.sessions
    cases = [replace(case, batch=batch) for batch in batches for case in session.cases]
    plan = replace(plan, sessions=(replace(session, cases=tuple(cases)),))
    with virtual_agents():
        directory = RunDir.open(folder, create=True)
        directory.write_plan(plan.to_json())
        Campaign(plan, directory, VirtualEngine(), lambda event: None).run()
    found: dict[int, set[int]] = {}
    for record in directory.latest():
        assert record["status"] == "ok", record["message"]
        slots = len(read_samples(folder / record["measurement"]["samples"])["round"])
        found.setdefault(record["case"]["batch"], set()).add(slots)
    return found


@pytest.mark.parametrize(
    ("batches", "times"),
    [((1,), {1: 1}), ((4,), {4: 1}), ((1, 4), {1: 2, 4: 1}), ((2, 4), {2: 1, 4: 1})],
)
def test_batch_1_has_two_slots_a_round_beside_larger_ones(
    tmp_path: Path, batches: tuple[int, ...], times: dict[int, int]
) -> None:
    rounds = ROUNDS * EPOCHS
    expected = {batch: {count * rounds} for batch, count in times.items()}
    assert slots_by_batch(tmp_path / "run", batches) == expected
