"""Groups whose maker was killed do not stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ngraphbench.session import memorygroup
from ngraphbench.session.memorygroup import MemoryGroup, group_name


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="who lives is read from /proc")
def test_groups_of_processes_that_are_gone_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    mine, stale = (tmp_path / f"ngb-token-mark-{pid}" for pid in (os.getpid(), gone.pid))
    foreign = tmp_path / "another"
    for folder in (mine, stale, foreign):
        folder.mkdir()
    monkeypatch.setattr(memorygroup, "groups_folder", lambda: tmp_path)
    name = group_name("", "new")
    assert MemoryGroup.make(name, 2**20) is not None
    assert {path.name for path in tmp_path.iterdir()} == {mine.name, foreign.name, name}
