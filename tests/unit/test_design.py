from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_fixture import Run
from study_fixture import Table, add, study_run

from ngraphbench.analysis.metrics import finite
from ngraphbench.case import Case, Limits
from ngraphbench.spec import build_experiment, load_experiment
from ngraphbench.studies.design import Design, design
from ngraphbench.studies.refinement import write_refinement

CLEAR: Table = {
    "conv": {"eager": 10.0, "openvino": 2.0, "inductor": 4.0},
    "former": {"eager": 8.0, "openvino": 3.0, "inductor": 3.5},
    "slow": {"eager": 40.0, "openvino": 20.0, "inductor": 20.0},
}


def study(run: Run, **more: Any) -> Design:
    return design(*run.parts, **more)


def standings(found: Design) -> dict[str, str]:
    (place,) = found.places
    return {one.name: one.standing for one in place.archetypes}


def test_a_clear_winner_and_who_falls_behind() -> None:
    found = study(study_run(CLEAR, batches=(1, 4)))
    (place,) = found.places
    assert place.decided
    assert [(one.batch, one.state, one.top) for one in place.fastest] == [
        (1, "one", ("conv",)),
        (4, "one", ("conv",)),
    ]
    lead = place.fastest[0].lead
    assert lead is not None and lead.low < 1.5 < lead.high
    assert standings(found) == {"conv": "stays", "former": "falls", "slow": "stays"}
    assert "conv is the fastest archetype compiled" in found.decision
    assert "former falls behind once compiled" in found.decision
    assert {(o.order.compiler, o.order.verdict) for o in found.reversed} == {
        ("openvino", "reversed")
    }
    gain = place.archetypes[0].gains[0]
    assert (gain.compiler, gain.verdict) == ("openvino", "faster")
    assert found.refinement is None


def test_equals_are_a_tie_and_no_winner() -> None:
    table = {**CLEAR, "former": {"eager": 10.0, "openvino": 2.0, "inductor": 4.0}}
    found = study(study_run(table, noise=0.0005))
    (place,) = found.places
    (fastest,) = place.fastest
    assert (fastest.state, set(fastest.top)) == ("tie", {"conv", "former"})
    assert place.decided
    assert "equally fast" in found.decision
    assert "is the fastest" not in found.decision


def test_an_open_order_names_nobody_and_is_measured_longer() -> None:
    table = {**CLEAR, "former": {"eager": 8.0, "openvino": 2.02, "inductor": 3.5}}
    found = study(study_run(table, noise=0.05))
    (place,) = found.places
    (fastest,) = place.fastest
    assert (fastest.state, set(fastest.top)) == ("unresolved", {"conv", "former"})
    assert not place.decided
    assert "unresolved which of" in found.decision
    assert "at batch 1 conv" not in found.decision
    assert standings(found)["former"] == "undecided"
    assert found.refinement is not None
    asked = found.refinement.experiment
    assert asked["measure"]["profile"] == "thorough"
    assert {entry["label"] for entry in asked["models"]} == {"conv", "former"}
    assert "openvino" in asked["compilers"]
    build_experiment(asked)


def test_all_failed() -> None:
    table: Table = {
        name: {"eager": 10.0, "openvino": "crashed", "inductor": "wrong"} for name in ("a", "b")
    }
    found = study(study_run(table))
    (place,) = found.places
    assert place.fastest[0].state == "none"
    assert not place.decided
    assert set(standings(found).values()) == {"unsupported"}
    assert "no archetype has a right compiled result" in found.decision
    # A crash and a wrong output are answers: there is nothing that a second look would change.
    assert found.refinement is None


def test_what_is_wrong_partly_compiled_or_unstable_is_never_the_best() -> None:
    table: Table = {
        "conv": {"eager": 10.0, "openvino": "partly 0.1", "inductor": 5.0},
        "former": {"eager": 12.0, "openvino": "unstable 0.1", "inductor": 6.0},
        "other": {"eager": 14.0, "openvino": "wrong", "inductor": 7.0},
    }
    found = study(study_run(table))
    (place,) = found.places
    assert {gain.compiler for one in place.archetypes for gain in one.gains} == {"inductor"}
    assert place.fastest[0].top == ("conv",)
    told = {(one.archetype, one.compiler): one.text for one in place.support}
    assert told["conv", "openvino"] == "partly compiled"
    assert told["former", "openvino"] == "unstable"
    assert told["other", "openvino"] == "wrong"
    assert {one.works_under for one in place.archetypes} == {1}
    # The unstable cell alone may turn out otherwise.
    assert found.refinement is not None
    assert [entry["label"] for entry in found.refinement.experiment["models"]] == ["former"]


def test_without_the_baseline_the_fastest_is_told_but_no_place_is_kept() -> None:
    table: Table = {
        "conv": {"eager": "failed", "openvino": 2.0},
        "former": {"eager": 8.0, "openvino": 3.0},
    }
    found = study(study_run(table))
    assert found.places[0].fastest[0].top == ("conv",)
    assert standings(found) == {"conv": "stays", "former": "undecided"}
    (former,) = (one for one in found.places[0].archetypes if one.name == "former")
    assert "open uncompiled (no result)" in former.reasons[0]
    assert not found.orders


def test_a_session_that_failed_its_control_decides_nothing() -> None:
    flags = [{"flag": "untrusted", "detail": "A/A"}]
    found = study(study_run(CLEAR, flags=flags))
    (place,) = found.places
    assert [one.state for one in place.fastest] == ["untrusted"]
    assert "at batch 1 nothing can be told: the session failed its A/A control" in found.decision
    assert {one.standing for one in place.archetypes} == {"undecided"}
    reason = "batch 1: its session failed the A/A control"
    assert {one.reasons for one in place.archetypes} == {(reason,)}
    # All of it is measured again, side by side, and under the same profile.
    assert found.refinement is not None
    assert found.refinement.reasons == (reason,)
    asked = found.refinement.experiment
    assert [entry["label"] for entry in asked["models"]] == list(CLEAR)
    assert set(asked["compilers"]) == {"openvino", "inductor"}
    assert (asked["measure"]["profile"], asked["interleave"]) == ("default", ["compiler", "model"])


def test_an_older_session_counts_where_a_newer_one_is_not_to_be_trusted() -> None:
    decided = study(study_run(CLEAR))
    flags = [{"flag": "untrusted", "detail": "A/A"}]
    found = study(study_run(CLEAR, session="s1", flags=flags, run=study_run(CLEAR)))
    assert standings(found) == standings(decided)
    assert [one.order.verdict for one in found.orders] == [
        one.order.verdict for one in decided.orders
    ]
    assert {one.order.reason for one in found.orders} == {""}


def test_models_of_two_sessions_are_measured_together_next() -> None:
    run = study_run({"conv": CLEAR["conv"]}, session="a")
    run = study_run({"former": CLEAR["former"]}, session="b", run=run)
    found = study(run)
    assert found.places[0].fastest[0].state == "unresolved"
    assert "unpaired" in found.refinement.reasons[0] if found.refinement else False


def test_the_newest_session_counts() -> None:
    table = {**CLEAR, "former": {"eager": 8.0, "openvino": 2.02, "inductor": 3.5}}
    run = study_run(table, noise=0.05)
    settled: Table = {
        "conv": {"eager": 10.0, "openvino": 2.0},
        "former": {"eager": 8.0, "openvino": 2.3},
    }
    run = study_run(settled, session="s1", profile="thorough", run=run)
    found = study(run)
    (fastest,) = found.places[0].fastest
    assert (fastest.state, fastest.top) == ("one", ("conv",))
    assert standings(found)["former"] == "falls"
    names = {name for one in found.orders for name in (one.order.model_a, one.order.model_b)}
    assert names == {"conv", "former", "slow"}


def test_what_ran_out_of_time_gets_more_of_it() -> None:
    table = {**CLEAR, "slow": {"eager": 40.0, "openvino": "timeout", "inductor": 20.0}}
    found = study(study_run(table), limits=Limits(cell_s=100.0))
    assert found.refinement is not None
    asked = found.refinement.experiment
    assert asked["limits"]["cell"] == "200s"
    assert asked["compilers"] == ["openvino"]
    assert asked["measure"]["profile"] == "default"


def test_a_flip_is_looked_for_between_its_batches() -> None:
    run = Run(noise=0.002, rounds=8)
    session = run.session()
    times = {1: ("former", 3.0, 2.0), 16: ("conv", 2.0, 3.0)}
    for batch, (_, conv, former) in times.items():
        for name, eager, compiled in (("conv", 10.0, conv), ("former", 8.0, former)):
            add(run, session, name, "eager", batch=batch, value=eager)
            add(run, session, name, "openvino", batch=batch, value=compiled)
    found = study(run.summarise())
    assert [(flip.before_batch, flip.after_batch) for flip in found.flips] == [(1, 16)]
    assert found.refinement is not None
    assert found.refinement.experiment["batch_sizes"] == [1, 4, 16]
    assert [one.top for one in found.places[0].fastest] == [("former",), ("conv",)]


def test_one_archetype_has_nobody_to_lose_against() -> None:
    found = study(study_run({"conv": CLEAR["conv"]}))
    assert found.places[0].fastest[0].state == "alone"
    assert "only conv has a compiled result" in found.decision


def test_nothing_was_measured() -> None:
    found = study(Run())
    assert found.decision == "Nothing was measured."
    assert found.refinement is None


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_answer_is_plain_json(noise: float) -> None:
    found = study(study_run(CLEAR, noise=noise))
    text = json.dumps(found.to_json(), allow_nan=False)
    assert json.loads(text)["decision"] == found.decision
    assert finite(float("inf")) is None


def test_the_next_file_is_an_experiment_of_the_same_cells(tmp_path: Path) -> None:
    table = {**CLEAR, "former": {"eager": 8.0, "openvino": 2.02, "inductor": 3.5}}
    run = study_run(table, noise=0.05)
    found = study(run)
    path = write_refinement(tmp_path, found.refinement)
    assert path == tmp_path / "next.yaml"
    loaded = load_experiment(path)
    assert loaded.baseline == "eager"
    assert loaded.seed == 1
    sources = {Case.from_json(r["case"]).model.source for r in run.records}
    assert {entry.model for entry in loaded.models} <= sources
    assert f"ngb run {path} --out {tmp_path}" in path.read_text()
    assert write_refinement(tmp_path, None) is None
    assert not path.exists()


def test_the_unoptimised_graph_is_a_control_and_no_compiler() -> None:
    table = {
        name: {"eager": 10.0, "onnxruntime:level=none": fast, "openvino": slow}
        for name, fast, slow in (("conv", 1.0, 5.0), ("former", 1.5, 4.0))
    }
    found = study(study_run(table))
    (place,) = found.places
    assert place.fastest[0].top == ("former",)
    assert {gain.compiler for one in place.archetypes for gain in one.gains} == {"openvino"}
    assert {one.compilers for one in place.archetypes} == {1}
