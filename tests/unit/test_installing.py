"""The program that installs: it ends with who asked for it, and in time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ngraphbench.environments import installing
from ngraphbench.environments.installing import Installer

ASKING = """
import os, sys
from pathlib import Path
from ngraphbench.environments.installing import Installer

told = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
installer = Installer(Path("/nowhere"), lambda line: print(line, flush=True), uv="uv")
installer._run([sys.executable, "-c", told], os.environ)
"""


def run(installer: Installer, code: str) -> int:
    return installer._run([sys.executable, "-c", code], os.environ)


def is_running(pid: int) -> bool:
    """Return whether there is such a process, and no corpse that nobody has buried yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_it_does_not_outlive_who_asked_for_it() -> None:
    asking = subprocess.Popen([sys.executable, "-c", ASKING], stdout=subprocess.PIPE, text=True)
    assert asking.stdout is not None
    with asking:
        pid = int(asking.stdout.readline())
        assert is_running(pid)
        asking.kill()
    deadline = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_its_words_and_exit_code_are_kept() -> None:
    told: list[str] = []
    installer = Installer(Path("/nowhere"), told.append, uv="uv")
    code = "import os, sys; print('one\\n\\n[notice] two'); sys.stdout.flush(); os._exit(3)"
    assert run(installer, code) == 3
    assert told == ["one"] and installer.words[:3] == ["one", "", "[notice] two"]


def test_what_cannot_be_run_says_so() -> None:
    installer = Installer(Path("/nowhere"), lambda line: None, uv="uv")
    assert installer._run(["/nowhere/uv"], os.environ) != 0
    assert "/nowhere/uv: " in installer.last_words() and "No such file" in installer.last_words()


@pytest.mark.parametrize("code", ["import time; time.sleep(600)", "import os; os.closerange(1, 3)"])
def test_what_does_not_end_is_ended(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installing, "LONGEST_S", 0.0)
    monkeypatch.setattr(installing, "STOP_S", 0.01)
    installer = Installer(Path("/nowhere"), lambda line: None, uv="uv")
    assert run(installer, f"{code}; import time; time.sleep(600)") == installing.UNENDED
