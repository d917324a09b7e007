"""What is left of a run on this machine: every process that was started below a test's folder."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["dirt", "free_port", "listening_of", "processes_of", "wait_until"]


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


def dirt() -> list[str]:
    """Return what a compiler with the fault ``dirty`` left in places that all share."""
    return [str(p) for place in ("/tmp", "/dev/shm") for p in Path(place).glob("ngb-dirt-*")]


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listening_of(pid: int) -> set[tuple[str, int]]:
    """Return the addresses on which a process listens, in its own network."""
    own = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(str(entry.readlink()))
        except OSError:
            continue
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] != "0A" or f"socket:[{fields[9]}]" not in own:
                continue
            host, _, port = fields[1].partition(":")
            address = socket.inet_ntoa(bytes.fromhex(host)[::-1]) if name == "tcp" else f"[{host}]"
            found.add((address, int(port, 16)))
    return found


def wait_until(condition: Callable[[], object], patience_s: float = 30) -> bool:
    """Return whether ``condition`` came true in time."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
