"""Sensors and what they say, on machines and libraries that are made up."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import machines
import pytest

from ngraphbench.environments.nvml import GpuReading, Nvml, open_nvml, visible_index
from ngraphbench.environments.thermal import Reading, find_sensors
from ngraphbench.environments.throttling import describe, throttle_flags
from ngraphbench.session.hostwatch import HostWatch, thermal_facts
from ngraphbench.types import Device

COOL = Reading(frequency_khz=3e6, temperature_c=50.0, throttles=7, pi_bits=0)


def cpu(number: int, name: str) -> str:
    return f"{machines.CPUS}/cpu{number}/{name}"


def desk(root: Path) -> Path:
    machines.cores(root, [(0,), (1,)])
    return machines.write(
        root,
        {
            cpu(0, "cpufreq/scaling_cur_freq"): 800000,
            cpu(1, "cpufreq/scaling_cur_freq"): 3000000,
            cpu(0, "thermal_throttle/core_throttle_count"): 2,
            cpu(1, "thermal_throttle/core_throttle_count"): 3,
            cpu(0, "thermal_throttle/package_throttle_count"): 5,
            cpu(1, "thermal_throttle/package_throttle_count"): 5,
            "sys/class/thermal/thermal_zone0/type": "acpitz",
            "sys/class/thermal/thermal_zone0/temp": 99000,
            "sys/class/thermal/thermal_zone1/type": "x86_pkg_temp",
            "sys/class/thermal/thermal_zone1/temp": 61000,
            "sys/class/hwmon/hwmon0/name": "nvme",
            "sys/class/hwmon/hwmon0/temp1_input": 90000,
            "sys/class/hwmon/hwmon1/name": "coretemp",
            "sys/class/hwmon/hwmon1/temp1_input": 63000,
        },
    )


def test_sensors_of_a_desktop(tmp_path: Path) -> None:
    sensors = find_sensors((0, 1), root=desk(tmp_path))
    seen = sensors.read()
    # An idle CPU's clock says nothing: the highest of the set is that of the busy one.
    assert seen.frequency_khz == 3e6 and sensors.frequency_source == "cpufreq"
    # The package's count is one, and neither the case nor a disk is the processor.
    assert seen.throttles == 10 and seen.temperature_c == 63.0
    assert sensors.names() == ["frequency (cpufreq)", "temperature (2)", "throttle counters"]


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    sensors = find_sensors((0, 1), root=tmp_path)
    assert sensors.read() == Reading() and sensors.names() == []
    assert throttle_flags([Reading()] * 9, source=None) == []
    assert describe([(None, None)], source=None) == {
        "frequency_khz": None,
        "frequency_source": None,
        "temperature_c": None,
    }


def test_a_virtual_machines_constant_clock_is_no_evidence(tmp_path: Path) -> None:
    text = "processor : 0\ncpu MHz : 2100.000\n\nprocessor : 1\ncpu MHz : 2100.000\n"
    machines.write(tmp_path, {"proc/cpuinfo": text})
    sensors = find_sensors((0, 1), root=tmp_path)
    rows = [(sensors.read().frequency_khz, None)] * 9
    assert rows[0][0] == 2.1e6 and sensors.frequency_source == "cpuinfo"
    assert describe(rows, source="cpuinfo")["frequency_khz"] is None
    moved = [*rows[1:], (1.9e6, None)]
    assert describe(moved, source="cpuinfo")["frequency_khz"] == {"start": 2.1e6, "end": 2.1e6}


def test_sensors_that_are_off(tmp_path: Path) -> None:
    below = "sys/class/thermal/thermal_zone"
    files = {f"{below}0/temp": 0, f"{below}1/temp": -273000, f"{below}2/temp": "garbage"}
    machines.write(tmp_path, files)
    assert find_sensors((), root=tmp_path).read().temperature_c is None


def told(readings: list[Reading], source: str = "cpufreq") -> str:
    flags = throttle_flags(readings, source=source)
    assert [item["flag"] for item in flags] in ([], ["throttled"])
    return flags[0]["detail"] if flags else ""


def test_a_quiet_launch_is_not_flagged() -> None:
    assert told([COOL] * 12) == ""
    # Within 10 % and no warmer: an ordinary clock wanders.
    assert told([COOL] * 6 + [replace(COOL, frequency_khz=2.75e6)] * 6) == ""


@pytest.mark.parametrize(
    ("late", "words"),
    [
        ({"throttles": 9}, "grew by 2"),
        ({"frequency_khz": 2.6e6}, "3.00 to 2.60 GHz"),
        ({"frequency_khz": 2.85e6, "temperature_c": 60.0}, "warmed from 50 to 60"),
        ({"pi_bits": 0x4}, "throttled"),
        ({"pi_bits": 0x10000}, "under-voltage"),
        ({"alerts": ("cpu-throttle-alert",)}, "cpu-throttle-alert"),
        ({"gpu": GpuReading(reasons=0x80)}, "power brake"),
    ],
)
def test_each_sign_of_throttling(late: dict[str, Any], words: str) -> None:
    assert words in told([COOL] * 6 + [replace(COOL, **late)] * 6)


def test_what_was_so_since_boot_is_not_of_this_launch() -> None:
    assert told([replace(COOL, pi_bits=0x50000, throttles=900)] * 9) == ""


def test_warmer_at_the_same_clock_is_no_throttling() -> None:
    assert told([COOL] * 6 + [replace(COOL, temperature_c=80.0)] * 6) == ""


def test_gpu_time_held_down_by_heat_and_idle_reasons() -> None:
    def gpu(reasons: int, held_ns: int) -> Reading:
        return replace(COOL, gpu=GpuReading(reasons=reasons, throttled_ns=held_ns))

    assert told([gpu(1, 50), gpu(4, 50)]) == ""
    assert "5 ms" in told([gpu(1, 50), gpu(1, 5_000_050)])


def test_raspberry_and_jetson_files(tmp_path: Path) -> None:
    machines.write(
        tmp_path,
        {
            "sys/devices/platform/soc/soc:firmware/get_throttled": "50005",
            "sys/class/hwmon/hwmon3/oc1_event_cnt": 1,
            "sys/class/hwmon/hwmon3/oc3_event_cnt": 4,
            "sys/class/thermal/cooling_device0/type": "pwm-fan",
            "sys/class/thermal/cooling_device0/cur_state": 3,
            "sys/class/thermal/cooling_device1/type": "gpu-throttle-alert",
            "sys/class/thermal/cooling_device1/cur_state": 1,
        },
    )
    seen = find_sensors((0,), root=tmp_path).read()
    assert (seen.pi_bits, seen.throttles) == (0x50005, 5)
    assert seen.alerts == ("gpu-throttle-alert",)


def fake_nvml(*, fails: tuple[str, ...] = ()) -> SimpleNamespace:
    """The driver's functions by their names; one of before 535, by the older name of reasons."""

    def answer(name: str, target: Any, value: int, kind: Any = ctypes.c_uint) -> int:
        ctypes.cast(target, ctypes.POINTER(kind))[0] = value
        return 3 if name in fails else 0

    def clock(device: Any, domain: Any, out: Any) -> int:
        assert domain.value == 1
        return answer("clock", out, 1980)

    def violation(device: Any, policy: Any, out: Any) -> int:
        assert policy.value == 1
        pair = ctypes.cast(out, ctypes.POINTER(ctypes.c_ulonglong))
        pair[0], pair[1] = 12, 34
        return 0

    return SimpleNamespace(
        nvmlInit_v2=lambda: 3 if "init" in fails else 0,
        nvmlShutdown=lambda: 0,
        nvmlDeviceGetHandleByIndex_v2=lambda index, device: 0,
        nvmlDeviceGetTemperature=lambda device, sensor, out: answer("temperature", out, 71),
        nvmlDeviceGetClockInfo=clock,
        nvmlDeviceGetPowerUsage=lambda device, out: answer("power", out, 350_000),
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda device, out: answer(
            "reasons", out, 0x40, ctypes.c_ulonglong
        ),
        nvmlDeviceGetViolationStatus=violation,
    )


def test_nvml_is_read_through_its_library() -> None:
    seen = Nvml(fake_nvml(fails=("power",))).read()
    assert seen == GpuReading(
        temperature_c=71, sm_mhz=1980, power_mw=None, pstate=None, reasons=0x40, throttled_ns=34
    )


def test_no_driver_no_gpu(tmp_path: Path) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    assert open_nvml(load=missing) is None
    assert open_nvml(load=lambda name: fake_nvml(fails=("init",))) is None
    assert find_sensors((0,), root=tmp_path).gpu is None


@pytest.mark.parametrize(
    ("visible", "index"), [(None, 0), ("", 0), ("3", 3), (" 2,0", 2), ("GPU-8f", 0)]
)
def test_the_gpu_that_cuda_shows(visible: str | None, index: int) -> None:
    assert visible_index(visible) == index


def test_a_launch_and_a_session(tmp_path: Path) -> None:
    desk(tmp_path)
    watch = HostWatch(lambda: 0, Device(cpus=(0, 1)), root=tmp_path)
    for khz in (3000000, 3000000, 3000000, 2900000, 2500000, 2500000):
        machines.write(tmp_path, {cpu(1, "cpufreq/scaling_cur_freq"): khz})
        watch.look()
    assert [item["flag"] for item in watch.flags()] == ["throttled"]
    facts = thermal_facts([watch.to_json()])
    assert facts is not None
    assert facts["frequency_khz"] == {"start": 3e6, "end": 2.5e6}
    assert facts["temperature_c"] == {"min": 63.0, "max": 63.0}
    assert thermal_facts([]) is None
