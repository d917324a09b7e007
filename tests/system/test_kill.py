"""Killed by force at random moments, twenty times over: nothing that was finished is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fake_runs import client, compiler, fake_plan, small_profile
from processes import processes_of, wait_until
from steady import as_steady

from ngraphbench.agent import spool_folder
from ngraphbench.plan import Plan
from ngraphbench.store.rundir import RunDir
from ngraphbench.store.samples import read_samples

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_lock")]

KILLS = 20
EPOCHS = 3
LATEST_S = 4.0

Finished = dict[str, dict[int, list[str]]]


def test_twenty_kills_lose_no_finished_epoch(tmp_path: Path) -> None:
    candidates = [compiler(work_us=20), compiler(work_us=30), compiler(work_us=20)]
    plan = fake_plan(tmp_path, candidates, profile=small_profile(epochs=EPOCHS))
    run, dice = tmp_path / "run", random.Random(20)
    killed: Counter[str] = Counter()
    resumed = finished = 0
    for number in range(KILLS):
        who = ("client", "agent", "worker")[number % 3]
        # A busy machine needs longer to finish an epoch, and some must be finished.
        latest_s = LATEST_S if resumed or finished else LATEST_S * (1 + number / 6)
        killed[who] += one_kill(tmp_path, plan, who, delay_s=dice.uniform(0.3, latest_s))
        if is_finished(run):
            finished += 1
            check_finished(run, plan)
            # The kills go on with a fresh run.
            run.rename(run.with_name(f"finished-{number}"))
        elif finished_epochs(run, plan):
            resumed += 1
    assert killed["client"] and killed["agent"] and killed["worker"], killed
    print(f"killed: {dict(killed)}, kept epochs: {resumed} times, finished: {finished}")
    assert resumed

    last = client(run, plan)
    assert last.wait(120) == 0
    close(last)
    check_finished(run, plan)
    assert wait_until(lambda: not processes_of(tmp_path)), processes_of(tmp_path)


def one_kill(folder: Path, plan: Plan, who: str, *, delay_s: float) -> bool:
    """Run, kill ``who`` after a while, and check what is left; False when all was over by then."""
    run = folder / "run"
    before = finished_epochs(run, plan)
    running = client(run, plan)
    time.sleep(delay_s)
    target = running.pid if who == "client" else chosen(folder, who)
    before = merged(before, finished_epochs(run, plan))
    hit = target is not None and running.poll() is None
    if target is not None and hit:
        with suppress(ProcessLookupError):
            os.kill(target, signal.SIGKILL)
    if who != "client":
        # The client goes on with a new agent, and an agent without the worker.
        time.sleep(0.3)
        running.kill()
    running.wait(30)
    close(running)
    assert wait_until(lambda: not processes_of(folder)), processes_of(folder)
    after = finished_epochs(run, plan)
    for name, epochs in before.items():
        for epoch, rows in epochs.items():
            assert after[name][epoch] == rows, (who, name, epoch)
    return hit


def chosen(folder: Path, who: str) -> int | None:
    """Return the agent, or the newest of the workers, while there is one."""
    mark = "ngraphbench.agent" if who == "agent" else "ngraphbench.worker"
    found = [pid for pid, command in processes_of(folder).items() if mark in command]
    return max(found, default=None)


def finished_epochs(run: Path, plan: Plan) -> Finished:
    """Return the sample rows of every finished epoch, by file and epoch."""
    (session,) = plan.sessions
    spool = spool_folder(run, session)
    samples = run / "samples" / session.session_id
    done = EPOCHS
    with suppress(FileNotFoundError):
        done = int(json.loads((spool / "state.json").read_text())["epochs_done"])
    if (spool / "samples").is_dir():
        if not (spool / "state.json").exists():
            return {}
        samples = spool / "samples"
    found: Finished = {}
    for path in samples.glob("*.csv"):
        for line in path.read_text().splitlines()[1:]:
            epoch = int(line.split(",", 1)[0])
            if epoch < done:
                found.setdefault(path.name, {}).setdefault(epoch, []).append(line)
    return found


def merged(older: Finished, newer: Finished) -> Finished:
    return {name: {**older.get(name, {}), **newer.get(name, {})} for name in older | newer}


def is_finished(run: Path) -> bool:
    return (run / "journal.jsonl").exists() and bool(RunDir.open(run).sessions())


def check_finished(run: Path, plan: Plan) -> None:
    directory = RunDir.open(run)
    cases = [as_steady(one) for one in directory.records() if one["kind"] == "case"]
    (session,) = plan.sessions
    assert {record["case_id"] for record in cases} == {case.case_id for case in session.cases}
    ok = Counter((r["session_id"], r["case_id"]) for r in cases if r["status"] == "ok")
    assert set(ok.values()) <= {1}
    for record in cases:
        # A worker that was killed is the record of its cell; all others are measured.
        assert (record["status"], record["reason"]) in {("ok", ""), ("crashed", "signal:SIGKILL")}
        if record["status"] == "ok":
            check_samples(run, record)


def check_samples(run: Path, record: dict[str, Any]) -> None:
    assert record["measurement"]["epochs"] == EPOCHS
    rows = read_samples(run / record["measurement"]["samples"])
    places = list(zip(rows["epoch"].tolist(), rows["round"].tolist(), strict=True))
    assert len(set(places)) == len(places) == record["measurement"]["rounds"]
    assert sorted(places) == places


def close(process: subprocess.Popen[str]) -> None:
    if process.stdout is not None:
        process.stdout.close()
