"""What is left of a run on this machine: every process that was started below a test's folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["processes_of", "wait_until"]


def processes_of(folder: Path) -> dict[int, str]:
    """Return state letter and command of each live process whose environment names ``folder``.

    Client, agent, guard, exporter and workers all do: TMPDIR lies there (``own_lock``).
    """
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if os.fsencode(folder) not in (entry / "environ").read_bytes():
                continue
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if state not in "ZX":
            found[int(entry.name)] = f"{state} {command}"
    return found


def wait_until(condition: Callable[[], object], patience_s: float = 30) -> bool:
    """Return whether ``condition`` came true in time."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
