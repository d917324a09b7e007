"""What doctor says of machines made of files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import machines

from ngraphbench.environments.doctor import examine
from ngraphbench.environments.host import disturbances
from ngraphbench.environments.power import on_battery, power_facts

FREQUENCY = f"{machines.CPUS}/cpu0/cpufreq"


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    seen = examine(root=tmp_path)
    assert json.loads(json.dumps(seen)) == seen
    assert seen["cpu_set"]["threads"] == len(os.sched_getaffinity(0))
    assert seen["sensors"] == [] and seen["disturbances"] == []
    assert seen["lines"]["frequency"] == "not told here"
    assert seen["lines"]["limits"] == "no CPU quota, no memory limit"
    assert seen["lines"]["sensors"].startswith("none. Not found: frequency")


def test_a_laptop_on_its_battery(tmp_path: Path) -> None:
    supply = "sys/class/power_supply"
    machines.write(
        tmp_path,
        {
            f"{FREQUENCY}/scaling_governor": "powersave",
            f"{FREQUENCY}/energy_performance_preference": "balance_power",
            f"{FREQUENCY}/scaling_min_freq": 400000,
            f"{FREQUENCY}/scaling_max_freq": 4700000,
            f"{machines.CPUS}/intel_pstate/no_turbo": 0,
            f"{supply}/AC/type": "Mains",
            f"{supply}/AC/online": 0,
            f"{supply}/BAT0/type": "Battery",
            f"{supply}/BAT0/status": "Discharging",
            f"{supply}/mouse/type": "Battery",
            f"{supply}/mouse/scope": "Device",
            f"{supply}/mouse/status": "Discharging",
        },
    )
    facts = power_facts(root=tmp_path)
    assert facts["turbo"] is True and facts["on_battery"] is True
    assert facts["frequency_locked"] is False
    assert facts["frequency_limits_khz"] == {"min": 400000, "max": 4700000}
    told = "\n".join(disturbances(root=tmp_path))
    for cure in ("frequency-set -g performance", "--epp performance", "plug it in"):
        assert cure in told
    said = examine(root=tmp_path)["lines"]["frequency"]
    assert said == (
        "governor powersave, turbo on, preference balance_power, 0.4 to 4.7 GHz, on battery"
    )
    machines.write(tmp_path, {f"{supply}/AC/online": 1, f"{supply}/BAT0/status": "Charging"})
    assert on_battery(root=tmp_path) is False


def test_a_mouse_is_no_supply(tmp_path: Path) -> None:
    below = "sys/class/power_supply/mouse"
    files = {"type": "Battery", "scope": "Device", "status": "Discharging"}
    machines.write(tmp_path, {f"{below}/{name}": text for name, text in files.items()})
    assert on_battery(root=tmp_path) is None


def test_a_jetson_that_is_held_back(tmp_path: Path) -> None:
    machines.write(
        tmp_path,
        {
            "var/lib/nvpmodel/status": "pmode:0002 fmode:quiet",
            "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=MAXN >\n< POWER_MODEL ID=2 NAME=15W >",
            f"{FREQUENCY}/scaling_min_freq": 700000,
            f"{FREQUENCY}/scaling_max_freq": 1500000,
            "sys/kernel/debug/bpmp/debug/clk/emc/rate": 2133000000,
        },
    )
    facts = power_facts(root=tmp_path)
    assert facts["power_mode"] == "15W (2)" and facts["emc_hz"] == 2133000000
    told = "\n".join(disturbances(root=tmp_path))
    assert "nvpmodel -m 0" in told and "jetson_clocks" in told
    machines.write(
        tmp_path,
        {"var/lib/nvpmodel/status": "pmode:0000", f"{FREQUENCY}/scaling_min_freq": 1500000},
    )
    assert power_facts(root=tmp_path)["power_mode"] == "MAXN (0)"
    assert disturbances(root=tmp_path) == []


def test_sensors_that_were_never_run_are_marked(tmp_path: Path) -> None:
    machines.write(tmp_path, {"sys/devices/platform/soc/soc:firmware/get_throttled": "0"})
    said = examine(root=tmp_path)["lines"]["sensors"]
    assert "Raspberry Pi firmware, not yet run on hardware" in said
