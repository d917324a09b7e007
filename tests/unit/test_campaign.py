"""A campaign over a fake engine: what is run, kept, retried, split and resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ngraphbench.agent import spool_folder
from ngraphbench.campaign import Campaign, skip_record
from ngraphbench.case import Case, CompilerRef, Limits, ModelRef, Session
from ngraphbench.engines.base import Interrupted
from ngraphbench.errors import ClusterError
from ngraphbench.plan import Plan
from ngraphbench.profiles import PROFILES
from ngraphbench.store.rundir import RunDir
from ngraphbench.types import Device, Json


def case(compiler: str, batch: int = 1) -> Case:
    return Case(
        model=ModelRef(source="m.onnx", label="m", kind="onnx", content="c" * 64),
        compiler=CompilerRef(name=compiler, target=f"x:{compiler}"),
        device=Device(threads=2),
        batch=batch,
        label=compiler,
    )


def session(*cases: Case) -> Session:
    return Session(cases=cases, baseline="eager", profile=PROFILES["quick"], limits=Limits())


class FakeEngine:
    """Answers sessions from ``statuses``; remembers what it was asked."""

    def __init__(self, statuses: dict[str, str] | None = None) -> None:
        self.statuses = statuses or {}
        self.asked: list[list[str]] = []
        self.deferred: list[list[str]] = []
        self.failing: list[Exception] = []
        self.interrupts = 0

    def devices(self) -> Json:
        return {"local": {"threads": 2}}

    def submit(self, wanted: Session, run: Path, emit: Callable[[Json], None]) -> Json:
        self.asked.append([c.label for c in wanted.cases])
        if self.failing:
            raise self.failing.pop(0)
        spool = spool_folder(run, wanted)
        (spool / "samples").mkdir(parents=True, exist_ok=True)
        (spool / "samples" / "x.csv").write_text("epoch\n")
        later = self.deferred.pop(0) if self.deferred else []
        records = [self.record(c, wanted) for c in wanted.cases if c.label not in later]
        done = [r["case_id"] for r in records]
        records.append(session_record(wanted, done))
        ids = [c.case_id for c in wanted.cases if c.label in later]
        return {"finished": True, "records": records, "deferred": ids}

    def interrupt(self) -> None:
        self.interrupts += 1

    def record(self, wanted: Case, of: Session) -> Json:
        status = self.statuses.get(wanted.label, "ok")
        made = skip_record(wanted, status, "", "")
        return {**made, "session_id": of.session_id, "stage": "measure"}


def session_record(of: Session, cases: list[str]) -> Json:
    return {
        "schema_version": 1,
        "kind": "session",
        "session_id": of.session_id,
        "profile": of.profile.to_json(),
        "mode": of.method.mode,
        "seed": of.seed,
        "attempt": of.attempt,
        "baseline": of.baseline,
        "fingerprint": of.fingerprint,
        "cases": cases,
    }


def campaign(path: Path, engine: FakeEngine, plan: Plan, **more: Any) -> Campaign:
    emit = more.pop("emit", lambda event: None)
    return Campaign(plan, RunDir.open(path, create=True), engine, emit, **more)


PLAN = Plan("p", (session(case("eager"), case("ort")), session(case("eager", 8), case("ort", 8))))


def test_every_session_is_run_and_its_files_come_home(tmp_path: Path):
    engine = FakeEngine()
    campaign(tmp_path, engine, PLAN).run()
    assert engine.asked == [["eager", "ort"]] * 2
    directory = RunDir.open(tmp_path)
    assert len(directory.latest()) == 4
    for planned in PLAN.sessions:
        assert (tmp_path / "samples" / planned.session_id / "x.csv").exists()
        assert not spool_folder(tmp_path, planned).exists()


def test_a_second_run_measures_nothing_and_says_what_it_kept(tmp_path: Path):
    campaign(tmp_path, FakeEngine(), PLAN).run()
    engine = FakeEngine()
    again = campaign(tmp_path, engine, PLAN)
    again.run()
    assert engine.asked == []
    assert again.kept == 4


def test_another_baseline_is_another_session(tmp_path: Path):
    campaign(tmp_path, FakeEngine(), PLAN).run()
    engine = FakeEngine()
    other = tuple(replace(planned, baseline="ort") for planned in PLAN.sessions)
    campaign(tmp_path, engine, Plan("p", other)).run()
    assert engine.asked == [["eager", "ort"]] * 2


def test_an_interrupt_keeps_finished_sessions_and_the_rest_is_run_later(tmp_path: Path):
    engine = FakeEngine()
    first = campaign(tmp_path, engine, PLAN)
    submit = engine.submit

    def second_is_interrupted(*args: Any) -> Json:
        if engine.asked:
            raise Interrupted
        return submit(*args)

    engine.submit = second_is_interrupted
    with pytest.raises(Interrupted):
        first.run()
    assert len(RunDir.open(tmp_path).latest()) == 2
    later = FakeEngine()
    campaign(tmp_path, later, PLAN).run()
    assert later.asked == [["eager", "ort"]]


def test_retry_measures_the_named_statuses_again_beside_their_baseline(tmp_path: Path):
    plan = Plan("p", (session(case("eager"), case("ort"), case("ov")),))
    campaign(tmp_path, FakeEngine({"ort": "crashed"}), plan).run()
    engine = FakeEngine()
    campaign(tmp_path, engine, plan, retry=["crashed"]).run()
    assert engine.asked == [["eager", "ort"]]
    statuses = {r["label"]: r["status"] for r in RunDir.open(tmp_path).latest()}
    assert statuses == {"eager": "ok", "ort": "ok", "ov": "ok"}
    assert sorted(r["attempt"] for r in RunDir.open(tmp_path).sessions()) == [0, 1]


def test_a_baseline_is_retried_with_all_that_it_is_compared_with(tmp_path: Path):
    plan = Plan("p", (session(case("eager"), case("ort"), case("eager", 8), case("ort", 8)),))
    campaign(tmp_path, FakeEngine({"eager": "crashed"}), plan).run()
    engine = FakeEngine()
    campaign(tmp_path, engine, plan, retry=["crashed"]).run()
    assert engine.asked == [["eager", "ort", "eager", "ort"]]


def test_retries_go_along_with_cells_that_are_new(tmp_path: Path):
    first = Plan("p", (session(case("eager"), case("ort"), case("ov")),))
    campaign(tmp_path, FakeEngine({"ort": "crashed"}), first).run()
    grown = Plan("p", (session(case("eager"), case("ort"), case("ov"), case("new")),))
    engine = FakeEngine()
    again = campaign(tmp_path, engine, grown, retry=["crashed"])
    again.run()
    assert engine.asked == [["eager", "ort", "new"]]
    assert again.kept == 2


def test_what_had_no_memory_is_measured_in_a_part_with_its_baseline(tmp_path: Path):
    plan = Plan("p", (session(case("eager"), case("a"), case("b"), case("c")),))
    engine = FakeEngine()
    engine.deferred = [["b", "c"]]
    told: list[Json] = []
    campaign(tmp_path, engine, plan, emit=told.append).run()
    assert engine.asked == [["eager", "a", "b", "c"], ["eager", "b", "c"]]
    (note,) = (event["text"] for event in told if event["event"] == "note")
    assert note.startswith("Memory holds 2 of 4 programs at once: the other 2 are measured")
    assert len(RunDir.open(tmp_path).latest()) == 4


def test_a_part_that_never_fits_ends_in_records(tmp_path: Path):
    plan = Plan("p", (session(case("eager"), case("a"), case("b")),))
    engine = FakeEngine()
    engine.deferred = [["b"]] * 5
    campaign(tmp_path, engine, plan).run()
    assert engine.asked == [["eager", "a", "b"], ["eager", "b"]]
    found = {r["label"]: (r["status"], r["reason"]) for r in RunDir.open(tmp_path).latest()}
    assert found["b"] == ("skipped", "memory")


def test_a_dead_agent_is_tried_once_more(tmp_path: Path):
    engine = FakeEngine()
    engine.failing = [ClusterError("gone")]
    campaign(tmp_path, engine, PLAN).run()
    assert len(engine.asked) == 3
    engine.failing = [ClusterError("gone"), ClusterError("gone")]
    other = Plan("p", (session(case("eager", 4)),))
    with pytest.raises(ClusterError):
        campaign(tmp_path, engine, other).run()


def test_cells_left_out_by_the_plan_get_a_record_once(tmp_path: Path):
    plan = Plan("p", (session(case("eager")),), ((case("tvm"), "unsupported", "form", "no"),))
    for _ in range(2):
        campaign(tmp_path, FakeEngine(), plan).run()
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert [r["status"] for r in lines if r["kind"] == "case"] == ["unsupported", "ok"]
