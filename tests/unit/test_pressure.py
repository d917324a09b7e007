"""Counters of the kernel, from files made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ngraphbench.environments.pressure import Counters, pressure_flags, read_counters

QUIET = Counters(wall_ns=0, stalled_us=0, stolen_ticks=0, all_ticks=0, throttled=0)
LATER = replace(QUIET, wall_ns=10**10, all_ticks=2000)


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_counters_are_read(tmp_path: Path):
    write(tmp_path, "proc/pressure/cpu", "some avg10=1 avg60=1 avg300=1 total=123\nfull total=9\n")
    write(tmp_path, "proc/stat", "cpu  10 1 5 100 2 0 3 7 50 0\ncpu0 1\n")
    write(tmp_path, "proc/self/cgroup", "0::/box\n")
    write(tmp_path, "sys/fs/cgroup/box/cpu.stat", "usage_usec 1\nnr_throttled 4\n")
    found = read_counters(5, root=tmp_path)
    assert found == Counters(wall_ns=5, stalled_us=123, stolen_ticks=7, all_ticks=128, throttled=4)


def test_the_first_version_of_cgroups(tmp_path: Path):
    write(tmp_path, "proc/self/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/a\n0::/\n")
    write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/a/cpu.stat", "nr_throttled 2\n")
    assert read_counters(0, root=tmp_path).throttled == 2


def test_what_is_not_kept_is_unknown_and_flags_nothing(tmp_path: Path):
    nothing = read_counters(0, root=tmp_path)
    assert nothing == Counters(wall_ns=0)
    assert pressure_flags(nothing, replace(nothing, wall_ns=10**9)) == []


def test_a_quiet_machine_has_no_flag():
    assert pressure_flags(QUIET, replace(LATER, stalled_us=10**6)) == []


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        ({"stalled_us": 3 * 10**6}, "interference"),
        ({"stolen_ticks": 100}, "steal"),
        ({"throttled": 1}, "quota"),
    ],
)
def test_each_disturbance_has_its_flag(change: dict[str, int], flag: str):
    found = pressure_flags(QUIET, replace(LATER, **change))
    assert [item["flag"] for item in found] == [flag]
