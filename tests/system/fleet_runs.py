"""Runs of the vendor-free compiler over several devices, and a client to run them in.

``python fleet_runs.py FOLDER PLAN.json FLEET.json`` is that client: events go to stdout as JSON
lines. FLEET holds ``texts`` (devices), ``address`` and ``certificates`` of a scheduler,
``patience`` and, in seconds, ``connect_s``.
"""

from __future__ import annotations

import json
import platform
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fake_runs import campaign, compiler, fake_plan, small_profile
from steady import as_steady

from ngraphbench.campaign import Campaign
from ngraphbench.case import Case, CompilerRef
from ngraphbench.engines.base import Interrupted
from ngraphbench.engines.fleet import FleetEngine
from ngraphbench.engines.remote import Patience
from ngraphbench.plan import Plan
from ngraphbench.spec_values import split_device
from ngraphbench.store.rundir import RunDir
from ngraphbench.types import Device, Json

__all__ = [
    "PATIENCE",
    "check_alike",
    "check_once",
    "client",
    "events",
    "finish",
    "fleet_plan",
    "make_engine",
    "most_at_once",
    "run_fleet",
    "spans",
]

CASE = ("status", "reason", "stage", "message", "label", "profile", "seed", "tool_version")
CASE += ("weights", "environment", "coverage", "blocks", "schema_version")
SESSION = ("status", "attempt", "baseline", "mode", "profile", "seed", "epochs_done", "beside")
HOST = ("cpu_model", "logical_cpus", "memory_bytes", "kernel", "os", "affinity", "power_mode")
VERDICT = ("verdict", "reason", "checks", "reference", "tolerance")
OF_TIME = {"interference", "drift", "thread-unfair", "leak", "few-rounds", "denormals", "parted"}
OF_TIME |= {"not-steady", "launch"}
NANNYS = ("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_")
PATIENCE = {"answer_s": 20.0, "state_s": 1.0, "lost_s": 60.0, "again_s": 0.3}


def fleet_plan(
    folder: Path,
    texts: Iterable[str],
    *,
    sessions: int = 1,
    compilers: Sequence[CompilerRef] = (),
    **more: Any,
) -> Plan:
    """Return a plan of so many sessions on each device, told apart by their batch sizes."""
    chosen = list(compilers) or [compiler(work_us=50), compiler(work_us=90)]
    profile = more.pop("profile", None) or small_profile(rounds=6, slot_ms=2)
    found = []
    for batch in range(1, sessions + 1):
        plan = fake_plan(folder, chosen, batches=(batch,), profile=profile, **more)
        (session,) = plan.sessions
        for text in texts:
            device = Device(name=split_device(text)[0], threads=2)
            cases = tuple(replace(case, device=device) for case in session.cases)
            found.append(replace(session, cases=cases))
    return Plan("fleet", tuple(found))


def run_fleet(run: Path, plan: Plan, fleet: Json, emit: Any = lambda event: None) -> None:
    """Run the plan to its end."""
    engine = make_engine(fleet)
    try:
        directory = RunDir.open(run, create=True)
        with directory.lock():
            Campaign(plan, directory, engine, emit).run()
    finally:
        engine.close()


def make_engine(fleet: Json) -> FleetEngine:
    """Return the engine that ``fleet`` describes."""
    cluster = None
    if fleet.get("address"):
        from ngraphbench.engines.daskcluster import DaskCluster

        patience_s = {"connect_s": fleet["connect_s"]} if "connect_s" in fleet else {}
        cluster = DaskCluster(fleet["address"], Path(fleet["certificates"]), **patience_s)
    patience = Patience(**{**PATIENCE, **fleet.get("patience", {})})
    return FleetEngine(fleet["texts"], cluster=cluster, patience=patience)


def client(run: Path, plan: Plan, fleet: Json) -> subprocess.Popen[str]:
    """Return a client in its own process, started on ``plan``; its events come on stdout."""
    paths = [run.with_suffix(".plan.json"), run.with_suffix(".fleet.json")]
    for path, content in zip(paths, (plan.to_json(), fleet), strict=True):
        path.write_text(json.dumps(content))
    command = [sys.executable, __file__, str(run), *map(str, paths)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def events(running: subprocess.Popen[str]) -> Iterator[Json]:
    """Yield what a client says, as it says it."""
    assert running.stdout is not None
    for line in running.stdout:
        yield json.loads(line)


def finish(running: subprocess.Popen[str]) -> list[Json]:
    """Return what a client says until it has ended in good order."""
    told = list(events(running))
    assert running.wait(120) == 0
    assert running.stdout is not None
    running.stdout.close()
    return told


def check_once(run: Path, plan: Plan, status: str | None = "ok") -> list[Json]:
    """Return the case records; each planned cell has exactly one, of that status."""
    records = [as_steady(r) for r in RunDir.open(run).records() if r["kind"] == "case"]
    counts = Counter(record["case_id"] for record in records)
    planned = {case.case_id for session in plan.sessions for case in session.cases}
    assert counts == dict.fromkeys(planned, 1), counts
    if status is not None:
        found = Counter((r["status"], r["reason"], r["message"]) for r in records)
        assert {r["status"] for r in records} == {status}, found
    return records


def check_alike(records: Iterable[Json], folder: Path, *, python: str = "") -> None:
    """Check that records say what those of the local engine do, times apart.

    That engine measures the baseline of batch size 1. ``python`` is the version of the devices'
    interpreter, where it is another one. The devices' own variables are those of a Dask nanny,
    which no worker may see: see ``clusters`` and ``boards``.
    """
    records = [as_steady(r) if r["kind"] == "case" else r for r in records]
    first = next(Case.from_json(r["case"]) for r in records if r["kind"] == "case")
    local = fleet_plan(folder, ["local"], compilers=[first.compiler])
    campaign(folder / "local", local).run()
    ours = RunDir.open(folder / "local")
    (model,), (session,) = map(as_steady, ours.latest()), ours.sessions()
    told = {**model["environment"], "python": python or platform.python_version()}
    for record in records:
        if record["kind"] == "session":
            assert said_of(record, SESSION) == said_of(session, SESSION)
            assert said_of(record["host"], HOST) == said_of(session["host"], HOST)
            assert set(record["host"]) == set(session["host"])
            continue
        assert set(record) == set(model)
        for key in ("summary", "costs", "verification", "environment", "measurement"):
            assert set(record[key]) == set(model[key]), key
        variables = record["environment"]["variables"]
        assert variables["OMP_NUM_THREADS"] == "2"
        assert not {name for name in NANNYS if variables.get(name, "2") != "2"}
        if record["label"] == model["label"]:
            # What else is on the allow-list is as the devices' users have set it.
            environment = {**told, "variables": variables}
            check_outcome(record, {**model, "environment": environment})


def check_outcome(record: Json, model: Json) -> None:
    """Check that two records of one candidate tell the same, whatever device and batch size."""
    case, other = (Case.from_json(each["case"]) for each in (record, model))
    assert record["case_id"] == case.case_id
    assert replace(case, device=other.device, batch=other.batch).case_id == model["case_id"]
    assert said_of(record, CASE) == said_of(model, CASE)
    found, wanted = record["verification"], model["verification"]
    if case.batch == other.batch:
        assert found == wanted, "outputs and their errors"
    assert said_of(found, VERDICT) == said_of(wanted, VERDICT)
    shapes = [[output["shape"][1:] for output in each["outputs"]] for each in (found, wanted)]
    assert shapes[0] == shapes[1]
    for key in ("mode", "epochs", "rounds"):
        assert record["measurement"][key] == model["measurement"][key]
    flags = ({flag["flag"] for flag in each["flags"]} - OF_TIME for each in (record, model))
    assert next(flags) == next(flags)


def said_of(record: Json, keys: Iterable[str]) -> Json:
    return {key: record[key] for key in keys}


def most_at_once(found: Mapping[str, Iterable[tuple[str, str]]]) -> int:
    """Return how many sessions were under way at the fullest moment of ``spans``."""
    each = [span for spans_of_one in found.values() for span in spans_of_one]
    return max(sum(begin <= moment < end for begin, end in each) for moment, _ in each)


def spans(run: Path) -> dict[str, list[tuple[str, str]]]:
    """Return when each session began and ended, to the millisecond, by device, in order.

    All devices are this machine, so they have one clock.
    """
    devices = {
        r["session_id"]: r["case"]["device"]["name"]
        for r in RunDir.open(run).records()
        if r["kind"] == "case"
    }
    found: dict[str, list[tuple[str, str]]] = {}
    for record in RunDir.open(run).sessions():
        name = devices[record["session_id"]]
        found.setdefault(name, []).append((record["started_at"], record["finished_at"]))
    return {name: sorted(each) for name, each in found.items()}


def _main(run: Path, plan: Plan, fleet: Json) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def tell(event: Json) -> None:
        print(json.dumps(event), flush=True)

    try:
        run_fleet(run, plan, fleet, tell)
    except (Interrupted, KeyboardInterrupt):
        return 130
    return 0


if __name__ == "__main__":
    _plan = Plan.from_json(json.loads(Path(sys.argv[2]).read_text()))
    sys.exit(_main(Path(sys.argv[1]), _plan, json.loads(Path(sys.argv[3]).read_text())))
