"""A standing fleet on loopback: three agents, one client, and everything that may die of them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from clusters import Fleet
from command_line import start
from fake_runs import compiler, small_profile
from fleet_runs import (
    check_alike,
    check_once,
    client,
    events,
    finish,
    fleet_plan,
    make_engine,
    most_at_once,
    run_fleet,
    spans,
)
from processes import dirt, processes_of, wait_until
from steady import as_steady

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


def left(fleet: Fleet, before: set[str]) -> list[str]:
    """What is on the devices beside agents, scheduler and the files sent to them."""
    found = [path for path in dirt() if path not in before]
    found += [str(path) for path in fleet.folder.glob("tmp-*/ngb-dirt-*")]
    found += [str(path) for path in fleet.folder.glob("root-*/private/*")]
    found += [str(path) for path in fleet.folder.glob("root-*/runs/*/spool/*/work")]
    known = {process.pid for process in fleet.processes.values()}
    below = processes_of(fleet.folder)
    return found + [f"{pid} {what}" for pid, what in below.items() if pid not in known]


def test_three_devices_work_in_parallel_and_give_what_the_local_engine_gives(
    fleet: Fleet, tmp_path: Path
) -> None:
    plan = fleet_plan(tmp_path, NAMES, sessions=8, compilers=[compiler(work_us=50)])
    run_fleet(tmp_path / "run", plan, fleet.described)
    records = check_once(tmp_path / "run", plan)
    found = spans(tmp_path / "run")
    assert {name: len(each) for name, each in found.items()} == dict.fromkeys(NAMES, 8)
    for each in found.values():
        assert all(end <= begin for (_, end), (begin, _) in pairwise(each)), each
    assert most_at_once(found) == len(NAMES), found
    sessions = RunDir.open(tmp_path / "run").sessions()
    check_alike([*records, *sessions], tmp_path)
    assert all((tmp_path / "run" / r["measurement"]["samples"]).exists() for r in records)
    assert all(record["canaries"]["compute"]["median_ns"] > 0 for record in sessions)


def test_an_agent_killed_at_each_stage_loses_and_leaves_nothing(
    fleet: Fleet, tmp_path: Path
) -> None:
    slow = [compiler(compile_ms=300, fault="dirty")]
    profile = small_profile(rounds=12, slot_ms=20)
    plan = fleet_plan(tmp_path, ["a"], sessions=5, compilers=slow, profile=profile)
    running = client(tmp_path / "run", plan, {**fleet.described, "texts": ["a"]})
    stages = iter(
        [
            # Models are exported by the client; a device is provided with their files.
            ("provision", lambda e: e.get("phase") == "send"),
            ("compile", lambda e: e.get("phase") == "compile"),
            ("measure", lambda e: e["event"] == "round"),
            ("report", lambda e: e["event"] == "epoch_done"),
            ("teardown", lambda e: e["event"] == "epoch_done"),
        ]
    )
    stage, is_reached = next(stages)
    session = killed = 0
    for event in events(running):
        if event["event"] == "session":
            # A session that is tried again is the same one.
            session = event["index"]
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
    # As a minute is longer than what a client waits for an answer, so are seconds here.
    short = {"connect_s": 1.5, "patience": {"answer_s": 2.0}}
    running = client(tmp_path / "run", plan, {**fleet.described, **short})
    scheduler = fleet.processes["scheduler"]
    heard = events(running)
    for event in heard:
        if event["event"] == "round":
            break
    # Nothing passes through a scheduler that stands still.
    scheduler.send_signal(signal.SIGSTOP)
    assert not wait_until(lambda: running.poll() is not None, 5)
    scheduler.send_signal(signal.SIGCONT)
    assert any("Waiting for it" in event.get("text", "") for event in heard)
    finish(running)
    check_once(tmp_path / "run", plan)


def test_a_device_gone_for_good_becomes_records_and_the_rest_finishes(
    fleet: Fleet, tmp_path: Path
) -> None:
    profile = small_profile(rounds=30, slot_ms=20)
    plan = fleet_plan(tmp_path, ["b", "c"], sessions=2, compilers=[compiler()], profile=profile)
    patience = {"answer_s": 3.0, "lost_s": 3.0}
    running = client(tmp_path / "run", plan, {**fleet.described, "patience": patience})
    try:
        for event in events(running):
            if event["event"] == "round" and event["device"] == "c":
                break
        fleet.kill("agent-c")
        finish(running)
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


EXPERIMENT = """
name: boards
models: [double.onnx]
compilers: [{fake: {work_us: 50, compile_ms: 1500}}]
devices: [a, b]
batch_sizes: [1]
measure: {profile: default, threads: 2}
"""


def test_a_command_that_was_interrupted_is_gone_on_with_by_the_same_command(
    fleet: Fleet, tmp_path: Path, site: Mapping[str, str]
) -> None:
    (tmp_path / "boards.yaml").write_text(EXPERIMENT)
    certs = fleet.certificates / "client"
    command = ["run", "boards.yaml", "--out", "run", "--cluster", fleet.address, "--certs", certs]
    first = start(*command, cwd=tmp_path, env=site)
    before = {name: set(epochs_done(fleet, name)) for name in "ab"}

    def begun(name: str) -> bool:
        found = epochs_done(fleet, name)
        return any(found[path] for path in set(found) - before[name])

    assert wait_until(lambda: begun("a") or first.poll() is not None, 120)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=60)
    assert first.returncode == 130, said
    assert "Interrupted. Finished epochs are kept" in said
    second = start(*command, "--json", cwd=tmp_path, env=site)
    out, said = second.communicate(timeout=120)
    assert second.returncode == 0, said
    assert "launches are kept" in said
    told = [as_steady(record) for record in json.loads(out)]
    assert {r["case"]["device"]["name"]: r["status"] for r in told} == {"a": "ok", "b": "ok"}
    journal = [r["case_id"] for r in RunDir.open(tmp_path / "run").records() if r["kind"] == "case"]
    assert sorted(journal) == sorted(r["case_id"] for r in told)
    assert {r["measurement"]["epochs"] for r in told} == {2}


def epochs_done(fleet: Fleet, name: str) -> dict[Path, int]:
    """Return how many launches each session has behind it whose spool a device keeps."""
    found = {}
    for path in fleet.root(name).glob("runs/*/spool/*/state.json"):
        with suppress(FileNotFoundError):  # fetched and removed meanwhile
            found[path] = int(json.loads(path.read_text())["epochs_done"])
    return found


def test_what_was_sent_or_found_once_is_not_sent_or_searched_for_again(
    fleet: Fleet, tmp_path: Path
) -> None:
    engine = make_engine(fleet.described)
    sent: list[list[Json]] = []
    found = set()
    searching = compiler(database=str(tmp_path / "kept"))
    first, elsewhere = fleet_plan(tmp_path, ["b", "a"], compilers=[searching]).sessions
    try:
        for session in (first, first.retry(first.cases, 7), elsewhere):
            events: list[Json] = []
            (record, _) = engine.submit(session, tmp_path / "run", events.append)["records"]
            found.add(record["coverage"]["found"])
            sent.append([event for event in events if event.get("phase") == "send"])
    finally:
        engine.close()
    assert len(found) == 1, "a search was made anew"
    assert [bool(each) for each in sent] == [True, False, True]
