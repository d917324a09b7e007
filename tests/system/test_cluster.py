"""A standing fleet on loopback: three agents, one client, and everything that may die of them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from clusters import Fleet
from fake_runs import campaign, compiler, small_profile
from fleet_runs import check_once, client, fleet_plan, make_engine, run_fleet, spans
from processes import processes_of, wait_until

from ngraphbench.campaign import Arrivals, Campaign
from ngraphbench.plan import Plan
from ngraphbench.store.rundir import RunDir
from ngraphbench.types import Json

pytest.importorskip("distributed", reason="needs the extra cluster")
pytest.importorskip("cryptography", reason="needs the extra cluster")
pytestmark = pytest.mark.slow

NAMES = ("a", "b", "c")
DIRTY = [compiler(), compiler(fault="dirty")]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("fleet"), NAMES)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(autouse=True)
def clean(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test does, its sessions leave no file and no process on any device."""
    monkeypatch.setenv("NGRAPHBENCH_LOCK", str(fleet.folder / "client.lock"))
    before = set(dirt())
    yield
    assert wait_until(lambda: not left(fleet, before)), left(fleet, before)


def dirt() -> list[str]:
    places = [Path("/tmp"), Path("/dev/shm")]
    return [str(path) for place in places for path in place.glob("ngb-dirt-*")]


def left(fleet: Fleet, before: set[str]) -> list[str]:
    """What is on the devices beside agents, scheduler and the files sent to them."""
    found = [path for path in dirt() if path not in before]
    found += [str(path) for path in fleet.folder.glob("tmp-*/ngb-dirt-*")]
    found += [str(path) for path in fleet.folder.glob("root-*/private/*")]
    found += [str(path) for path in fleet.folder.glob("root-*/runs/*/spool/*/work")]
    known = {process.pid for process in fleet.processes.values()}
    below = processes_of(fleet.folder)
    return found + [f"{pid} {what}" for pid, what in below.items() if pid not in known]


def events(running: subprocess.Popen[str]) -> Iterator[Json]:
    assert running.stdout is not None
    for line in running.stdout:
        yield json.loads(line)


def finish(running: subprocess.Popen[str]) -> None:
    for _ in events(running):
        pass
    assert running.wait(120) == 0
    assert running.stdout is not None
    running.stdout.close()


def test_three_devices_work_in_parallel_and_give_what_the_local_engine_gives(
    fleet: Fleet, tmp_path: Path
) -> None:
    plan = fleet_plan(tmp_path, NAMES, sessions=8, compilers=[compiler(work_us=50)])
    run_fleet(tmp_path / "run", plan, fleet.described)
    records = check_once(tmp_path / "run", plan)
    found = spans(tmp_path / "run")
    assert {name: len(each) for name, each in found.items()} == dict.fromkeys(NAMES, 8)
    for each in found.values():
        assert all(end <= begin for (_, end), (begin, _) in pairwise(each))
    assert max(each[0][0] for each in found.values()) <= min(e[0][1] for e in found.values())
    local = fleet_plan(tmp_path, ["local"], compilers=[compiler(work_us=50)])
    campaign(tmp_path / "local", local).run()
    ours, here = RunDir.open(tmp_path / "local").latest()[0], RunDir.open(tmp_path / "local")
    for record in records:
        assert set(record) == set(ours)
        for key in ("summary", "costs", "verification", "environment", "measurement"):
            assert set(record[key]) == set(ours[key]), key
        assert (tmp_path / "run" / record["measurement"]["samples"]).exists()
        # The agents' own variables are those of a nanny: see clusters.
        assert record["environment"]["variables"]["OMP_NUM_THREADS"] == "2"
        assert "MALLOC_TRIM_THRESHOLD_" not in record["environment"]["variables"]
    for record in RunDir.open(tmp_path / "run").sessions():
        assert set(record) == set(here.sessions()[0])
        assert set(record["host"]) == set(here.sessions()[0]["host"])
        assert record["canaries"]["compute"]["median_ns"] > 0


def test_an_agent_killed_at_each_stage_loses_and_leaves_nothing(
    fleet: Fleet, tmp_path: Path
) -> None:
    slow = [compiler(compile_ms=300, fault="dirty")]
    profile = small_profile(rounds=12, slot_ms=20)
    plan = fleet_plan(tmp_path, ["a"], sessions=5, compilers=slow, profile=profile)
    running = client(tmp_path / "run", plan, {**fleet.described, "texts": ["a"]})
    stages = iter(
        [
            ("provision", lambda e: e.get("phase") == "export"),
            ("compile", lambda e: e.get("phase") == "compile"),
            ("measure", lambda e: e["event"] == "round"),
            ("report", lambda e: e["event"] == "epoch_done"),
            ("teardown", lambda e: e["event"] == "epoch_done"),
        ]
    )
    stage, is_reached = next(stages)
    session = killed = 0
    for event in events(running):
        session += event["event"] == "session"
        # A stage for each session, so that none is met twice.
        if killed < session and is_reached(event):
            if stage == "teardown":
                assert wait_until(lambda: [*fleet.root("a").glob("runs/*/spool/*/records.jsonl")])
            fleet.kill("agent-a")
            fleet.start_agent("a")
            killed += 1
            stage, is_reached = next(stages, ("", lambda e: False))
    finish(running)
    assert killed == 5, f"{stage} was not reached"
    check_once(tmp_path / "run", plan)


def test_a_killed_client_is_resumed_and_the_measurement_went_on_meanwhile(
    fleet: Fleet, tmp_path: Path
) -> None:
    profile = small_profile(rounds=30, slot_ms=20)
    plan = fleet_plan(tmp_path, ["a"], compilers=DIRTY, profile=profile)
    running = client(tmp_path / "run", plan, fleet.described)
    for event in events(running):
        if event["event"] == "round":
            break
    running.send_signal(signal.SIGKILL)
    running.wait()
    spools = fleet.root("a").glob("runs/*/spool/*")
    (spool,) = spools
    assert wait_until((spool / "records.jsonl").exists)
    told: list[Json] = []
    run_fleet(tmp_path / "run", plan, fleet.described, told.append)
    check_once(tmp_path / "run", plan)
    first = next(e for e in told if e["event"] in ("round", "record"))
    assert first["event"] == "record", "what was measured already was measured again"


def test_a_scheduler_killed_in_a_session_is_gone_on_with(fleet: Fleet, tmp_path: Path) -> None:
    profile = small_profile(rounds=30, slot_ms=20)
    plan = fleet_plan(tmp_path, ["a", "b"], compilers=[compiler()], profile=profile)
    running = client(tmp_path / "run", plan, fleet.described)
    for event in events(running):
        if event["event"] == "round":
            break
    fleet.kill("scheduler")
    fleet.start_scheduler()
    finish(running)
    records = check_once(tmp_path / "run", plan)
    assert {r["attempt"] for r in RunDir.open(tmp_path / "run").sessions()} == {0}
    assert len(records) == 2
    assert wait_until(lambda: set(connected(fleet)) == set(NAMES), 90)


def connected(fleet: Fleet) -> frozenset[str]:
    from ngraphbench.engines.daskcluster import DaskCluster

    cluster = DaskCluster(fleet.address, fleet.certificates / "client")
    try:
        return cluster.names()
    finally:
        cluster.close()


def test_a_link_cut_for_a_while_is_gone_on_with(fleet: Fleet, tmp_path: Path) -> None:
    profile = small_profile(rounds=30, slot_ms=20)
    plan = fleet_plan(tmp_path, ["a"], compilers=[compiler()], profile=profile)
    running = client(tmp_path / "run", plan, fleet.described)
    scheduler = fleet.processes["scheduler"]
    for event in events(running):
        if event["event"] == "round":
            break
    # Nothing passes through a scheduler that stands still; seconds stand for a minute here.
    scheduler.send_signal(signal.SIGSTOP)
    assert not wait_until(lambda: running.poll() is not None, 5)
    scheduler.send_signal(signal.SIGCONT)
    finish(running)
    check_once(tmp_path / "run", plan)


def test_a_device_gone_for_good_becomes_records_and_the_rest_finishes(
    fleet: Fleet, tmp_path: Path
) -> None:
    plan = fleet_plan(tmp_path, ["b", "c"], compilers=[compiler()])
    fleet.kill("agent-c")
    try:
        described = {**fleet.described, "patience": {"lost_s": 3.0}}
        run_fleet(tmp_path / "run", plan, described)
    finally:
        fleet.start_agent("c")
    records = check_once(tmp_path / "run", plan, status=None)
    found = {(r["case"]["device"]["name"], r["status"]) for r in records}
    assert found == {("b", "ok"), ("c", "unavailable")}
    joins_late(fleet, tmp_path, "c")


def joins_late(fleet: Fleet, folder: Path, name: str) -> None:
    """Run a plan of nothing while a device starts: it joins, and its cells are measured."""
    plan = fleet_plan(folder, [name], compilers=[compiler()])
    engine = make_engine(fleet.described)
    told: list[Json] = []

    def look(device: str) -> Plan | None:
        return plan if engine.look(device) is not None else None

    directory = RunDir.open(folder / "late", create=True)
    try:
        with directory.lock():
            arrivals = Arrivals((name,), look, patience_s=90)
            Campaign(Plan("late", ()), directory, engine, told.append, arrivals=arrivals).run()
    finally:
        engine.close()
    check_once(folder / "late", plan)
    assert any(event.get("text") == f"{name} has joined" for event in told)


def test_a_session_that_crashes_its_agent_becomes_records(fleet: Fleet, tmp_path: Path) -> None:
    bad = fleet_plan(tmp_path, ["a"], compilers=[compiler(fault="kill-agent")])
    good = fleet_plan(tmp_path, ["a"], compilers=[compiler()])
    plan = Plan("fleet", (*bad.sessions, *good.sessions))
    run_fleet(tmp_path / "run", plan, fleet.described)
    records = check_once(tmp_path / "run", plan, status=None)
    assert [r["status"] for r in records] == ["unavailable", "ok"]
    assert records[0]["reason"] == "agent"
    assert fleet.processes["agent-a"].poll() is None


def test_an_interrupt_stops_the_device_and_a_resume_finishes(fleet: Fleet, tmp_path: Path) -> None:
    profile = small_profile(epochs=2, rounds=30, slot_ms=20)
    plan = fleet_plan(tmp_path, ["b"], compilers=[compiler()], profile=profile)
    running = client(tmp_path / "run", plan, fleet.described)
    for event in events(running):
        if event["event"] == "round":
            running.send_signal(signal.SIGINT)
            break
    assert running.wait(60) == 130
    run_fleet(tmp_path / "run", plan, fleet.described)
    check_once(tmp_path / "run", plan)


def test_what_was_sent_once_is_not_sent_again(fleet: Fleet, tmp_path: Path) -> None:
    engine = make_engine(fleet.described)
    sent: list[Json] = []
    try:
        plan = fleet_plan(tmp_path, ["b"], sessions=2, compilers=[compiler()])
        for number, session in enumerate(plan.sessions):
            again = session.retry(session.cases, 7)
            for one in (session, again) if number else (session,):
                sent.clear()
                engine.submit(one, (tmp_path / "run"), sent.append)
        assert not [event for event in sent if event.get("phase") == "send"]
    finally:
        engine.close()
