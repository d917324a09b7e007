"""What ``/proc`` tells of a process and its descendants, and how to end them all."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ngraphbench.environments.systemfiles import cgroup_files, counter, read_text

__all__ = [
    "descendants",
    "kernel_oom_kills",
    "peak_rss_bytes",
    "pss_bytes",
    "reap",
    "rss_bytes",
    "send_signal",
    "signal_name",
    "state",
]

PROC = Path("/proc")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes below ``pid``, children before grandchildren."""
    if not (PROC / f"self/task/{os.getpid()}/children").exists():
        return _descendants_by_parent(pid)
    found: list[int] = []
    queue = [pid]
    while queue:
        parent = queue.pop(0)
        for child in _children(parent):
            if child not in found:
                found.append(child)
                queue.append(child)
    return found


def rss_bytes(pid: int) -> int:
    """Return a process's resident memory in bytes, 0 when it is gone."""
    try:
        return int((PROC / f"{pid}/statm").read_bytes().split()[1]) * PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def pss_bytes(pid: int) -> int:
    """Return a process's share of resident memory in bytes: pages shared by n count 1/n."""
    try:
        text = (PROC / f"{pid}/smaps_rollup").read_text()
    except OSError:
        return rss_bytes(pid)
    return _kilobytes(text, "Pss") or rss_bytes(pid)


def peak_rss_bytes(pid: int) -> int:
    """Return the most resident memory a process ever had in bytes, 0 when it is gone."""
    try:
        return _kilobytes((PROC / f"{pid}/status").read_text(), "VmHWM")
    except OSError:
        return 0


def state(pid: int) -> str:
    """Return a process's state letter, such as S or T (stopped); "" when it is gone."""
    try:
        return (PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def send_signal(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each process; those that are gone are passed over."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def reap(pid: int) -> None:
    """Take leave of a child that was killed; of nobody else's."""
    # Orphans of a worker are this process's children when it is a subreaper.
    deadline = time.monotonic() + 0.2
    with suppress(OSError):
        while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.002)


def signal_name(number: int) -> str:
    """Return a signal's name, such as SIGSEGV, or its number where it has none.

    >>> signal_name(11), signal_name(40)
    ('SIGSEGV', '40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def kernel_oom_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory, as far as seen here."""
    files = cgroup_files("memory", v1="memory.oom_control", v2="memory.events")
    counts = (counter(read_text(path), "oom_kill") for path in (PROC / "vmstat", *files))
    return sum(count or 0 for count in counts)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(PROC / f"{pid}/task"):  # noqa: PTH208
            with suppress(OSError):
                text = (PROC / f"{pid}/task/{task}/children").read_text()
                found += [int(child) for child in text.split()]
    return found


def _descendants_by_parent(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(folder.name))
    found: list[int] = []
    queue = [pid]
    while queue:
        below = children.get(queue.pop(0), [])
        found += below
        queue += below
    return found


def _kilobytes(text: str, key: str) -> int:
    found = re.search(rf"^{key}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
