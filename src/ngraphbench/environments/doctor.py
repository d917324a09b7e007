"""What this host is, as lines for people: cores and the CPU set, limits, settings, sensors."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ngraphbench.environments.energy import EnergyMeter, find_energy
from ngraphbench.environments.host import disturbances, host_facts
from ngraphbench.environments.systemfiles import ROOT, available_bytes, quota_cpus
from ngraphbench.environments.thermal import NOT_YET_RUN, Sensors, find_sensors
from ngraphbench.environments.topology import CpuChoice, Topology, choose_cpus, read_topology
from ngraphbench.types import Device, Json

__all__ = ["examine"]

GIB = 2**30


def examine(*, accelerator: str = "cpu", root: Path = ROOT) -> Json:
    """Return ``host``, ``cpu_set``, ``sensors``, ``disturbances``, and ``lines`` for people.

    ``lines`` maps a word to a sentence, in the order they are shown. Sensors of a GPU are
    looked for when ``accelerator`` is ``cuda``.
    """
    topology = read_topology(root=root)
    quota = quota_cpus(root=root)
    choice = choose_cpus(topology, quota=quota)
    sensors = find_sensors(choice.cpus, accelerator=accelerator, root=root)
    energy = find_energy(Device(accelerator=accelerator), root=root)
    host = host_facts(root=root)
    return {
        "host": host,
        "cpu_set": {
            "threads": choice.threads,
            "cpus": list(choice.cpus),
            "reason": choice.reason,
        },
        "sensors": [*sensors.names(), *_counters(energy)],
        "disturbances": disturbances(root=root),
        "lines": {
            "machine": _machine(host),
            "cores": _cores(topology, host),
            "programs get": _choice(choice),
            "limits": _limits(quota, host),
            "frequency": _frequency(host),
            "memory": _memory(host, available_bytes(root=root)),
            "sensors": _sensors(sensors, energy),
        },
    }


def _machine(host: Json) -> str:
    virtual = ", virtual" if host["hypervisor"] else ""
    return f"{host['cpu_model']}{virtual}, {host['os']}, kernel {host['kernel']}"


def _cores(topology: Topology, host: Json) -> str:
    kinds = topology.kinds()
    parts = []
    for kind in kinds:
        count = sum(core.kind == kind for core in topology.cores)
        named = "" if len(kinds) == 1 else f" of class {kind}"
        parts.append(f"{count} physical core{'s' if count > 1 else ''}{named}")
    smt = f"{topology.siblings} threads each" if topology.siblings > 1 else "no SMT"
    nodes = len(host["numa"] or {"0": []})
    return f"{', '.join(parts)}; {smt}; {nodes} NUMA node{'s' if nodes > 1 else ''}"


def _choice(choice: CpuChoice) -> str:
    threads = f"{choice.threads} thread{'s' if choice.threads > 1 else ''}"
    cpus = _spans(choice.cpus)
    return f"{threads} on CPU{'s' if len(choice.cpus) > 1 else ''} {cpus} ({choice.reason})"


def _spans(numbers: Iterable[int]) -> str:
    """Return numbers as ``0-3, 8``."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


def _limits(quota: float | None, host: Json) -> str:
    cpus = "no CPU quota" if quota is None else f"a quota of {quota:g} CPUs"
    limit = host["memory_limit_bytes"]
    memory = "no memory limit" if limit is None else f"at most {limit / GIB:.1f} GiB"
    return f"{cpus}, {memory}"


def _frequency(host: Json) -> str:
    bounds = host["frequency_limits_khz"] or host["frequency_khz"]
    told = [
        f"governor {host['governor']}" if host["governor"] else "",
        "" if host["turbo"] is None else f"turbo {'on' if host['turbo'] else 'off'}",
        f"preference {host['energy_preference']}" if host["energy_preference"] else "",
        f"{bounds['min'] / 1e6:.1f} to {bounds['max'] / 1e6:.1f} GHz" if bounds else "",
        f"power mode {host['power_mode']}" if host["power_mode"] else "",
        "" if host["on_battery"] is None else ("on battery" if host["on_battery"] else "on mains"),
    ]
    return ", ".join(text for text in told if text) or "not told here"


def _memory(host: Json, available: int | None) -> str:
    total = host["memory_bytes"]
    parts = ["size not told" if total is None else f"{total / GIB:.0f} GiB"]
    if available is not None:
        parts.append(f"{available / GIB:.1f} GiB available")
    if host["thp"]:
        parts.append(f"huge pages {host['thp']}")
    return ", ".join(parts)


def _counters(energy: EnergyMeter) -> list[str]:
    return [f"energy ({name})" for name in energy.names]


def _sensors(sensors: Sensors, energy: EnergyMeter) -> str:
    found = sensors.names()
    wanted = ("frequency", "temperature", "throttle counters")
    missing = [name for name in wanted if not any(n.startswith(name) for n in found)]
    marked = [f"{name}, not yet run on hardware" if name in NOT_YET_RUN else name for name in found]
    if sensors.frequency_source == "cpuinfo":
        marked[0] += ", evidence only once it moves"
    marked += [f"{name}, not yet run on hardware" for name in _counters(energy)]
    text = "; ".join(marked) or "none"
    return f"{text}. Not found: {', '.join(missing)}" if missing else text
