"""Limits of control groups and of the machine, from files made by hand."""

from __future__ import annotations

from pathlib import Path

import machines
import pytest

from ngraphbench.environments.systemfiles import (
    available_bytes,
    cpu_list,
    memory_limit_bytes,
    throttled_count,
)

MIB = 1024**2


def test_a_limit_of_a_group_above_holds_below(tmp_path: Path) -> None:
    machines.write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b",
            "proc/meminfo": "MemTotal: 4194304 kB\nMemAvailable: 2097152 kB",
            "sys/fs/cgroup/a/b/memory.max": "max",
            "sys/fs/cgroup/a/memory.max": 512 * MIB,
            "sys/fs/cgroup/a/memory.current": 400 * MIB,
            "sys/fs/cgroup/a/memory.stat": f"anon 1\ninactive_file {100 * MIB}",
        },
    )
    assert memory_limit_bytes(root=tmp_path) == 512 * MIB
    assert available_bytes(root=tmp_path) == 212 * MIB


def test_the_first_version_of_groups(tmp_path: Path) -> None:
    machines.write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/x\n0::/",
            "proc/meminfo": "MemAvailable: 1024 kB",
            "sys/fs/cgroup/memory/x/memory.limit_in_bytes": 9223372036854771712,
            "sys/fs/cgroup/memory/x/memory.usage_in_bytes": 5,
        },
    )
    assert memory_limit_bytes(root=tmp_path) is None
    assert available_bytes(root=tmp_path) == MIB


def test_nothing_is_told(tmp_path: Path) -> None:
    assert memory_limit_bytes(root=tmp_path) is None
    assert available_bytes(root=tmp_path) is None
    assert throttled_count(root=tmp_path) is None


def test_one_folder_under_two_names_counts_once(tmp_path: Path) -> None:
    machines.write(
        tmp_path,
        {
            "proc/self/cgroup": "2:cpu,cpuacct:/a",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.stat": "nr_periods 9\nnr_throttled 3",
        },
    )
    (tmp_path / "sys/fs/cgroup/cpu").symlink_to("cpu,cpuacct")
    assert throttled_count(root=tmp_path) == 3


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-2,5", (0, 1, 2, 5)), ("7", (7,)), ("", ()), (None, ()), ("x", ())]
)
def test_lists_of_cpus(text: str | None, cpus: tuple[int, ...]) -> None:
    assert cpu_list(text) == cpus
