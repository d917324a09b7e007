"""Which CPUs a program gets, on machines made of files."""

from __future__ import annotations

import os
from pathlib import Path

import machines
import pytest

from ngraphbench.environments.systemfiles import quota_cpus
from ngraphbench.environments.topology import (
    CpuChoice,
    bound_to,
    choose_cpus,
    default_threads,
    read_topology,
)


def chosen(root: Path, usable: range | tuple[int, ...]) -> CpuChoice:
    return choose_cpus(read_topology(root=root, usable=usable), quota=quota_cpus(root=root))


def test_hybrid_intel_gets_one_cpu_of_each_fast_core(tmp_path: Path) -> None:
    choice = chosen(machines.hybrid(tmp_path), range(8))
    assert (choice.threads, choice.cpus) == (2, (0, 2))
    assert "performance" in choice.reason and "SMT" in choice.reason


def test_more_threads_widen_the_set_before_they_share_a_core(tmp_path: Path) -> None:
    choice = chosen(machines.hybrid(tmp_path), range(8))
    assert choice.first(1) == (0,)
    assert choice.first(4) == (0, 2, 4, 5)
    assert choice.first(6) == (0, 2, 4, 5, 6, 7)
    assert choice.first(7) == (0, 1, 2, 4, 5, 6, 7)
    assert choice.first(99) == tuple(range(8))


def test_big_little_gets_the_big_cores(tmp_path: Path) -> None:
    topology = read_topology(root=machines.big_little(tmp_path), usable=range(6))
    choice = choose_cpus(topology)
    assert (choice.threads, choice.cpus) == (2, (4, 5))
    assert topology.kinds() == ("capacity 1024", "capacity 430")
    assert topology.to_json()[1]["cores"] == [[0], [1], [2], [3]]


def test_frequency_tells_classes_where_nothing_else_does(tmp_path: Path) -> None:
    machines.cores(tmp_path, [(cpu,) for cpu in range(4)])
    files = {0: 1800000, 1: 1800000, 2: 2400000, 3: 2400000}
    for cpu, khz in files.items():
        name = f"{machines.CPUS}/cpu{cpu}/cpufreq/cpuinfo_max_freq"
        machines.write(tmp_path, {name: khz})
    assert chosen(tmp_path, range(4)).cpus == (2, 3)


def test_a_favoured_core_is_no_class_of_its_own(tmp_path: Path) -> None:
    machines.cores(tmp_path, [(cpu,) for cpu in range(4)])
    for cpu, khz in {0: 5100000, 1: 4900000, 2: 4900000, 3: 4900000}.items():
        name = f"{machines.CPUS}/cpu{cpu}/cpufreq/cpuinfo_max_freq"
        machines.write(tmp_path, {name: khz})
    assert chosen(tmp_path, range(4)).threads == 4


def test_two_sockets(tmp_path: Path) -> None:
    topology = read_topology(root=machines.dual_socket(tmp_path), usable=range(16))
    choice = choose_cpus(topology)
    assert (choice.threads, choice.cpus) == (8, tuple(range(8)))
    assert {core.package for core in topology.cores} == {0, 1}
    # As many as one node holds lie on one node, and one more does not.
    assert topology.nodes_of(choice.first(4)) == (0,)
    assert topology.nodes_of(choice.first(5)) == (0, 1)


def test_the_node_that_holds_all_threads_is_taken(tmp_path: Path) -> None:
    machines.with_quota(machines.dual_socket(tmp_path), 3.0)
    choice = chosen(tmp_path, (0, 4, 5, 6, 7, 12))
    assert (choice.threads, choice.cpus) == (3, (4, 5, 6))
    assert "NUMA node 1" in choice.reason


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    topology = read_topology(root=tmp_path, usable=range(3))
    choice = choose_cpus(topology)
    assert (choice.threads, choice.cpus) == (3, (0, 1, 2))
    assert topology.siblings == 1 and topology.nodes_of(choice.cpus) == ()


@pytest.mark.parametrize(("quota", "threads"), [(0.4, 1), (1.5, 1), (2.9, 2), (64.0, 2)])
def test_a_quota_pays_for_whole_threads(tmp_path: Path, quota: float, threads: int) -> None:
    machines.with_quota(machines.hybrid(tmp_path), quota)
    choice = chosen(tmp_path, range(8))
    assert choice.threads == threads and len(choice.cpus) == threads
    assert ("quota" in choice.reason) == (quota < 2)


def test_affinity_decides_what_there_is(tmp_path: Path) -> None:
    # Of the P cores only one sibling may be used: the other is not a core of its own.
    choice = chosen(machines.hybrid(tmp_path), (3, 4, 5))
    assert (choice.threads, choice.cpus) == (1, (3,))
    assert choice.first(2) == (3, 4)
    assert chosen(tmp_path, (4, 5, 6)).cpus == (4, 5, 6)


def test_the_default_here_is_within_the_affinity() -> None:
    assert 1 <= default_threads() <= len(os.sched_getaffinity(0))


def test_binding_ends_and_never_fails() -> None:
    before = os.sched_getaffinity(0)
    with bound_to((min(before),)):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
    with bound_to((100_000,)):
        assert os.sched_getaffinity(0) == before
