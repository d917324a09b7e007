"""Packages, nodes, cores and core classes of this host, and which CPUs a program gets.

Equal threads need equal cores: the CPU set is one CPU of each physical core of the fastest
class, on one NUMA node where a node holds them all. Two threads on one core, or one on a fast
and one on a slow core, would measure the placement and not the program.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ngraphbench.environments.systemfiles import ROOT, cpu_list, quota_cpus, read_text, whole
from ngraphbench.types import Json
from ngraphbench.worker.binding import node_cpus

__all__ = [
    "CpuChoice",
    "CpuCore",
    "Topology",
    "affinity",
    "bound_to",
    "choose_cpus",
    "default_threads",
    "read_topology",
]

CLASS_SHARE = 0.85
"""A core belongs to the class of the fastest one that it comes this near to: favoured cores
that boost a little higher are no class of their own, the middle cores of three sizes may be."""

CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"


@dataclass(frozen=True, slots=True)
class CpuCore:
    """A physical core: ``cpus`` are those of its SMT siblings that may be used here.

    ``speed`` compares cores of this host with each other (capacity, or frequency); 0 where
    nothing is told. ``node`` and ``package`` are None where the system does not tell them.
    """

    cpus: tuple[int, ...]
    kind: str
    speed: float = 0.0
    node: int | None = None
    package: int | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """The cores that may be used here, fastest class first, the fullest node first in it."""

    cores: tuple[CpuCore, ...]
    siblings: int = 1
    """The most SMT siblings that a core has, those that may not be used included."""

    def kinds(self) -> tuple[str, ...]:
        """Return the core classes, fastest first."""
        return tuple(dict.fromkeys(core.kind for core in self.cores))

    def best_cores(self) -> tuple[CpuCore, ...]:
        """Return the cores of the fastest class."""
        return tuple(core for core in self.cores if core.kind == self.cores[0].kind)

    def order(self) -> tuple[int, ...]:
        """Return all CPUs, best first: the first n are the set for n threads.

        One of each core, class by class; SMT siblings only after all cores.
        """
        most = max((len(core.cpus) for core in self.cores), default=0)
        return tuple(
            core.cpus[level]
            for level in range(most)
            for core in self.cores
            if level < len(core.cpus)
        )

    def nodes_of(self, cpus: Sequence[int]) -> tuple[int, ...]:
        """Return the NUMA nodes that ``cpus`` lie on, as far as told."""
        found = {core.node for core in self.cores if set(core.cpus) & set(cpus)}
        return tuple(sorted(node for node in found if node is not None))

    def to_json(self) -> list[Json]:
        """Return one object per core class: its name, speed, and the CPUs of each core."""
        return [
            {
                "kind": kind,
                "speed": max(core.speed for core in self.cores if core.kind == kind) or None,
                "cores": [list(core.cpus) for core in self.cores if core.kind == kind],
            }
            for kind in self.kinds()
        ]


@dataclass(frozen=True, slots=True)
class CpuChoice:
    """How many threads a program gets by default, on which CPUs, and why."""

    threads: int
    cpus: tuple[int, ...]
    order: tuple[int, ...]
    reason: str

    def first(self, threads: int) -> tuple[int, ...]:
        """Return the CPU set for another number of threads: wider before oversubscribed."""
        return tuple(sorted(self.order[:threads]))


def affinity() -> tuple[int, ...]:
    """Return the CPUs that this thread may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def read_topology(*, root: Path = ROOT, usable: Sequence[int] | None = None) -> Topology:
    """Return the cores that hold the CPUs in ``usable`` (this thread's affinity unless given).

    Where ``/sys`` tells nothing, as in some virtual machines, every CPU is a core of its own.
    """
    allowed = affinity() if usable is None else tuple(sorted(usable))
    nodes = _nodes(root)
    speeds, kinds = _classes(root, allowed)
    cores: dict[tuple[int, ...], CpuCore] = {}
    siblings = 1
    for cpu in allowed:
        below = root / CPUS / f"cpu{cpu}" / "topology"
        told = read_text(below / "core_cpus_list") or read_text(below / "thread_siblings_list")
        whole_core = cpu_list(told) or (cpu,)
        siblings = max(siblings, len(whole_core))
        here = tuple(other for other in whole_core if other in allowed) or (cpu,)
        cores[here] = CpuCore(
            cpus=here,
            kind=kinds[cpu],
            speed=speeds[cpu],
            node=nodes.get(cpu),
            package=whole(below / "physical_package_id"),
        )
    return Topology(_ordered(list(cores.values())), siblings)


def _ordered(cores: list[CpuCore]) -> tuple[CpuCore, ...]:
    """Fastest class first; in it, the node with most cores first, so that a prefix fits one."""
    fastest = {core.kind: 0.0 for core in cores}
    for core in cores:
        fastest[core.kind] = max(fastest[core.kind], core.speed)

    def rank(core: CpuCore) -> tuple[float, str, int, int, int]:
        alike = sum(o.kind == core.kind and o.node == core.node for o in cores)
        node = -1 if core.node is None else core.node
        return (-fastest[core.kind], core.kind, -alike, node, core.cpus[0])

    return tuple(sorted(cores, key=rank))


def _nodes(root: Path) -> dict[int, int]:
    return {cpu: node for node, cpus in node_cpus(root / NODES).items() for cpu in cpus}


def _classes(root: Path, cpus: Sequence[int]) -> tuple[dict[int, float], dict[int, str]]:
    """Return speed and core class of each CPU.

    Intel hybrids name their classes; elsewhere the scheduler's capacity decides, then the
    highest frequency.
    """
    named = {
        cpu: kind
        for kind, device in (("performance", "cpu_core"), ("efficiency", "cpu_atom"))
        for cpu in cpu_list(read_text(root / f"sys/devices/{device}/cpus"))
    }
    if len(set(named.values())) > 1 and all(cpu in named for cpu in cpus):
        speeds = {"performance": 2.0, "efficiency": 1.0}
        return {cpu: speeds[named[cpu]] for cpu in cpus}, {cpu: named[cpu] for cpu in cpus}
    for name, prefix in (("cpu_capacity", "capacity"), ("cpufreq/cpuinfo_max_freq", "kHz")):
        found = {cpu: float(whole(root / CPUS / f"cpu{cpu}" / name) or 0) for cpu in cpus}
        if all(found.values()):
            return found, _banded(found, prefix)
    return dict.fromkeys(cpus, 0.0), dict.fromkeys(cpus, "core")


def _banded(speeds: dict[int, float], prefix: str) -> dict[int, str]:
    kinds: dict[int, str] = {}
    top = 0.0
    for cpu, speed in sorted(speeds.items(), key=lambda item: -item[1]):
        if not top or speed < CLASS_SHARE * top:
            top = speed
        kinds[cpu] = f"{prefix} {top:g}"
    return kinds if len(set(kinds.values())) > 1 else dict.fromkeys(speeds, "core")


def choose_cpus(topology: Topology, *, quota: float | None = None) -> CpuChoice:
    """Return the default threads and their CPU set.

    As many threads as the quota pays for in full, and at most one per physical core of the
    fastest class.
    """
    best, order = topology.best_cores(), topology.order()
    threads = len(best) if quota is None else min(len(best), math.floor(quota))
    threads = max(1, threads)
    cpus = tuple(sorted(order[:threads]))
    return CpuChoice(threads, cpus, order, _reason(topology, threads, cpus, quota))


def _reason(topology: Topology, threads: int, cpus: Sequence[int], quota: float | None) -> str:
    best = topology.best_cores()
    counted = f"{threads} core{'s' if threads > 1 else ''}"
    parts = ["one CPU of each physical core" if threads == len(best) else counted]
    if len(topology.kinds()) > 1:
        parts.append(f"the {len(best)} cores of class {best[0].kind} of {len(topology.cores)}")
    if quota is not None and math.floor(quota) < len(best):
        parts.append(f"a quota of {quota:g} CPUs")
    nodes = topology.nodes_of(cpus)
    if len({core.node for core in topology.cores}) > 1:
        parts.append(f"NUMA node {nodes[0]}" if len(nodes) == 1 else f"{len(nodes)} NUMA nodes")
    if topology.siblings > 1:
        parts.append("SMT siblings left idle")
    return "; ".join(parts)


def default_threads(*, root: Path = ROOT) -> int:
    """Return how many threads a program gets here unless told otherwise."""
    return choose_cpus(read_topology(root=root), quota=quota_cpus(root=root)).threads


@contextmanager
def bound_to(cpus: Sequence[int]) -> Iterator[None]:
    """Run this thread on ``cpus`` meanwhile; where that cannot be, it runs where it may."""
    before = affinity()
    if not cpus or not hasattr(os, "sched_setaffinity"):
        yield
        return
    with suppress(OSError):
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, before)
