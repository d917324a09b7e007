"""Ctrl-C: once, the slot is finished and the run can go on; twice, it stops at once."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest
from command_line import start
from fake_runs import campaign, client, compiler, fake_plan, small_profile
from processes import processes_of, wait_until
from steady import as_steady

from ngraphbench.agent import spool_folder
from ngraphbench.plan import Plan
from ngraphbench.store.rundir import RunDir
from ngraphbench.testing.workloads import write_onnx

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_lock")]

EXPERIMENT = """
name: short
models: [double.onnx]
compilers: [onnxruntime]
batch_sizes: [1]
measure: {profile: default, threads: 1}
limits: {first_call: 30s, compile: 60s}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    pytest.importorskip("onnxruntime", reason="the command line needs a compiler")
    write_onnx(tmp_path / "double.onnx", "fake")
    path = tmp_path / "short.yaml"
    path.write_text(EXPERIMENT)
    return path


def ngb(experiment: Path, *more: str) -> subprocess.Popen[str]:
    """Start ``ngb run`` in the folder of the experiment, with launches of about two seconds."""
    command = ("run", experiment.name, "--out", "run", "--json", *more)
    return start(*command, cwd=experiment.parent, rounds=20)


def epochs_done(run: Path) -> int:
    states = list(run.glob("spool/*/state.json"))
    return int(json.loads(states[0].read_text())["epochs_done"]) if states else 0


def test_one_interrupt_then_the_same_command_goes_on(experiment: Path) -> None:
    folder = experiment.parent
    first = ngb(experiment)
    assert wait_until(lambda: epochs_done(folder / "run") == 1, 120)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=60)
    assert first.returncode == 130, said
    assert "Interrupted. Finished epochs are kept" in said
    assert "press Ctrl-C again" in said
    assert epochs_done(folder / "run") >= 1
    assert wait_until(lambda: not processes_of(folder)), processes_of(folder)
    samples = {path: path.read_text() for path in folder.glob("run/spool/*/samples/*.csv")}
    assert samples

    second = ngb(experiment)
    out, said = second.communicate(timeout=300)
    assert second.returncode == 0, said
    assert "launches are kept" in said
    assert {as_steady(record)["status"] for record in json.loads(out)} == {"ok"}
    for path, text in samples.items():
        final = next(folder.glob(f"run/samples/*/{path.name}"))
        assert final.read_text().startswith(text)

    third = ngb(experiment)
    out, said = third.communicate(timeout=60)
    assert third.returncode == 0
    assert "2 cells were already measured and kept" in said
    assert len(json.loads(out)) == 2


def test_two_interrupts_stop_at_once(tmp_path: Path) -> None:
    # Slots of 20 s: the end of the slot is not waited for.
    profile = small_profile(epochs=2, slot_ms=20_000)
    plan = fake_plan(tmp_path, [compiler(work_us=20)], profile=profile)
    running = client(tmp_path / "run", plan)
    assert running.stdout is not None
    told = until(running.stdout, "phase", phase="compile")
    assert told
    time.sleep(2.5)
    for _ in range(2):
        running.send_signal(signal.SIGINT)
        time.sleep(0.5)
    started = time.monotonic()
    assert running.wait(15) == 130
    assert time.monotonic() - started < 10
    running.stdout.close()
    assert wait_until(lambda: not processes_of(tmp_path)), processes_of(tmp_path)


def test_two_interrupts_keep_the_finished_epoch(tmp_path: Path) -> None:
    profile = small_profile(epochs=2, slot_ms=200)
    plan = fake_plan(tmp_path, [compiler(work_us=20)], profile=profile)
    run = tmp_path / "run"
    running = client(run, plan)
    assert running.stdout is not None
    assert until(running.stdout, "epoch_done", epoch=0)
    for _ in range(2):
        running.send_signal(signal.SIGINT)
        time.sleep(0.3)
    assert running.wait(15) == 130
    running.stdout.close()
    assert epochs_done(run) == 1
    (kept,) = (path.read_text() for path in run.glob("spool/*/samples/*.csv"))
    assert len(kept.splitlines()) == 1 + profile.rounds_max
    assert finished(run, plan) == {"fake:work_us=20": "ok"}
    (final,) = (path.read_text() for path in run.glob("samples/*/*.csv"))
    assert final.startswith(kept)


def test_an_interrupt_before_the_first_candidate_is_ready(tmp_path: Path) -> None:
    # Every candidate that was begun has failed when the stop is seen: that is no finished epoch.
    late = [compiler(compile_ms=4000, fault="wrong"), compiler(work_us=10)]
    plan = fake_plan(tmp_path, late, profile=small_profile(epochs=1))
    running = client(tmp_path / "run", plan)
    assert running.stdout is not None
    until(running.stdout, "phase", phase="compile")
    time.sleep(1.5)
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 130
    running.stdout.close()
    assert finished(tmp_path / "run", plan) == {"fake:work_us=10": "ok", late[0].text: "wrong"}


def test_an_interrupt_while_the_agent_starts(tmp_path: Path) -> None:
    plan = fake_plan(tmp_path, [compiler(work_us=10)], profile=small_profile(epochs=1))
    running = client(tmp_path / "run", plan)
    assert wait_until(lambda: agents(tmp_path))
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 130
    assert running.stdout is not None
    running.stdout.close()


def test_the_next_session_is_not_begun(tmp_path: Path) -> None:
    # Stopped in the last launch, past the fewest rounds: that session is finished.
    profile = small_profile(epochs=1, rounds=400)
    first = fake_plan(tmp_path, [compiler(work_us=10)], profile=profile)
    second = fake_plan(tmp_path, [compiler(work_us=20)], profile=profile)
    plan = Plan("two", (*first.sessions, *second.sessions))
    running = client(tmp_path / "run", plan)
    assert running.stdout is not None
    assert until(running.stdout, "round", round=20)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 130
    (record,) = map(as_steady, RunDir.open(tmp_path / "run").latest())
    assert (record["label"], record["status"]) == ("fake:work_us=10", "ok")
    assert record["measurement"]["rounds"] < 400


def until(lines: IO[str], event: str, **fields: object) -> bool:
    """Read events up to the one asked for."""
    wanted: Sequence[tuple[str, object]] = [("event", event), *fields.items()]
    for line in lines:
        told = json.loads(line)
        if all(told.get(name) == value for name, value in wanted):
            return True
    return False


def agents(folder: Path) -> list[int]:
    return [pid for pid, name in processes_of(folder).items() if "ngraphbench.agent" in name]


def finished(run: Path, plan: Plan) -> dict[str, str]:
    """Run to the end; return the status of every label."""
    (session,) = plan.sessions
    campaign(run, plan).run()
    assert not spool_folder(run, session).exists()
    return {cell["label"]: as_steady(cell)["status"] for cell in RunDir.open(run).latest()}
