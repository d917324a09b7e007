"""The guard: a small process that ends all workers of a session once the agent is gone.

A worker dies with its parent, but what a worker started may not, and an agent killed by
force cannot clean up. The guard holds the read end of a pipe whose write end only the agent
has; at its end it kills every process that carries ``NGB_SESSION=<token>`` in its
environment. It runs this very file with the standard library alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["TOKEN_VARIABLE", "Guard", "become_subreaper", "processes_with", "start_guard", "sweep"]

TOKEN_VARIABLE = "NGB_SESSION"

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 30.0


class Guard:
    """A running guard. ``stop`` makes it sweep and end; so does the end of this process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """End the guard, after it has swept what is left; may be called twice."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE_S + 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start_guard(token: str, groups: Path | None = None) -> Guard:
    """Return a guard over all processes that have ``NGB_SESSION=token`` in their environment.

    It ends by removing their memory groups, which lie below ``groups``.
    """
    # Only workers may carry the token: this process must not guard itself to death.
    environment = {k: v for k, v in os.environ.items() if k != TOKEN_VARIABLE}
    process = subprocess.Popen(
        [sys.executable, "-S", "-E", str(Path(__file__).resolve()), token, str(groups or "")],
        stdin=subprocess.PIPE,  # its end on this side is close-on-exec
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=environment,
        start_new_session=True,
    )
    return Guard(process)


def sweep(token: str) -> int:
    """Kill all processes of a session but this one, until none is left; return how many.

    Gives up after 30 s on processes that the kernel does not let go of.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _PATIENCE_S
    while found := processes_with(TOKEN_VARIABLE, token):
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGCONT)
        killed.update(found)
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return len(killed)


def processes_with(variable: str, value: str) -> list[int]:
    """Return the ids of all processes but this one that were started with variable=value."""
    entry = b"\0" + os.fsencode(f"{variable}={value}") + b"\0"
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:  # gone, or another user's
            continue
        if entry in b"\0" + environment + b"\0":
            found.append(int(folder.name))
    return found


def become_subreaper() -> bool:
    """Make orphans below this process its children instead of init's; False if it cannot be."""
    with suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return False


def _main(token: str, groups: str) -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    sweep(token)
    for group in Path(groups).glob(f"ngb-{token}-*") if groups else ():
        _empty(group)


def _empty(group: Path) -> None:
    """End what broke away from its session, and remove its group."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            for pid in (group / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            group.rmdir()
        if not group.exists():
            return
        time.sleep(0.02)


if __name__ == "__main__":
    _main(*sys.argv[1:3])
