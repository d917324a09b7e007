"""A group of processes whose memory the kernel limits, where this user may make one.

Watching comes late for what grows by gigabytes between two looks, and a limit on address space
would stop CUDA, which reserves far more than it uses. A control group counts what is used, and
knows its members, also those that cut all other ties. It is there for the case that watching
fails, so it begins a little above the limit that is watched.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ngraphbench.environments.systemfiles import cgroup_files, counter, read_text

__all__ = ["MemoryGroup", "group_name", "groups_folder"]

SLACK_BYTES = 64 * 1024**2
SLACK_SHARE = 0.05
V1, V2 = "memory.limit_in_bytes", "memory.max"


def groups_folder() -> Path | None:
    """Return the folder of this process's own memory group, if groups may be made below it."""
    for limit in cgroup_files("memory", v1=V1, v2=V2):
        if not limit.exists():
            continue
        folder = limit.parent
        if limit.name == V1:
            # Else limits above, such as a container's, would not hold below.
            nested = (read_text(folder / "memory.use_hierarchy") or "").strip() == "1"
        else:
            nested = "memory" in (read_text(folder / "cgroup.subtree_control") or "").split()
        return folder if nested and os.access(folder, os.W_OK) else None
    return None


def group_name(token: str, mark: str) -> str:
    """Return the name of a group that this process makes: for a session, if it has a token."""
    return f"ngb-{token}-{mark}-{os.getpid()}"


def _clear(parent: Path) -> None:
    """Remove the empty groups of processes that are gone, which nobody else would."""
    for group in parent.glob("ngb-*-*-*"):
        if not Path("/proc", group.name.rpartition("-")[2]).exists():
            with suppress(OSError):
                group.rmdir()


class MemoryGroup:
    """A group that was made, and is there until ``remove``. ``name`` is that of its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def make(cls, name: str, memory_bytes: int) -> MemoryGroup | None:
        """Return a new group with a limit just above ``memory_bytes``; None where none can be."""
        parent = groups_folder()
        if parent is None:
            return None
        _clear(parent)
        group = cls(parent / name)
        limit_bytes = memory_bytes + max(SLACK_BYTES, int(SLACK_SHARE * memory_bytes))
        try:
            group._folder.mkdir()
            limit = group._folder / V1
            (limit if limit.exists() else limit.with_name(V2)).write_text(str(limit_bytes))
        except OSError:
            group.remove()
            return None
        return group

    def add(self, pid: int) -> None:
        """Put a process, and whatever it starts from now on, into the group."""
        with suppress(OSError):
            (self._folder / "cgroup.procs").write_text(str(pid))

    def members(self) -> list[int]:
        """Return the ids of all processes in it."""
        return [int(pid) for pid in (read_text(self._folder / "cgroup.procs") or "").split()]

    def kills(self) -> int:
        """Return how many of its processes the kernel has killed for lack of memory."""
        files = (self._folder / name for name in ("memory.oom_control", "memory.events"))
        return sum(counter(read_text(path), "oom_kill") or 0 for path in files)

    def remove(self) -> None:
        """Remove the group, which must be empty; the guard tries again when the session ends."""
        with suppress(OSError):
            self._folder.rmdir()
