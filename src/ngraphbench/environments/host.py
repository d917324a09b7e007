"""What is known of this host, each fact None where the system does not tell it."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
from contextlib import suppress
from pathlib import Path

from ngraphbench.types import Json

__all__ = ["default_threads", "disturbances", "host_facts", "host_id", "quota_cpus"]

ROOT = Path("/")
PSI_LIMIT_PERCENT = 20.0


def host_facts(*, root: Path = ROOT) -> Json:
    """Return the ``host`` part of a session record.

    ``root`` is where ``proc``, ``sys`` and ``etc`` are looked for.
    """
    cpuinfo = _cpuinfo(root)
    flags = cpuinfo.get("flags") or cpuinfo.get("Features") or ""
    return {
        "cpu_model": _cpu_model(cpuinfo),
        "cpu_flags": sorted(flags.split()) or None,
        "logical_cpus": os.cpu_count(),
        "physical_cores": _physical_cores(root),
        "smt": _smt(root),
        "numa_nodes": _numa_nodes(root),
        "governor": _governor(root),
        "frequency_khz": _frequency_khz(root),
        "quota_cpus": quota_cpus(root=root),
        "thp": _chosen(_text(root, "sys/kernel/mm/transparent_hugepage/enabled")),
        "os": _os_name(root),
        "kernel": platform.release() or None,
        "python": platform.python_version(),
        "memory_bytes": _memory_bytes(root),
        "hypervisor": "hypervisor" in flags.split(),
        "affinity": _affinity(),
    }


def host_id(*, root: Path = ROOT) -> str:
    """Return 16 hex digits that stay the same on this host: machine and CPU model."""
    machine = _text(root, "etc/machine-id") or platform.node()
    model = _cpu_model(_cpuinfo(root)) or platform.machine()
    return hashlib.sha256(f"{machine}\n{model}".encode()).hexdigest()[:16]


def default_threads(*, root: Path = ROOT) -> int:
    """Return how many threads a program may use here: the CPUs bound to, within the quota."""
    quota = quota_cpus(root=root)
    usable = len(_affinity())
    return max(1, math.floor(usable if quota is None else min(usable, quota)))


def disturbances(*, root: Path = ROOT) -> list[str]:
    """Return what may disturb a measurement now, one sentence each; empty when all is quiet."""
    found = []
    usable = len(_affinity())
    with suppress(ValueError, IndexError):
        load = float((_text(root, "proc/loadavg") or "").split()[0])
        if load > (os.cpu_count() or 1):
            found.append(f"The load average is {load:g} on {os.cpu_count()} CPUs: other work runs.")
    pressure = re.search(r"^some avg10=([\d.]+)", _text(root, "proc/pressure/cpu") or "")
    if pressure and float(pressure[1]) > PSI_LIMIT_PERCENT:
        found.append(f"Processes waited for a CPU in {pressure[1]} % of the last 10 s.")
    quota = quota_cpus(root=root)
    if quota is not None and quota < usable:
        found.append(f"A quota of {quota:g} CPUs is below the {usable} CPUs that can be used.")
    governor = _governor(root)
    if governor not in (None, "performance"):
        found.append(f"The CPU frequency governor is {governor}, not performance.")
    return found


def quota_cpus(*, root: Path = ROOT) -> float | None:
    """Return the CPU quota of this process in CPUs (cgroup v1 or v2), None without one."""
    quotas = []
    for line in (_text(root, "proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) < 3:
            continue
        for folder in _upwards(parts[2]):
            if not parts[1]:
                quotas.append(_quota_v2(root, folder))
            elif "cpu" in parts[1].split(","):
                quotas.append(_quota_v1(root, folder))
    found = [quota for quota in quotas if quota is not None]
    return min(found) if found else None


def _upwards(path: str) -> list[str]:
    # In a container the path is often the host's and not there, but the top is its own.
    parts = [part for part in path.split("/") if part]
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]


def _quota_v2(root: Path, folder: str) -> float | None:
    with suppress(ValueError, ZeroDivisionError):
        text = _text(root, f"sys/fs/cgroup/{folder}/cpu.max") or "max"
        quota, period = text.split()
        return int(quota) / int(period)
    return None


def _quota_v1(root: Path, folder: str) -> float | None:
    for mount in ("cpu", "cpu,cpuacct", "cpuacct,cpu"):
        with suppress(ValueError, ZeroDivisionError):
            below = f"sys/fs/cgroup/{mount}/{folder}"
            quota = int(_text(root, f"{below}/cpu.cfs_quota_us") or "")
            period = int(_text(root, f"{below}/cpu.cfs_period_us") or "")
            return quota / period if quota > 0 else None
    return None


def _text(root: Path, name: str) -> str | None:
    try:
        return (root / name).read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _cpuinfo(root: Path) -> dict[str, str]:
    """Return the lines of the first CPU (and of the machine, as on Arm), by key."""
    found: dict[str, str] = {}
    for line in (_text(root, "proc/cpuinfo") or "").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            found.setdefault(key.strip(), value.strip())
    return found


def _cpu_model(cpuinfo: dict[str, str]) -> str | None:
    for key in ("model name", "Model", "Hardware"):
        if cpuinfo.get(key):
            return cpuinfo[key]
    if "CPU part" in cpuinfo:
        implementer = cpuinfo.get("CPU implementer", "?")
        return f"Arm implementer {implementer} part {cpuinfo['CPU part']}"
    return platform.processor() or None


def _physical_cores(root: Path) -> int | None:
    cores = set()
    for folder in (root / "sys/devices/system/cpu").glob("cpu[0-9]*"):
        package = _text(folder, "topology/physical_package_id")
        core = _text(folder, "topology/core_id")
        if core is not None:
            siblings = _text(folder, "topology/thread_siblings_list")
            cores.add((package, core, siblings))
    return len(cores) or None


def _smt(root: Path) -> bool | None:
    active = _text(root, "sys/devices/system/cpu/smt/active")
    if active is not None:
        return active == "1"
    siblings = _text(root, "sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
    return None if siblings is None else bool(re.search("[,-]", siblings))


def _numa_nodes(root: Path) -> int | None:
    return len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or None


def _governor(root: Path) -> str | None:
    folder = root / "sys/devices/system/cpu"
    found = {
        text
        for path in folder.glob("cpu[0-9]*/cpufreq")
        if (text := _text(path, "scaling_governor"))
    }
    return ",".join(sorted(found)) or None


def _frequency_khz(root: Path) -> Json | None:
    folder = "sys/devices/system/cpu/cpu0/cpufreq"
    with suppress(ValueError):
        low = int(_text(root, f"{folder}/cpuinfo_min_freq") or "")
        high = int(_text(root, f"{folder}/cpuinfo_max_freq") or "")
        return {"min": low, "max": high}
    return None


def _chosen(text: str | None) -> str | None:
    found = re.search(r"\[(\w+)\]", text or "")
    return found[1] if found else None


def _os_name(root: Path) -> str | None:
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)', _text(root, "etc/os-release") or "", re.M)
    return found[1] if found else platform.system() or None


def _memory_bytes(root: Path) -> int | None:
    found = re.search(r"^MemTotal:\s+(\d+) kB", _text(root, "proc/meminfo") or "", re.M)
    return int(found[1]) * 1024 if found else None


def _affinity() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
