"""A campaign over several devices: parallel, serial on each, and what happens when some fail."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fleet_fixture import FleetOfFakes, fleet_plan, fleet_session

from ngraphbench.campaign import Arrivals, Campaign
from ngraphbench.case import Session
from ngraphbench.dispatch import Dispatch, Policy
from ngraphbench.engines.base import DeviceLost, Interrupted
from ngraphbench.errors import ClusterError
from ngraphbench.plan import Plan
from ngraphbench.store.rundir import RunDir
from ngraphbench.types import Json

DEVICES = ("a", "b", "c")


def run(path: Path, engine: FleetOfFakes, plan: Plan, **more: Any) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    Campaign(plan, RunDir.open(path, create=True), engine, events.append, **more).run()
    return events


def statuses(path: Path) -> Counter[tuple[str, str]]:
    """Count cells by device and status; every cell must have one record that counts."""
    records = RunDir.open(path).records()
    lines = Counter(r["case_id"] for r in records if r["kind"] == "case")
    assert set(lines.values()) == {1}, "a cell was recorded more than once"
    return Counter((r["case"]["device"]["name"], r["status"]) for r in RunDir.open(path).latest())


def test_devices_work_in_parallel_and_never_twice_at_once(tmp_path: Path) -> None:
    engine = FleetOfFakes(takes_s=0.01)
    meeting = threading.Barrier(len(DEVICES), timeout=60)

    def meet(session: Session) -> None:
        # None of the first sessions ends before all have begun.
        if session.cases[0].batch == 1:
            meeting.wait()

    engine.faults.update(dict.fromkeys(DEVICES, meet))
    run(tmp_path, engine, fleet_plan(DEVICES, 4))
    for name in DEVICES:
        spans = engine.spans[name]
        assert len(spans) == 4
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
        assert engine.asked[name] == [1, 2, 3, 4]
    first = [engine.spans[name][0] for name in DEVICES]
    assert max(begin for begin, _ in first) < min(end for _, end in first)
    assert statuses(tmp_path) == {(name, "ok"): 8 for name in DEVICES}


def test_progress_is_told_per_device(tmp_path: Path) -> None:
    events = run(tmp_path, FleetOfFakes(), fleet_plan(DEVICES, 2))
    told = [(e["device"], e["index"], e["of"]) for e in events if e["event"] == "session"]
    assert sorted(told) == [(name, n, 2) for name in DEVICES for n in (1, 2)]
    assert {e["device"] for e in events if e["event"] == "round"} == set(DEVICES)


def test_a_device_that_keeps_failing_is_quarantined_and_the_rest_finishes(tmp_path: Path) -> None:
    engine = FleetOfFakes()
    engine.faults["b"] = lambda session: ClusterError("The agent died.", reason="agent")
    policy = Policy(tries=2, quarantine_after=3)
    events = run(tmp_path, engine, fleet_plan(DEVICES, 5), policy=policy)
    assert engine.asked["b"] == [1, 1, 2, 2, 3, 3]
    found = statuses(tmp_path)
    assert found == {("a", "ok"): 10, ("c", "ok"): 10, ("b", "unavailable"): 10}
    assert any("b gets no more sessions" in e.get("text", "") for e in events)


def test_one_poisonous_session_does_not_take_its_device_along(tmp_path: Path) -> None:
    engine = FleetOfFakes()
    engine.faults["b"] = lambda s: ClusterError("died") if s.cases[0].batch == 2 else None
    run(tmp_path, engine, fleet_plan(DEVICES, 5))
    assert statuses(tmp_path)["b", "unavailable"] == 2
    assert statuses(tmp_path)["b", "ok"] == 8


def test_a_lost_device_gets_nothing_more_and_a_resume_goes_on_with_it(tmp_path: Path) -> None:
    engine = FleetOfFakes()
    engine.faults["b"] = lambda s: DeviceLost("b is gone.") if s.cases[0].batch > 1 else None
    plan = fleet_plan(DEVICES, 3)
    run(tmp_path, engine, plan)
    assert engine.asked["b"] == [1, 2]
    assert statuses(tmp_path)["b", "unavailable"] == 4
    again = FleetOfFakes()
    run(tmp_path, again, plan)
    assert dict(again.asked) == {"b": [2, 3]}
    latest = RunDir.open(tmp_path).latest()
    assert {r["status"] for r in latest} == {"ok"}
    assert len(latest) == 18


def test_a_device_that_joins_late_gets_its_sessions(tmp_path: Path) -> None:
    looks: list[str] = []

    def look(name: str) -> Plan | None:
        looks.append(name)
        return fleet_plan([name], 2) if name == "late" else None

    engine = FleetOfFakes()
    arrivals = Arrivals(("late", "never"), look, patience_s=1.2)
    events = run(tmp_path, engine, fleet_plan(["a"], 1), arrivals=arrivals)
    assert statuses(tmp_path) == {("a", "ok"): 2, ("late", "ok"): 4}
    assert any(e.get("text") == "late has joined" for e in events)
    assert looks.count("never") > 1


def test_late_devices_are_looked_for_while_others_talk(tmp_path: Path) -> None:
    joined = threading.Event()
    busy: list[bool] = []

    class Talkative(FleetOfFakes):
        def submit(self, session: Session, run: Path, emit: Callable[[Json], None]) -> Json:
            if session.device.name == "a":
                busy.append(True)
                for number in range(1000):
                    emit({"event": "round", "round": number})
                    if joined.wait(0.01):
                        break
                busy.append(False)
            return super().submit(session, run, emit)

    seen: list[bool] = []

    def look(name: str) -> Plan | None:
        seen.append(busy[-1])
        joined.set()
        return fleet_plan([name], 1)

    run(tmp_path, Talkative(), fleet_plan(["a"], 1), arrivals=Arrivals(("late",), look, 60.0))
    assert seen == [True]
    assert statuses(tmp_path) == {("a", "ok"): 2, ("late", "ok"): 2}


def test_an_interrupt_stops_all_devices_and_begins_nothing_more(tmp_path: Path) -> None:
    engine = FleetOfFakes()
    plan = fleet_plan(DEVICES, 3)
    engine.faults["a"] = lambda session: Interrupted()
    with pytest.raises(Interrupted):
        run(tmp_path, engine, plan)
    assert engine.asked["a"] == [1]
    later = FleetOfFakes()
    run(tmp_path, later, plan)
    assert statuses(tmp_path) == {(name, "ok"): 6 for name in DEVICES}
    assert later.asked["a"] == [1, 2, 3]


def test_a_fault_of_the_tool_ends_every_device(tmp_path: Path) -> None:
    engine = FleetOfFakes(takes_s=30)

    def broken(session: Any) -> Exception:
        return ValueError("a fault of the tool")

    engine.faults["b"] = broken
    submit = engine.submit

    def at_once(session: Any, *args: Any) -> Any:
        if session.device.name == "b":
            raise broken(session)
        return submit(session, *args)

    engine.submit = at_once  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="fault of the tool"):
        run(tmp_path, engine, fleet_plan(DEVICES, 1))
    assert engine.interrupts >= 3


def test_dispatch_hands_out_one_job_per_device() -> None:
    dispatch = Dispatch()
    dispatch.add([fleet_session("a", 1), fleet_session("a", 2), fleet_session("b", 1)])
    assert [job.device for job in dispatch.begin()] == ["a", "b"]
    assert dispatch.begin() == []
    dispatch.finish("a")
    assert [job.session.cases[0].batch for job in dispatch.begin()] == [2]
    assert dispatch.place("a") == (1, 2)
