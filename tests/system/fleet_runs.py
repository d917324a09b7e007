"""Runs of the vendor-free compiler over several devices, and a client to run them in.

``python fleet_runs.py FOLDER PLAN.json FLEET.json`` is that client: events go to stdout as JSON
lines. FLEET holds ``texts`` (devices), ``address`` and ``certificates`` of a scheduler,
``patience``.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fake_runs import compiler, fake_plan, small_profile

from ngraphbench.campaign import Campaign
from ngraphbench.case import CompilerRef
from ngraphbench.engines.base import Interrupted
from ngraphbench.engines.fleet import FleetEngine
from ngraphbench.engines.remote import Patience
from ngraphbench.plan import Plan
from ngraphbench.spec_values import split_device
from ngraphbench.store.rundir import RunDir
from ngraphbench.types import Device, Json

__all__ = ["PATIENCE", "check_once", "client", "fleet_plan", "run_fleet", "spans"]

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

        cluster = DaskCluster(fleet["address"], Path(fleet["certificates"]))
    patience = Patience(**{**PATIENCE, **fleet.get("patience", {})})
    return FleetEngine(fleet["texts"], cluster=cluster, patience=patience)


def client(run: Path, plan: Plan, fleet: Json, **more: Any) -> subprocess.Popen[str]:
    """Return a client in its own process, started on ``plan``; its events come on stdout."""
    paths = [run.with_suffix(".plan.json"), run.with_suffix(".fleet.json")]
    for path, content in zip(paths, (plan.to_json(), fleet), strict=True):
        path.write_text(json.dumps(content))
    command = [sys.executable, __file__, str(run), *map(str, paths)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more)


def check_once(run: Path, plan: Plan, status: str | None = "ok") -> list[Json]:
    """Return the case records; each planned cell has exactly one, of that status."""
    records = [r for r in RunDir.open(run).records() if r["kind"] == "case"]
    counts = Counter(record["case_id"] for record in records)
    planned = {case.case_id for session in plan.sessions for case in session.cases}
    assert counts == dict.fromkeys(planned, 1), counts
    if status is not None:
        found = Counter((r["status"], r["reason"], r["message"]) for r in records)
        assert {r["status"] for r in records} == {status}, found
    return records


def spans(run: Path) -> dict[str, list[tuple[str, str]]]:
    """Return when each session began and ended, by device, in order."""
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
