"""Energy counters on machines that are made of files, and what blocks make of them."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import machines
import numpy as np
import pytest

from ngraphbench.blocksummary import joules_per_item, summarise_blocks
from ngraphbench.environments import energy
from ngraphbench.environments.energy import EnergyMeter, find_energy
from ngraphbench.environments.nvml import Nvml
from ngraphbench.stats import Launch
from ngraphbench.store.schema import load_schema
from ngraphbench.types import Device, Json

RAPL = "sys/class/powercap"
QUIET = Launch(sd=1e-9, degrees=4.0)


def packages(root: Path, *microjoules: int) -> Path:
    """One or two packages, and what is a part of one or counts it again."""
    for number, value in enumerate(microjoules):
        folder = f"{RAPL}/intel-rapl:{number}"
        machines.write(
            root,
            {
                f"{folder}/name": f"package-{number}",
                f"{folder}/energy_uj": value,
                f"{folder}/max_energy_range_uj": 262_143_328_849,
            },
        )
    parts = {"intel-rapl:0:0": "core", "intel-rapl:5": "psys", "intel-rapl-mmio:0": "package-0"}
    for folder, name in parts.items():
        files = {"name": name, "energy_uj": 1, "max_energy_range_uj": 262_143_328_849}
        machines.write(root, {f"{RAPL}/{folder}/{key}": text for key, text in files.items()})
    return root


def clocked(meter: EnergyMeter, *seconds: float) -> EnergyMeter:
    times = iter(seconds)
    return EnergyMeter(meter.counters, lambda: next(times))


def test_packages_are_added_up_and_their_parts_are_not(tmp_path: Path) -> None:
    meter = find_energy(Device(), root=packages(tmp_path, 1_000_000, 5_000_000))
    assert meter.names == ("package-0", "package-1")
    with clocked(meter, 10.0, 12.0).measured() as told:
        packages(tmp_path, 31_000_000, 25_000_000)
    assert told.energy is not None
    assert told.energy.joules == {"package-0": 30.0, "package-1": 20.0}
    assert told.energy.seconds == 2.0


def test_a_counter_that_starts_again(tmp_path: Path) -> None:
    meter = find_energy(Device(), root=packages(tmp_path, 262_143_328_849))
    with clocked(meter, 0.0, 1.0).measured() as told:
        packages(tmp_path, 999_999)
    assert told.energy is not None
    assert told.energy.joules["package-0"] == pytest.approx(1.0)
    # In so long a time it may have started again more than once.
    with clocked(meter, 0.0, 600.0).measured() as told:
        packages(tmp_path, 2_000_000)
    assert told.energy is None


def test_what_cannot_be_read_is_no_counter(tmp_path: Path) -> None:
    assert not find_energy(Device(), root=tmp_path).counters
    packages(tmp_path, 1)
    path = tmp_path / RAPL / "intel-rapl:0" / "energy_uj"
    path.unlink()
    meter = find_energy(Device(), root=tmp_path)
    assert not meter.counters
    with meter.measured() as told:
        pass
    assert told.energy is None
    machines.write(tmp_path, {f"{RAPL}/intel-rapl:0/energy_uj": 1})
    with clocked(find_energy(Device(), root=tmp_path), 0.0, 1.0).measured() as told:
        path.unlink()
    assert told.energy is None


def test_the_rail_that_feeds_a_whole_board(tmp_path: Path) -> None:
    below = "sys/class/hwmon/hwmon3"
    rails = {1: ("VDD_IN", 5000, 1600), 2: ("VDD_CPU_GPU_CV", 5000, 800)}
    machines.write(tmp_path, {f"{below}/name": "ina3221"})
    for number, (name, millivolts, milliamperes) in rails.items():
        files = {f"in{number}_label": name, f"in{number}_input": millivolts}
        files[f"curr{number}_input"] = milliamperes
        machines.write(tmp_path, {f"{below}/{key}": text for key, text in files.items()})
    meter = find_energy(Device(), root=tmp_path)
    assert meter.names == ("VDD_IN",)
    with meter.measured() as told:
        threading.Event().wait(0.05)
    assert told.energy is not None
    # It is looked at before and after, so that nothing is left out.
    assert 8.0 <= told.energy.joules["VDD_IN"] / told.energy.seconds * 1.001 < 800.0
    assert not [thread for thread in threading.enumerate() if thread.name == "energy"]
    with pytest.raises(ZeroDivisionError), meter.measured():
        _ = 1 / 0
    assert not [thread for thread in threading.enumerate() if thread.name == "energy"]
    # A board whose rails are parts has no total, and no sum of parts is made up.
    machines.write(tmp_path, {f"{below}/in1_label": "VDD_GPU_SOC"})
    assert not find_energy(Device(), root=tmp_path).counters


def test_a_gpu_counts_millijoules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter((500, 500, 3500))

    def total(device: Any, out: Any) -> int:
        ctypes.cast(out, ctypes.POINTER(ctypes.c_ulonglong))[0] = next(drawn)
        return 0

    library = SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlShutdown=lambda: 0,
        nvmlDeviceGetHandleByIndex_v2=lambda index, device: 0,
        nvmlDeviceGetTotalEnergyConsumption=total,
    )
    monkeypatch.setattr(energy, "open_visible", lambda: Nvml(library))
    assert not find_energy(Device(accelerator="cpu"), root=tmp_path).counters
    meter = find_energy(Device(accelerator="cuda"), root=tmp_path)
    with clocked(meter, 0.0, 2.0).measured() as told:
        pass
    meter.close()
    assert told.energy is not None and told.energy.joules == {"gpu": 3.0}
    # An older GPU does not count.
    del library.nvmlDeviceGetTotalEnergyConsumption
    assert not find_energy(Device(accelerator="cuda"), root=tmp_path).counters


def outcome(epoch: int, watts: float | None) -> Json:
    told = {"joules": {"a": 2.0, "b": 1.0}, "seconds": 3.0 / (watts or 1.0), "step_s": 0.001}
    return {
        "epoch": epoch,
        "kind": "tails",
        "rate_per_s": None,
        "in_flight": None,
        "status": "ok",
        "reason": "",
        "message": "",
        "note": "",
        "window_ns": 2_000_000_000,
        "start_celsius": None,
        "energy": None if watts is None else told,
    }


def summarised(*watts: float | None) -> list[Json]:
    count = 100
    epochs = np.repeat(np.arange(len(watts)), count)
    start = np.tile(np.arange(count) * 20_000_000, len(watts))
    rows = {
        "epoch": epochs,
        "kind": np.full(len(epochs), "tails"),
        "in_flight": np.zeros(len(epochs), int),
        "calls": np.ones(len(epochs), int),
        "due_ns": start,
        "start_ns": start,
        "end_ns": start + 20_000_000,
    }
    outcomes = [outcome(epoch, one) for epoch, one in enumerate(watts)]
    return summarise_blocks(outcomes, rows, batch=4, confidence=0.95, launch=QUIET)


def test_joules_per_item_are_power_over_rate() -> None:
    """200 items a second at 10 W are 0.05 J each; the answer's own time is not the window."""
    found = summarised(10.0)
    (entry,) = found
    told = entry["energy"]
    assert told["joules_per_item"]["estimate"] == pytest.approx(0.05)
    assert told["watts"] == pytest.approx(10.0)
    assert told["counters"] == ["a", "b"]
    # One launch: as fine as the counters tell time.
    assert told["joules_per_item"]["high"] == pytest.approx(0.05 * np.exp(0.001 / 0.3))
    assert joules_per_item(found) == pytest.approx(0.05)
    block = {"$ref": "#/$defs/block", "$defs": load_schema()["$defs"]}
    jsonschema.Draft202012Validator(block).validate(entry)


def test_launches_that_differ_widen_it() -> None:
    (entry,) = summarised(10.0, 11.0, 12.0)
    told = entry["energy"]["joules_per_item"]
    assert told["low"] < 0.05 and told["high"] > 0.06
    assert entry["energy"]["watts"] == pytest.approx(11.0)


def test_without_a_counter_there_is_no_energy() -> None:
    assert "energy" not in summarised(10.0, None)[0]
    assert joules_per_item(summarised(None)) is None
    assert joules_per_item([]) is None
