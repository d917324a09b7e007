"""Machines made of files: what ``/sys`` and ``/proc`` look like on hosts that are not here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

CPUS = "sys/devices/system/cpu"


def write(root: Path, files: Mapping[str, object]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def cores(root: Path, groups: Sequence[Sequence[int]], *, package: int = 0) -> None:
    """Physical cores, each with its SMT siblings."""
    for number, group in enumerate(groups):
        for cpu in group:
            below = f"{CPUS}/cpu{cpu}/topology"
            write(
                root,
                {
                    f"{below}/core_cpus_list": ",".join(map(str, group)),
                    f"{below}/core_id": number,
                    f"{below}/physical_package_id": package,
                },
            )


def hybrid(root: Path) -> Path:
    """Two P cores with two threads each (CPUs 0 to 3), four E cores (4 to 7)."""
    cores(root, [(0, 1), (2, 3), (4,), (5,), (6,), (7,)])
    return write(
        root,
        {"sys/devices/cpu_core/cpus": "0-3", "sys/devices/cpu_atom/cpus": "4-7"},
    )


def big_little(root: Path) -> Path:
    """An Arm board: four little cores first, two big ones after them."""
    cores(root, [(cpu,) for cpu in range(6)])
    return write(
        root, {f"{CPUS}/cpu{cpu}/cpu_capacity": 430 if cpu < 4 else 1024 for cpu in range(6)}
    )


def dual_socket(root: Path) -> Path:
    """Two sockets of four cores; siblings are eight apart, as Linux numbers them."""
    for package in (0, 1):
        first = 4 * package
        cores(root, [(cpu, cpu + 8) for cpu in range(first, first + 4)], package=package)
        write(
            root,
            {
                f"sys/devices/system/node/node{package}/cpulist": (
                    f"{first}-{first + 3},{first + 8}-{first + 11}"
                )
            },
        )
    return root


def with_quota(root: Path, cpus: float) -> Path:
    return write(
        root,
        {
            "proc/self/cgroup": "0::/box",
            "sys/fs/cgroup/box/cpu.max": f"{int(cpus * 100000)} 100000",
        },
    )
