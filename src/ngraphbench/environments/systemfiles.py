"""What ``/proc``, ``/sys`` and the control groups say, read in one place.

``root`` is where ``proc``, ``sys`` and ``etc`` are looked for; a file that is not there, or
cannot be read, is None, and never an error.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

__all__ = [
    "ROOT",
    "available_bytes",
    "cgroup_files",
    "counter",
    "cpu_list",
    "memory_bytes",
    "memory_limit_bytes",
    "quota_cpus",
    "read_text",
    "throttled_count",
    "whole",
]

ROOT = Path("/")

_MOUNTS = {"cpu": ("cpu", "cpu,cpuacct", "cpuacct,cpu"), "memory": ("memory",)}
_UNLIMITED_BYTES = 1 << 60
"""A v1 group without a limit shows the largest multiple of a page, some 2^63."""


def read_text(path: Path) -> str | None:
    """Return a file's text without blanks around it; None when empty or not to be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip().strip("\0") or None
    except OSError:
        return None


def whole(path: Path) -> int | None:
    """Return the whole number that a file holds, or None."""
    with suppress(ValueError):
        return int(read_text(path) or "")
    return None


def counter(text: str | None, name: str) -> int | None:
    """Return the number behind ``name`` at the start of a line, as in ``cpu.stat``, or None."""
    found = re.search(rf"^{re.escape(name)}:?\s+(\d+)\b", text or "", re.MULTILINE)
    return int(found[1]) if found else None


def cpu_list(text: str | None) -> tuple[int, ...]:
    """Return the numbers in a list such as ``0-3,8``; empty for anything else.

    >>> cpu_list("0-2,5")
    (0, 1, 2, 5)
    """
    found: set[int] = set()
    with suppress(ValueError):
        for part in (text or "").split(","):
            if part.strip():
                first, _, last = part.partition("-")
                found |= set(range(int(first), int(last or first) + 1))
        return tuple(sorted(found))
    return ()


def cgroup_files(controller: str, *, v1: str, v2: str, root: Path = ROOT) -> list[Path]:
    """Return where a group of this process may say something, innermost first.

    ``controller`` is ``cpu`` or ``memory``; ``v1`` and ``v2`` are the file's names in the
    two versions of cgroups. Groups above count too, for their limits hold below.
    """
    found: list[Path] = []
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) < 3 or (parts[1] and controller not in parts[1].split(",")):
            continue
        mounts = _MOUNTS[controller] if parts[1] else ("",)
        name = v1 if parts[1] else v2
        for folder in _upwards(parts[2]):
            found += [root / "sys/fs/cgroup" / mount / folder / name for mount in mounts]
    return list(dict.fromkeys(found))


def _upwards(path: str) -> list[str]:
    # In a container the path is often the host's and not there, but the top is its own.
    parts = [part for part in path.split("/") if part]
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]


def quota_cpus(*, root: Path = ROOT) -> float | None:
    """Return the CPU quota of this process in CPUs (cgroup v1 or v2), None without one."""
    found: list[float] = []
    for path in cgroup_files("cpu", v1="cpu.cfs_quota_us", v2="cpu.max", root=root):
        with suppress(ValueError, ZeroDivisionError):
            if path.name == "cpu.max":
                quota, period = (read_text(path) or "max").split()
            else:
                quota = read_text(path) or ""
                period = read_text(path.with_name("cpu.cfs_period_us")) or ""
            if int(quota) > 0:
                found.append(int(quota) / int(period))
    return min(found) if found else None


def throttled_count(*, root: Path = ROOT) -> int | None:
    """Return how often the CPU quota has stopped the groups of this process, None if unknown.

    Groups above count too: each keeps its own number, and a quota there stops this process.
    """
    counts: dict[Path, int] = {}
    for path in cgroup_files("cpu", v1="cpu.stat", v2="cpu.stat", root=root):
        count = counter(read_text(path), "nr_throttled")
        if count is not None:
            # The same folder is often mounted under two names.
            counts[path.resolve()] = count
    return sum(counts.values()) if counts else None


def memory_bytes(*, root: Path = ROOT) -> int | None:
    """Return the memory of this machine, or None."""
    return _meminfo("MemTotal", root)


def memory_limit_bytes(*, root: Path = ROOT) -> int | None:
    """Return the least memory limit of the groups of this process, None without one."""
    limits = [whole(path) for path in _memory_groups(root)]
    return min((n for n in limits if n is not None and n < _UNLIMITED_BYTES), default=None)


def available_bytes(*, root: Path = ROOT) -> int | None:
    """Return the memory that can still be taken without swapping, or None where unknown.

    The least of what the machine has and what each memory group leaves; file pages that
    are not in use count as free in both.
    """
    found = [_meminfo("MemAvailable", root)]
    for path in _memory_groups(root):
        limit = whole(path)
        if limit is None or limit >= _UNLIMITED_BYTES:
            continue
        first = path.name == "memory.limit_in_bytes"
        used = whole(path.with_name("memory.usage_in_bytes" if first else "memory.current"))
        stat = read_text(path.with_name("memory.stat"))
        idle = counter(stat, "total_inactive_file" if first else "inactive_file") or 0
        if used is not None:
            found.append(max(0, limit - max(0, used - idle)))
    return min((n for n in found if n is not None), default=None)


def _memory_groups(root: Path) -> list[Path]:
    return cgroup_files("memory", v1="memory.limit_in_bytes", v2="memory.max", root=root)


def _meminfo(name: str, root: Path) -> int | None:
    kilobytes = counter(read_text(root / "proc/meminfo"), name)
    return None if kilobytes is None else kilobytes * 1024
