from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from run_fixture import Run, model
from study_fixture import add

from ngraphbench.analysis.tables import Cell
from ngraphbench.errors import SpecError, StoreError
from ngraphbench.profiles import PROFILES
from ngraphbench.spec import build_experiment
from ngraphbench.studies.constraints import Check, Constraints, checks_of, state_of
from ngraphbench.studies.delivery import Asked, deliver
from ngraphbench.studies.deploy import Deployment, deploy, finalists
from ngraphbench.types import Json

MIB = 2**20
EMPTY: Any = ([], [], lambda path: None)


def around(value: float, half: float) -> Json:
    return {"estimate": value, "low": value - half, "high": value + half, "confidence": 0.95}


def paced(p99: Json | None = None, *, rate: float = 30.0, status: str = "ok", **more: Any) -> Json:
    return {
        "kind": "paced",
        "rate_per_s": rate,
        "in_flight": None,
        "status": status,
        "reason": "",
        "message": "",
        "note": "",
        "requests": 700 if p99 else 100,
        "launches": 3,
        "response_ms": {"p99": p99} if p99 else {},
        "service_ms": {},
        "missed_share": None,
        **more,
    }


def made(
    table: Mapping[str, float | str],
    *,
    batches: tuple[int, ...] = (1,),
    noise: float = 0.002,
    p99: Mapping[str, Json | None] | None = None,
    memory: Mapping[str, int] | None = None,
    **session: Any,
) -> Run:
    """Return a run of one model: ms per item (or a status) by candidate, as ``study_run``."""
    run = Run(PROFILES["default"], noise=noise, rounds=8)
    session_id = run.session(**session)
    for batch in batches:
        for label, value in table.items():
            add(run, session_id, "net", label, batch=batch, value=value)
            record = run.records[-1]
            if p99 and label in p99:
                record["blocks"] = [paced(p99[label])]
            if memory and label in memory:
                record["costs"]["peak_rss_bytes"] = memory[label] * MIB
    return run.summarise()


def decide(run: Run, constraints: Constraints | None = None, **more: Any) -> Deployment:
    return deploy(run.parts, run.parts, constraints or Constraints(), **more)


CLEAR = {"eager": 10.0, "onnxruntime": 4.0, "openvino": 2.0}


def test_the_fastest_that_passes_is_chosen() -> None:
    found = decide(made(CLEAR))
    assert found.outcome == "chosen"
    assert found.choice is not None and found.choice.label == "openvino"
    assert not found.rivals and not found.open
    assert "Deploy openvino, batch 1, fp32: 5.00x (4.98-5.02)" in found.decision
    assert {one.start for one in found.break_even} == {"cold", "warm"}
    assert found.costs["import_s"] == 1.8
    assert found.refinement is None
    assert [one.label for one in found.candidates] == ["openvino", "onnxruntime", "eager"]
    assert [one.label for one in found.candidates if one.baseline] == ["eager"]
    json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize(("other", "noise", "open_"), [(2.0, 0.0003, False), (2.02, 0.06, True)])
def test_rivals_that_cannot_be_told_apart_are_named(
    other: float, noise: float, open_: bool
) -> None:
    found = decide(made({**CLEAR, "onnxruntime": other}, noise=noise))
    assert found.choice is not None
    both = {found.choice.label, *(one.label for one in found.rivals)}
    assert both == {"openvino", "onnxruntime"}
    assert "Not to be told apart from it" in found.decision
    # A proven tie needs no further look; what is open does.
    assert (found.refinement is not None) == open_
    if found.refinement:
        assert found.refinement.experiment["measure"]["profile"] == "thorough"
        build_experiment(found.refinement.experiment)


def test_who_misses_a_constraint_is_told_by_how_much() -> None:
    p99 = {
        "openvino": around(41.0, 2.0),
        "onnxruntime": around(20.0, 2.0),
        "eager": around(25.0, 1.0),
    }
    found = decide(made(CLEAR, p99=p99), Constraints(p99_ms=33.0, rate_per_s=30.0))
    assert found.choice is not None and found.choice.label == "onnxruntime"
    told = {one.label: one for one in found.candidates}
    assert told["openvino"].state == "fails"
    assert told["openvino"].problems == ["p99 at 30/s 41 ms (39-43), limit 33 ms: 24 % over"]
    assert "p99 at 30/s 20 ms (18-22)" in found.decision


def test_an_interval_that_holds_the_limit_is_undecided_and_never_chosen() -> None:
    p99 = {"openvino": around(33.0, 2.0), "onnxruntime": None, "eager": around(50.0, 1.0)}
    wanted = Constraints(p99_ms=33.0, rate_per_s=30.0)
    found = decide(made(CLEAR, p99=p99), wanted)
    assert (found.outcome, found.choice) == ("undecided", None)
    assert found.decision.startswith("Undecided")
    assert {one.label: one.state for one in found.candidates} == {
        "openvino": "undecided",
        "onnxruntime": "undecided",
        "eager": "fails",
    }
    assert found.refinement is not None
    asked = found.refinement.experiment
    assert set(asked["compilers"]) == {"openvino", "onnxruntime"}
    assert asked["measure"]["rate"] == 30.0
    assert asked["measure"]["profile"] == "thorough"
    assert "100 calls, a p99 needs 662" in " ".join(found.refinement.reasons)


def test_a_doubtful_one_that_may_be_better_is_named_beside_the_choice() -> None:
    p99 = {"openvino": around(33.0, 2.0), "onnxruntime": around(20.0, 1.0)}
    found = decide(made(CLEAR, p99=p99), Constraints(p99_ms=33.0, rate_per_s=30.0))
    assert found.choice is not None and found.choice.label == "onnxruntime"
    assert [one.label for one in found.open] == ["openvino"]
    assert "a constraint is undecided: openvino" in found.decision
    assert found.refinement is not None


def test_nothing_satisfies_the_constraints() -> None:
    found = decide(made(CLEAR), Constraints(min_throughput_per_s=5000.0))
    assert (found.outcome, found.choice) == ("none", None)
    assert found.decision.startswith("Nothing satisfies the constraints")
    assert found.refinement is None
    assert all("short" in one.problems[0] for one in found.candidates)


def test_all_failed() -> None:
    found = decide(made({"eager": "failed", "onnxruntime": "crashed", "openvino": "wrong"}))
    assert found.outcome == "none"
    assert [one.problems for one in found.candidates if one.label == "openvino"] == [["wrong"]]


def test_what_is_wrong_partly_compiled_or_unstable_is_never_chosen() -> None:
    table = {"eager": 10.0, "a": "partly 0.1", "b": "unstable 0.1", "c": "wrong", "d": 5.0}
    found = decide(made(table))
    assert found.choice is not None and found.choice.label == "d"
    states = {one.label: one.state for one in found.candidates}
    assert (states["a"], states["b"], states["c"]) == ("fails", "undecided", "fails")
    assert found.refinement is not None
    assert found.refinement.experiment["compilers"] == ["b"]


def test_without_a_baseline_there_is_a_choice_and_no_speedup() -> None:
    found = decide(made({**CLEAR, "eager": "crashed"}))
    assert found.choice is not None
    assert found.choice.speedup is None
    assert "the baseline" not in found.decision
    assert all(one.calls is None and one.reason for one in found.break_even)


def test_the_baseline_may_be_the_one_to_deploy() -> None:
    found = decide(made({"eager": 1.0, "onnxruntime": 4.0}))
    assert found.choice is not None and found.choice.baseline
    assert not found.break_even


def test_a_session_that_failed_its_control_decides_nothing() -> None:
    found = decide(made(CLEAR, flags=[{"flag": "untrusted", "detail": "A/A"}]))
    assert (found.outcome, found.choice) == ("undecided", None)


def test_batch_sizes_compete_by_items_or_by_calls() -> None:
    run = made({"eager": 10.0, "openvino": 2.0}, batches=(1,))
    add(run, run.sessions[0]["session_id"], "net", "eager", batch=4, value=9.0)
    add(run, run.sessions[0]["session_id"], "net", "openvino", batch=4, value=1.5)
    run.summarise()
    by_items, by_calls = decide(run), decide(run, prefer="latency")
    assert by_items.choice is not None and by_items.choice.batch == 4
    assert by_calls.choice is not None and by_calls.choice.batch == 1


def test_who_was_not_confirmed_is_not_chosen() -> None:
    race, confirmed = made(CLEAR), made({"eager": 10.0, "onnxruntime": 4.0})
    found = deploy(race.parts, confirmed.parts, Constraints())
    assert found.choice is not None and found.choice.label == "onnxruntime"
    assert next(one for one in found.candidates if one.label == "openvino").state == "undecided"
    nobody = deploy(race.parts, EMPTY, Constraints())
    assert nobody.outcome == "undecided"
    assert nobody.refinement is not None


def test_finalists_are_those_that_may_win() -> None:
    run = made({**CLEAR, "a": 2.001, "b": "wrong", "c": "partly 0.1"}, memory={"openvino": 3000})
    names = {record["case_id"]: record["label"] for record in run.records}
    assert {names[key] for key in finalists(run.parts, Constraints())} == {"openvino", "a"}
    # Who surely misses a constraint keeps nobody out.
    tight = Constraints(max_memory_bytes=2000 * MIB)
    assert {names[key] for key in finalists(run.parts, tight)} == {"a"}
    assert finalists(run.parts, Constraints(p99_ms=0.1)) == []


def test_the_next_best_are_confirmed_while_nobody_may_be_chosen() -> None:
    table = {"onnxruntime": 4.0, "openvino": 2.0}
    race = made(table)
    wanted = Constraints(p99_ms=33.0, rate_per_s=30.0)
    slow, fast = (record["case_id"] for record in race.records)
    assert finalists(race.parts, wanted) == [fast]

    def after(p99: Json) -> list[str]:
        seen = made({"openvino": 2.0}, p99={"openvino": p99})
        return finalists(race.parts, wanted, confirmed=seen.parts, tried=[fast])

    assert after(around(85.0, 10.0)) == [slow]
    # Who keeps it may be chosen, and who is undecided may be after more samples.
    assert after(around(20.0, 5.0)) == after(around(33.0, 5.0)) == []
    # Where all were tried there is nobody left.
    seen = made(table, p99={label: around(85.0, 10.0) for label in table})
    assert finalists(race.parts, wanted, confirmed=seen.parts, tried=[fast, slow]) == []


def test_each_batch_size_has_its_finalists() -> None:
    run = made(CLEAR, batches=(1, 8))
    assert len(finalists(run.parts, Constraints())) == 2


def cell(**changes: Any) -> Cell:
    run = Run(PROFILES["default"], rounds=6)
    record = run.cell(run.session(), model("net"), "openvino", 1, ms=20.0, **changes)
    run.summarise()
    return Cell(record)


def verdict(found: tuple[Check, ...], name: str) -> str:
    return next(check.verdict for check in found if check.name == name)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (paced(around(30.0, 2.0)), "pass"),
        (paced(around(40.0, 2.0)), "fail"),
        (paced(around(33.0, 1.0)), "undecided"),
        (paced(None), "undecided"),
        (paced(None, status="overloaded"), "fail"),
        (paced(None, status="skipped", message="no time left"), "undecided"),
    ],
)
def test_a_p99_at_a_rate(block: Json, expected: str) -> None:
    found = checks_of(cell(blocks=[block]), Constraints(p99_ms=33.0, rate_per_s=30.0))
    assert verdict(found, "p99") == expected
    assert verdict(checks_of(cell(), Constraints(p99_ms=33.0, rate_per_s=30.0)), "p99") == (
        "undecided"
    )
    assert verdict(checks_of(cell(), Constraints(p99_ms=10.0)), "p99") == "fail"


@pytest.mark.parametrize(
    ("rate", "blocks", "expected"),
    [
        (30.0, [paced(None)], "pass"),
        (30.0, [paced(None, status="overloaded", missed_share=around(0.9, 0.1))], "fail"),
        (30.0, [paced(None, status="failed", message="it died")], "undecided"),
        (30.0, [], "undecided"),
        (30.0, [paced(None, rate=10.0)], "undecided"),
        (60.0, [], "fail"),
    ],
)
def test_a_rate(rate: float, blocks: list[Json], expected: str) -> None:
    found = checks_of(cell(blocks=blocks), Constraints(rate_per_s=rate))
    assert verdict(found, "rate") == expected


@pytest.mark.parametrize(
    ("limit", "expected"), [(45.0, "pass"), (50.0, "undecided"), (60.0, "fail")]
)
def test_a_throughput(limit: float, expected: str) -> None:
    found = checks_of(cell(), Constraints(min_throughput_per_s=limit))
    assert verdict(found, "throughput") == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(600, "pass"), (520, "undecided"), (500, "undecided"), (400, "fail")],
)
def test_memory_near_its_limit_is_open(limit: int, expected: str) -> None:
    found = checks_of(cell(), Constraints(max_memory_bytes=limit * MIB))
    assert verdict(found, "memory") == expected


def test_tolerance_and_outputs() -> None:
    tight = Constraints(tolerance=1e-7)
    assert verdict(checks_of(cell(), Constraints(tolerance=1e-3)), "tolerance") == "pass"
    (missed,) = (one for one in checks_of(cell(), tight) if one.name == "tolerance")
    assert (missed.verdict, "8.4 times" in missed.text) == ("fail", True)
    doubtful = checks_of(cell(status="unverifiable", verification=None), Constraints(tolerance=1))
    assert [one.verdict for one in doubtful] == ["undecided", "undecided"]
    assert state_of(doubtful) == "undecided"


@pytest.mark.parametrize(
    ("metric", "value", "drop", "expected"),
    [
        ("top1", 0.80, None, "pass"),
        ("top1", 0.795, None, "pass"),
        ("top1", 0.70, None, "fail"),
        ("top1", 0.90, None, "pass"),
        ("mine:loss", 0.90, None, "fail"),
        ("mine:loss", 0.81, 0.02, "pass"),
        ("top1", None, None, "undecided"),
    ],
)
def test_the_task_metric_decides(
    metric: str, value: float | None, drop: float | None, expected: str
) -> None:
    told = {"metric": metric, "value": value, "reference": 0.80, "items": 100, "problem": ""}
    found = checks_of(
        cell(status="unverifiable", verification={"rel_l2": None, "eval": told}),
        Constraints(max_drop=drop),
    )
    assert verdict(found, "eval") == expected
    assert verdict(found, "outputs") == ("undecided" if value is None else "pass")


def test_what_was_asked_is_kept(tmp_path: Path) -> None:
    asked = Asked(Constraints(p99_ms=33.0, max_memory_bytes=MIB), "latency", "/somewhere")
    asked.write(tmp_path)
    assert Asked.read(tmp_path) == asked
    with pytest.raises(StoreError, match="not the folder of a deployment study"):
        Asked.read(tmp_path / "elsewhere")


def test_what_is_handed_over(tmp_path: Path) -> None:
    record = made(CLEAR).records[2]
    kept = tmp_path / "confirm" / "artifacts" / record["session_id"] / record["case_id"][:16]
    kept.mkdir(parents=True)
    (kept / "program.bin").write_bytes(b"\1")
    record["costs"] |= {"artifact_load_s": 0.5, "artifact_bytes": 1}
    found = deliver(tmp_path, record, base="/some where", baseline="eager")
    assert (found.load_s, found.artefact_bytes, found.lack) == (0.5, 1, "")
    assert found.artefact is not None and (found.artefact / "program.bin").read_bytes() == b"\1"
    assert found.script is not None
    text = found.script.read_text()
    assert "cd '/some where' ||" in text
    assert f'exec {record["command"]} --baseline eager "$@"' in text
    # What saves none is said so, and an earlier choice does not stay.
    other = deliver(tmp_path, made(CLEAR).records[1], base="/", baseline="eager")
    assert other.artefact is None and "saves no artefact" in other.lack
    assert deliver(tmp_path, None, base="/", baseline="").script is None
    assert not (tmp_path / "reproduce.sh").exists()


def test_precisions_may_stand_in_one_session() -> None:
    data = {"name": "x", "models": ["m.onnx"], "compilers": ["openvino"]}
    both = build_experiment({**data, "interleave": ["compiler", "batch", "precision"]})
    assert both.interleave[-1] == "precision"
    with pytest.raises(SpecError):
        build_experiment({**data, "interleave": ["compiler", "size"]})
