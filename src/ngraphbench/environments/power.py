"""What power management is set to: turbo, preference, battery, and a board's power mode.

Sensors and settings of Jetson boards are read from files alone and have not yet been run on
hardware.
"""

from __future__ import annotations

import re
from pathlib import Path

from ngraphbench.environments.systemfiles import ROOT, read_text, whole
from ngraphbench.types import Json

__all__ = ["on_battery", "power_facts"]

CPUS = "sys/devices/system/cpu"
EMC = "sys/kernel/debug/bpmp/debug/clk/emc"
NVPMODEL_CONFIGURATION = "etc/nvpmodel.conf"
NVPMODEL_STATUS = "var/lib/nvpmodel/status"


def power_facts(*, root: Path = ROOT) -> Json:
    """Return the power settings of a session record's ``host``, each None where not told."""
    return {
        "turbo": _turbo(root),
        "energy_preference": _joined(root, "energy_performance_preference"),
        "frequency_limits_khz": _limits_khz(root),
        "frequency_locked": _locked(root),
        "on_battery": on_battery(root=root),
        "power_mode": _power_mode(root),
        "emc_hz": whole(root / EMC / "rate"),
        "emc_max_hz": whole(root / EMC / "max_rate"),
    }


def on_battery(*, root: Path = ROOT) -> bool | None:
    """Return whether this host runs on its battery; None where it tells of no supply."""
    mains: list[bool] = []
    discharging: list[bool] = []
    for folder in (root / "sys/class/power_supply").glob("*"):
        kind = read_text(folder / "type")
        if kind in ("Mains", "USB") and (online := whole(folder / "online")) is not None:
            mains.append(online > 0)
        # Batteries of mice and pens say that they belong to a device.
        elif kind == "Battery" and read_text(folder / "scope") != "Device":
            discharging.append(read_text(folder / "status") == "Discharging")
    if not discharging:
        return False if any(mains) else None
    return any(discharging) and not any(mains)


def _turbo(root: Path) -> bool | None:
    off = whole(root / CPUS / "intel_pstate/no_turbo")
    if off is not None:
        return off == 0
    boost = whole(root / CPUS / "cpufreq/boost")
    if boost is None:
        found = {whole(path) for path in _policies(root, "boost")} - {None}
        return any(found) if found else None
    return boost > 0


def _policies(root: Path, name: str) -> list[Path]:
    return sorted((root / CPUS).glob(f"cpu[0-9]*/cpufreq/{name}"))


def _joined(root: Path, name: str) -> str | None:
    return ",".join(sorted({t for p in _policies(root, name) if (t := read_text(p))})) or None


def _limits_khz(root: Path) -> Json | None:
    low = [n for p in _policies(root, "scaling_min_freq") if (n := whole(p)) is not None]
    high = [n for p in _policies(root, "scaling_max_freq") if (n := whole(p)) is not None]
    return {"min": min(low), "max": max(high)} if low and high else None


def _locked(root: Path) -> bool | None:
    """Whether every CPU may run at one frequency only, which is what jetson_clocks sets."""
    pairs = [
        (whole(path), whole(path.with_name("scaling_max_freq")))
        for path in _policies(root, "scaling_min_freq")
    ]
    return all(low == high for low, high in pairs) if pairs else None


def _power_mode(root: Path) -> str | None:
    """Return the power mode of a Jetson as ``MAXN (0)``: what ``nvpmodel -q`` prints."""
    mode = re.search(r"pmode:(\d+)", read_text(root / NVPMODEL_STATUS) or "")
    if mode is None:
        return None
    number = int(mode[1])
    settings = read_text(root / NVPMODEL_CONFIGURATION) or ""
    name = re.search(rf"<\s*POWER_MODEL\s+ID={number}\s+NAME=(\S+)\s*>", settings)
    return f"{name[1]} ({number})" if name else str(number)
