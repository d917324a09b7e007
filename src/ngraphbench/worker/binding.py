"""Binds this process to a CPU set and to the memory beside it, before a vendor is imported."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ngraphbench.errors import Unavailable
from ngraphbench.types import Json

__all__ = ["bind", "node_cpus"]

NODES = Path("/sys/devices/system/node")
MPOL_BIND = 2
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
"""Numbers of the system call; the C library has no wrapper for it."""


def bind(cpus: Sequence[int], *, nodes: Path = NODES) -> Json:
    """Return what this process is bound to: ``{"cpus": [...], "memory": text}``.

    Threads that are there already, and all that will be started, run on ``cpus`` alone;
    memory is taken from their NUMA node where they lie on one and there are several. An
    empty ``cpus`` leaves everything. Raises Unavailable when the CPUs cannot be had.
    """
    if not cpus or not hasattr(os, "sched_setaffinity"):
        why = "this system binds no process" if cpus else "no CPU set"
        return {"cpus": [], "memory": f"not bound: {why}"}
    # numpy has started threads by now, so each thread is bound and not only this one.
    threads = [0]
    with suppress(OSError):
        threads += [int(task.name) for task in Path("/proc/self/task").iterdir()]
    try:
        os.sched_setaffinity(0, cpus)
    except (OSError, ValueError) as error:
        raise Unavailable(
            f"The worker cannot be bound to the CPUs {list(cpus)}: {error}.",
            reason="affinity",
            hint=f"It may use {sorted(os.sched_getaffinity(0))}.",
        ) from error
    for thread in threads[1:]:
        with suppress(OSError):
            os.sched_setaffinity(thread, cpus)
    return {"cpus": sorted(os.sched_getaffinity(0)), "memory": _bind_memory(cpus, nodes)}


def node_cpus(nodes: Path = NODES) -> dict[int, set[int]]:
    """Return the CPUs of each NUMA node; empty where the system does not tell."""
    found: dict[int, set[int]] = {}
    for folder in nodes.glob("node[0-9]*"):
        with suppress(OSError, ValueError):
            spans = (folder / "cpulist").read_text().strip().split(",")
            pairs = [span.partition("-") for span in spans if span]
            found[int(folder.name[4:])] = {
                cpu for low, _, high in pairs for cpu in range(int(low), int(high or low) + 1)
            }
    return found


def _bind_memory(cpus: Sequence[int], nodes: Path) -> str:
    found = node_cpus(nodes)
    if len(found) < 2:
        return "not bound: one NUMA node"
    own = [node for node, members in found.items() if members & set(cpus)]
    if len(own) != 1:
        return f"not bound: the CPU set lies on {len(own)} NUMA nodes"
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        return f"not bound: not known how on {platform.machine()}"
    words = own[0] // 64 + 1
    mask = (ctypes.c_uint64 * words)()
    mask[own[0] // 64] = 1 << (own[0] % 64)
    # The kernel reads one bit less than it is told.
    size = words * 64 + 1
    call = ctypes.CDLL(None, use_errno=True).syscall
    if call(ctypes.c_long(number), MPOL_BIND, mask, ctypes.c_ulong(size)) != 0:
        return f"not bound: {os.strerror(ctypes.get_errno())}"
    return f"bound to NUMA node {own[0]}"
