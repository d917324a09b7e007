"""Two runs on one machine: the second waits and says so, and their slots never overlap."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from fake_runs import client, compiler, fake_plan, small_profile
from processes import processes_of, wait_until
from steady import as_steady

from ngraphbench.agent import host_lock
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.store.rundir import RunDir

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_lock")]


def test_two_runs_take_turns(tmp_path: Path) -> None:
    profile = small_profile(rounds=40, slot_ms=20)
    plan = fake_plan(tmp_path, [compiler(work_us=20)], profile=profile)
    names = ("one", "two")
    clients = {name: client(tmp_path / name, plan) for name in names}
    events = {}
    for name, running in clients.items():
        out, _ = running.communicate(timeout=120)
        assert running.returncode == 0
        events[name] = [json.loads(line) for line in out.splitlines()]
        assert {as_steady(r)["status"] for r in RunDir.open(tmp_path / name).latest()} == {"ok"}

    waited = [n for n in names if any(event["event"] == "waiting" for event in events[n])]
    assert len(waited) == 1
    (text,) = (event["text"] for event in events[waited[0]] if event["event"] == "waiting")
    assert "another measurement runs here (pid " in text

    (first,) = set(names) - set(waited)
    spans = {name: RunDir.open(tmp_path / name).sessions()[0] for name in names}
    # A session starts after its lock is there, and ends after its last slot.
    assert spans[first]["finished_at"] <= spans[waited[0]]["finished_at"]
    assert logged(tmp_path / first)[1] <= logged(tmp_path / waited[0])[0]
    assert wait_until(lambda: not processes_of(tmp_path))


def logged(run: Path) -> tuple[float, float]:
    """Return when the first workload was begun, and when the last sample was written."""
    begun = min(path.stat().st_mtime for path in run.glob("workloads/*/workload.json"))
    ended = max(path.stat().st_mtime for path in run.glob("samples/*/*.csv"))
    return begun, ended


def test_a_link_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "lock").symlink_to(precious)
    monkeypatch.setenv("NGRAPHBENCH_LOCK", str(tmp_path / "lock"))
    with pytest.raises(EnvironmentFailed, match="cannot be opened"), host_lock(print):
        pass
    assert precious.read_text() == "kept"


def test_a_run_that_waits_can_be_stopped(tmp_path: Path) -> None:
    plan = fake_plan(tmp_path, [compiler(work_us=20)])
    with host_lock(lambda event: None):
        running = client(tmp_path / "run", plan)
        assert running.stdout is not None
        told = (json.loads(line)["event"] == "waiting" for line in running.stdout)
        assert any(told)
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 130
        running.stdout.close()
    assert wait_until(lambda: not processes_of(tmp_path))
