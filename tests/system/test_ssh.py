"""Boards behind ssh: no set-up there, the same records, nothing left behind."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from boards import boards
from fake_runs import compiler
from fleet_runs import check_alike, check_once, client, fleet_plan, most_at_once, run_fleet, spans
from processes import dirt, processes_of, wait_until

from ngraphbench.engines.base import DeviceLost
from ngraphbench.engines.carrying import NEEDS
from ngraphbench.engines.fleet import FleetEngine

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_lock")]

OTHER_PYTHON = "NGRAPHBENCH_OTHER_PYTHON"


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
        found = spans(tmp_path / "run")
        for each in found.values():
            (_, first_end), (second_begin, _) = each
            assert first_end <= second_begin
        assert most_at_once(found) == 2, found
        assert left_on_boards(tmp_path) == []
        assert dirt() == []
        assert wait_until(lambda: not dirty_processes(tmp_path)), dirty_processes(tmp_path)
        for record in records:
            assert (tmp_path / "run" / record["measurement"]["samples"]).exists()
            assert (tmp_path / "run" / record["log"]).exists()
    check_alike(records, tmp_path)


def test_a_board_with_another_python_measures_what_this_one_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = other_python()
    with boards(tmp_path, monkeypatch) as texts:
        text = f"{texts[0].partition('?')[0]}?python={python}"
        plan = fleet_plan(tmp_path, [text], compilers=[compiler()])
        run_fleet(tmp_path / "run", plan, {"texts": [text]})
        (record,) = check_once(tmp_path / "run", plan)
        theirs = record["environment"]["python"]
        assert theirs != platform.python_version()
        check_alike([record], tmp_path, python=theirs)
        assert left_on_boards(tmp_path) == []


def other_python() -> str:
    """Return a supported interpreter of another version that has what a desk needs, or skip."""
    check = (
        "import sys; from importlib.util import find_spec; print(*sys.version_info[:2])\n"
        f"sys.exit(None in map(find_spec, {[*NEEDS]}))"
    )
    # The first of a name on PATH may be one that lacks what a later one has.
    names = [f"python3.{minor}" for minor in range(10, 20)]
    found = [shutil.which(name, path=place) for name in names for place in os.get_exec_path()]
    for python in filter(None, [os.environ.get(OTHER_PYTHON), *found]):
        asked = subprocess.run([python, "-c", check], capture_output=True, text=True, check=False)
        version = tuple(map(int, asked.stdout.split()))
        if asked.returncode == 0 and version >= (3, 10) and version != sys.version_info[:2]:
            return python
    pytest.skip(f"no second Python with numpy and scipy here; {OTHER_PYTHON} may name one")


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
