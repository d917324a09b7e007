"""What is known of this host, each fact None where the system does not tell it."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from contextlib import suppress
from pathlib import Path

from ngraphbench.environments.power import power_facts
from ngraphbench.environments.systemfiles import (
    ROOT,
    cpu_list,
    memory_bytes,
    memory_limit_bytes,
    quota_cpus,
    read_text,
)
from ngraphbench.environments.topology import NODES, affinity, read_topology
from ngraphbench.types import Json
from ngraphbench.worker.binding import node_cpus

__all__ = ["disturbances", "host_facts", "host_id"]

PSI_LIMIT_PERCENT = 20.0


def host_facts(*, root: Path = ROOT) -> Json:
    """Return the ``host`` part of a session record.

    ``root`` is where ``proc``, ``sys`` and ``etc`` are looked for.
    """
    cpuinfo = _cpuinfo(root)
    flags = cpuinfo.get("flags") or cpuinfo.get("Features") or ""
    numa = node_cpus(root / NODES)
    return {
        "cpu_model": _cpu_model(cpuinfo),
        "cpu_flags": sorted(flags.split()) or None,
        "logical_cpus": os.cpu_count(),
        "physical_cores": _physical_cores(root),
        "smt": _smt(root),
        "numa_nodes": len(numa) or None,
        "governor": _governor(root),
        "frequency_khz": _frequency_khz(root),
        "quota_cpus": quota_cpus(root=root),
        "thp": _chosen(_text(root, "sys/kernel/mm/transparent_hugepage/enabled")),
        "os": _os_name(root),
        "kernel": platform.release() or None,
        "python": platform.python_version(),
        "memory_bytes": memory_bytes(root=root),
        "memory_limit_bytes": memory_limit_bytes(root=root),
        "hypervisor": "hypervisor" in flags.split(),
        "affinity": list(affinity()),
        "core_classes": read_topology(root=root, usable=_online(root)).to_json(),
        "numa": {str(node): sorted(cpus) for node, cpus in sorted(numa.items())} or None,
        # Nothing here drops the cache, so whether files came from it is not known.
        "page_cache": "unknown",
        **power_facts(root=root),
    }


def host_id(*, root: Path = ROOT) -> str:
    """Return 16 hex digits that stay the same on this host: machine and CPU model."""
    machine = _text(root, "etc/machine-id") or platform.node()
    model = _cpu_model(_cpuinfo(root)) or platform.machine()
    return hashlib.sha256(f"{machine}\n{model}".encode()).hexdigest()[:16]


def disturbances(*, root: Path = ROOT) -> list[str]:
    """Return what may disturb a measurement now and its cure, a line each; empty when quiet."""
    found = []
    usable = len(affinity())
    with suppress(ValueError, IndexError):
        load = float((_text(root, "proc/loadavg") or "").split()[0])
        if load > (os.cpu_count() or 1):
            found.append(
                f"The load average is {load:g} on {os.cpu_count()} CPUs: end other work first."
            )
    pressure = re.search(r"^some avg10=([\d.]+)", _text(root, "proc/pressure/cpu") or "")
    if pressure and float(pressure[1]) > PSI_LIMIT_PERCENT:
        found.append(
            f"Processes waited for a CPU in {pressure[1]} % of the last 10 s: end other work."
        )
    quota = quota_cpus(root=root)
    if quota is not None and quota < usable:
        found.append(
            f"A quota of {quota:g} CPUs is below the {usable} CPUs that can be used: give the"
            " container whole CPUs (--cpuset-cpus)."
        )
    return found + _settings(root)


def _settings(root: Path) -> list[str]:
    """Return the settings of frequency and power that make speed change, with their cures."""
    found = []
    governor, power = _governor(root), power_facts(root=root)
    if governor not in (None, "performance"):
        cure = "cpupower frequency-set -g performance"
        found.append(f"The CPU frequency governor is {governor}, not performance: `{cure}`.")
    preference = power["energy_preference"]
    if preference not in (None, "performance") and governor != "performance":
        cure = "cpupower set --epp performance"
        found.append(f"The energy preference is {preference}: `{cure}`.")
    if power["on_battery"]:
        found.append("The machine runs on its battery: plug it in.")
    if power["power_mode"] and not power["power_mode"].startswith("MAXN"):
        found.append(f"The power mode is {power['power_mode']}: `nvpmodel -m 0` lifts the limits.")
    if power["power_mode"] and power["frequency_locked"] is False:
        found.append("Clocks are not locked: `jetson_clocks` pins them.")
    return found


def _text(root: Path, name: str) -> str | None:
    return read_text(root / name)


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


def _online(root: Path) -> tuple[int, ...]:
    return cpu_list(_text(root, "sys/devices/system/cpu/online")) or affinity()


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
