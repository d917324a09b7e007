"""A process that sees a /tmp and a /dev/shm of its own, gone once it and its children are.

``python confine.py PLAN.json COMMAND...`` goes into a mount namespace, lays the private folders
over the shared ones, keeps the paths that the plan names visible, and becomes COMMAND. It runs
this very file with the standard library alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["can_confine", "confined"]

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000
_SHARED = {"/tmp": "tmp", "/dev/shm": ""}
"""What is covered, and by which folder; by memory of its own where that is empty."""


def can_confine() -> bool:
    """Return whether this system lets this user make such a namespace."""
    command = [sys.executable, "-I", "-S", __file__, "{}", sys.executable, "-S", "-c", ""]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def confined(folder: Path, keep: Sequence[Path]) -> list[str]:
    """Return what to put before a command so that its temporary files lie below ``folder``.

    ``keep`` are paths that it must go on seeing where they are.
    """
    covers = {}
    for place, name in _SHARED.items():
        private = folder / name
        private.mkdir(parents=True, exist_ok=True)
        private.chmod(0o1777)
        covers[place] = str(private) if name else ""
    plan = {"covers": covers, "keep": [str(path) for path in keep if path.exists()]}
    return [sys.executable, "-I", "-S", __file__, json.dumps(plan)]


def _enter(covers: dict[str, str], keep: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        _check(libc.unshare(_NEW_MOUNTS), "unshare")
    else:
        _check(libc.unshare(_NEW_MOUNTS | _NEW_USER), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    # Nothing that is mounted here may show up outside.
    _check(libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None), "private")
    for place, private in covers.items():
        if not private:
            mode = b"mode=1777"
            _check(libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, mode), place)
            continue
        for path in _outermost(keep, place):
            target = private + path[len(place) :]
            if Path(path).is_dir():
                Path(target).mkdir(parents=True, exist_ok=True)
            else:
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                Path(target).touch()
            _bind(libc, path, target)
        _bind(libc, private, place)


def _outermost(keep: list[str], place: str) -> list[str]:
    """Return the paths below ``place`` that no other one of them holds."""
    below = sorted(path for path in keep if path.startswith(place + "/"))
    return [p for p in below if not any(p.startswith(q + "/") for q in below if q != p)]


def _bind(libc: ctypes.CDLL, source: str, target: str) -> None:
    flags = _BIND | _RECURSIVE
    _check(libc.mount(os.fsencode(source), os.fsencode(target), None, flags, None), target)


def _check(code: int, what: str) -> None:
    if code:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    _plan = json.loads(sys.argv[1])
    _here = Path.cwd()
    _enter(_plan.get("covers", {}), _plan.get("keep", []))
    os.chdir(_here)
    os.execv(sys.argv[2], sys.argv[2:])
