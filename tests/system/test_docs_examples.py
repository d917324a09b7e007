"""The tutorial, typed from top to bottom, and the model of one's own."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ngb

DOCS = Path(__file__).parents[2] / "docs"
ELSEWHERE = ("pip ", "ngb doctor")
"""What installs, and what other tests run."""

pytestmark = pytest.mark.slow


def steps(page: str) -> list[tuple[str, str]]:
    """Return what a page tells to type, in order: ``python`` or ``console`` and the text."""
    text = (DOCS / page).read_text()
    return re.findall(r"^```(python|console)[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_tutorial_from_top_to_bottom(tmp_path: Path) -> None:
    told = compared = ""
    for language, text in steps("tutorial.md"):
        if language == "python":
            told += _python(text, tmp_path)
            continue
        for line in text.splitlines():
            if not line.startswith(ELSEWHERE):
                compared = _typed(line, tmp_path)
                told += compared
    assert (tmp_path / "runs" / "first" / "report.html").is_file()
    assert (tmp_path / "tables" / "cells.csv").is_file()
    assert "onnxruntime 8 ok" in told
    # Two runs of the same, measured for milliseconds: either may be taken for the slower one.
    assert re.search(r"No regression in 2 cells compared|[12] regressions?: ", compared), compared


def _python(text: str, folder: Path) -> str:
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _typed(line: str, folder: Path) -> str:
    name, *arguments = shlex.split(line)
    assert name == "ngb"
    done = ngb(*arguments, cwd=folder, short=True)
    # So short a measurement may take one launch for a slower program.
    allowed = {0, 4} if arguments[0] == "compare" else {0}
    assert done.returncode in allowed, done.stdout + done.stderr
    return done.stdout


def test_the_architecture_of_ones_own(tmp_path: Path) -> None:
    page = "howto/benchmark-my-architecture.md"
    (source,) = [text for language, text in steps(page) if language == "python"]
    (tmp_path / "net.py").write_text(source)
    (text,) = re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    (tmp_path / "widths.yaml").write_text(text)
    plan = ngb("run", "widths.yaml", "--dry-run", cwd=tmp_path, check=0).stdout
    assert "12 cells" in plan
    told = _python(
        "from net import net\nmodel, inputs = net(64)\nprint(model(*inputs).shape)", tmp_path
    )
    assert "[1, 64]" in told
