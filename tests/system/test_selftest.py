"""The kernel on this very machine: known work is never ranked wrongly, a hog is seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ngb
from processes import processes_of, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.alone]


@pytest.mark.parametrize("hog", [False, True])
def test_known_work_is_not_ranked_wrongly(tmp_path, hog: bool):
    done = ngb("selftest", "--seconds", 12, "--json", *["--hog"] * hog, cwd=tmp_path)
    found = json.loads(done.stdout)
    assert [finding["units"] for finding in found["findings"]] == [100, 103, 110]
    assert not any(finding["wrong"] for finding in found["findings"]), found
    if hog:
        assert "interference" in found["flags"]
    assert found["passed"]
    assert done.returncode == 0


def test_a_killed_selftest_leaves_no_hog(tmp_path: Path):
    own = {"TMPDIR": str(tmp_path), "NGRAPHBENCH_LOCK": str(tmp_path / "host.lock")}
    words = [sys.executable, "-m", "ngraphbench", "selftest", "--hog", "--seconds", "60"]
    started = subprocess.Popen(
        words, env=os.environ | own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    hogs = len(os.sched_getaffinity(0))

    def hogging() -> bool:
        return sum("getppid" in text for text in processes_of(tmp_path).values()) == hogs

    try:
        assert wait_until(hogging)
    finally:
        started.kill()
        started.wait()
    assert wait_until(lambda: not processes_of(tmp_path)), processes_of(tmp_path)
