"""Boards behind ssh: no set-up there, the same records, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from boards import boards
from fake_runs import campaign, compiler
from fleet_runs import check_once, client, fleet_plan, run_fleet, spans
from processes import processes_of, wait_until

from ngraphbench.engines.base import DeviceLost
from ngraphbench.engines.fleet import FleetEngine
from ngraphbench.plan import Plan
from ngraphbench.store.rundir import RunDir

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_lock")]


def left_on_boards(folder: Path) -> list[str]:
    return [str(p) for b in folder.glob("board-*/") for p in b.glob("*") if p.name != "state"]


def test_two_boards_work_in_parallel_and_keep_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with boards(tmp_path, monkeypatch, 2) as texts:
        # The dirty one writes to HOME, /tmp and /dev/shm and leaves a daemon.
        plan = fleet_plan(
            tmp_path, texts, sessions=2, compilers=[compiler(), compiler(fault="dirty")]
        )
        run_fleet(tmp_path / "run", plan, {"texts": texts})
        records = check_once(tmp_path / "run", plan)
        for each in spans(tmp_path / "run").values():
            (_, first_end), (second_begin, _) = each
            assert first_end <= second_begin
        first = [each[0] for each in spans(tmp_path / "run").values()]
        assert max(begin for begin, _ in first) <= min(end for _, end in first)
        assert left_on_boards(tmp_path) == []
        assert dirt() == []
        assert wait_until(lambda: not dirty_processes(tmp_path)), dirty_processes(tmp_path)
        for record in records:
            assert (tmp_path / "run" / record["measurement"]["samples"]).exists()
            assert (tmp_path / "run" / record["log"]).exists()
            variables = record["environment"]["variables"]
            # The board's own say 1 and 65536: see boards.
            assert variables["OMP_NUM_THREADS"] == "2"
            assert "MALLOC_TRIM_THRESHOLD_" not in variables
    assert same_shape(tmp_path, plan, records)


def same_shape(folder: Path, plan: Plan, records: list[dict[str, object]]) -> bool:
    """Check that the local engine makes records with the same keys."""
    local = fleet_plan(folder, ["local"], compilers=[compiler(), compiler(work_us=20)])
    campaign(folder / "local", local).run()
    ours = RunDir.open(folder / "local").latest()[0]
    for record in records:
        assert set(record) == set(ours)
        for key in ("summary", "costs", "verification", "environment", "measurement"):
            assert set(record[key]) == set(ours[key]), key
    return True


def dirt() -> list[str]:
    return [str(p) for place in ("/tmp", "/dev/shm") for p in Path(place).glob("ngb-dirt-*")]


def dirty_processes(folder: Path) -> dict[int, str]:
    return {pid: what for pid, what in processes_of(folder).items() if "sshd" not in what}


def test_a_killed_client_leaves_nothing_on_a_board_and_a_resume_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with boards(tmp_path, monkeypatch) as texts:
        plan = fleet_plan(tmp_path, texts, sessions=2)
        running = client(tmp_path / "run", plan, {"texts": texts})
        assert running.stdout is not None
        for line in running.stdout:
            if json.loads(line)["event"] == "record":
                break
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        running.stdout.close()
        assert wait_until(lambda: left_on_boards(tmp_path) == []), left_on_boards(tmp_path)
        run_fleet(tmp_path / "run", plan, {"texts": texts})
        check_once(tmp_path / "run", plan)


def test_an_unreachable_board_says_what_ssh_said(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FleetEngine(["ssh://127.0.0.1:1"])
    assert engine.devices() == {}
    problem = engine.absent["ssh://127.0.0.1:1"]
    assert isinstance(problem, DeviceLost)
    assert "refused" in problem.hint or "ssh" in problem.hint
