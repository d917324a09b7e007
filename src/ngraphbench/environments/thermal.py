"""Frequency, temperature and throttle counters, read between slots.

Virtual machines show none of it. Sources of Raspberry Pi, Jetson and NVIDIA GPUs have not
yet been run on hardware.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ngraphbench.environments.nvml import GpuReading, Nvml, open_visible
from ngraphbench.environments.power import on_battery
from ngraphbench.environments.systemfiles import ROOT, read_text, whole

__all__ = ["NOT_YET_RUN", "Reading", "Sensors", "find_sensors"]

CPUS = "sys/devices/system/cpu"
PI_THROTTLED = "sys/devices/platform/soc/soc:firmware/get_throttled"
HWMON_NAMES = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
CPU_ZONE = re.compile(r"cpu|soc|pkg|core|package|tj|tegra", re.IGNORECASE)
HOTTEST_C = 150.0

NOT_YET_RUN = ("Raspberry Pi firmware", "Jetson throttle alerts", "NVML")
"""Sources that are tested on made files and libraries alone."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the sensors say now; each None where there is no such sensor.

    ``frequency_khz`` is the highest of the CPU set, for an idle CPU's clock says nothing.
    ``throttles`` counts throttling since boot (CPU core and package, Jetson events);
    ``pi_bits`` is what a Raspberry Pi's firmware tells, ``alerts`` the names of alerts that
    are on.
    """

    frequency_khz: float | None = None
    temperature_c: float | None = None
    throttles: int | None = None
    pi_bits: int | None = None
    alerts: tuple[str, ...] = ()
    on_battery: bool | None = None
    gpu: GpuReading = field(default_factory=GpuReading)


@dataclass(frozen=True, slots=True)
class Sensors:
    """Where this host's sensors are; found once, so that a reading is a few small files.

    ``frequency_source`` is ``cpufreq`` or ``cpuinfo``; the latter is a constant in virtual
    machines, so it is evidence only once it has moved.
    """

    root: Path
    cpus: tuple[int, ...]
    frequency_files: tuple[Path, ...] = ()
    frequency_source: str | None = None
    temperature_files: tuple[Path, ...] = ()
    throttle_files: tuple[Path, ...] = ()
    pi_file: Path | None = None
    alert_files: tuple[Path, ...] = ()
    gpu: Nvml | None = None

    def names(self) -> list[str]:
        """Return the kinds of sensors that were found."""
        found = {
            f"frequency ({self.frequency_source})": bool(self.frequency_source),
            f"temperature ({len(self.temperature_files)})": bool(self.temperature_files),
            "throttle counters": bool(self.throttle_files),
            NOT_YET_RUN[0]: self.pi_file is not None,
            NOT_YET_RUN[1]: bool(self.alert_files),
            NOT_YET_RUN[2]: self.gpu is not None,
        }
        return [name for name, there in found.items() if there]

    def read(self) -> Reading:
        """Return what the sensors say now."""
        temperatures = _temperatures(self.temperature_files)
        throttles = [count for path in self.throttle_files if (count := whole(path)) is not None]
        return Reading(
            frequency_khz=self._frequency_khz(),
            temperature_c=max(temperatures, default=None),
            throttles=sum(throttles) if throttles else None,
            pi_bits=_hexadecimal(self.pi_file),
            alerts=tuple(_alerts(self.alert_files)),
            on_battery=on_battery(root=self.root),
            gpu=self.gpu.read() if self.gpu is not None else GpuReading(),
        )

    def _frequency_khz(self) -> float | None:
        if self.frequency_source == "cpufreq":
            found = [float(khz) for p in self.frequency_files if (khz := whole(p)) is not None]
            return max(found, default=None)
        if self.frequency_source == "cpuinfo":
            return max(_cpuinfo_khz(self.root, self.cpus), default=None)
        return None


def find_sensors(cpus: Sequence[int], *, accelerator: str = "cpu", root: Path = ROOT) -> Sensors:
    """Return the sensors of this host for the CPU set ``cpus`` (empty: all CPUs).

    The GPU's are looked for only when ``accelerator`` is ``cuda``.
    """
    own = tuple(cpus) or _all_cpus(root)
    folders = [root / CPUS / f"cpu{cpu}" for cpu in own]
    clocks = _existing(folder / "cpufreq/scaling_cur_freq" for folder in folders)
    cpuinfo = "cpuinfo" if _cpuinfo_khz(root, own) else None
    throttles = [folder / "thermal_throttle/core_throttle_count" for folder in folders]
    # A package's count is shown at each of its CPUs: one of them is enough.
    throttles += [folder / "thermal_throttle/package_throttle_count" for folder in folders[:1]]
    pi_file = root / PI_THROTTLED
    return Sensors(
        root=root,
        cpus=own,
        frequency_files=clocks,
        frequency_source="cpufreq" if clocks else cpuinfo,
        temperature_files=_temperature_files(root),
        throttle_files=(*_existing(throttles), *_event_files(root)),
        pi_file=pi_file if pi_file.exists() else None,
        alert_files=_alert_files(root),
        gpu=open_visible() if accelerator == "cuda" else None,
    )


def _all_cpus(root: Path) -> tuple[int, ...]:
    names = (folder.name[3:] for folder in (root / CPUS).glob("cpu[0-9]*"))
    return tuple(sorted(int(name) for name in names if name.isdecimal()))


def _existing(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(path for path in paths if path.exists())


def _cpuinfo_khz(root: Path, cpus: Sequence[int]) -> list[float]:
    found: list[float] = []
    for block in re.split(r"\n\s*\n", read_text(root / "proc/cpuinfo") or ""):
        number = re.search(r"^processor\s*:\s*(\d+)", block, re.MULTILINE)
        mhz = re.search(r"^cpu MHz\s*:\s*([\d.]+)", block, re.MULTILINE)
        if number and mhz and int(number[1]) in cpus:
            found.append(float(mhz[1]) * 1000)
    return found


def _temperature_files(root: Path) -> tuple[Path, ...]:
    """Zones of the processor where some are named so, else all zones; and its own chip's."""
    zones = sorted((root / "sys/class/thermal").glob("thermal_zone*/temp"))
    own = [zone for zone in zones if CPU_ZONE.search(read_text(zone.with_name("type")) or "")]
    chips = [
        path
        for folder in sorted((root / "sys/class/hwmon").glob("hwmon*"))
        if read_text(folder / "name") in HWMON_NAMES
        for path in sorted(folder.glob("temp*_input"))
    ]
    return (*(own or ([] if chips else zones)), *chips)


def _temperatures(paths: Iterable[Path]) -> list[float]:
    # A sensor that is off reads as an error, as zero or as something absurd.
    found = [value / 1000 for path in paths if (value := whole(path)) is not None]
    return [celsius for celsius in found if 0 < celsius < HOTTEST_C]


def _event_files(root: Path) -> tuple[Path, ...]:
    """Jetson's counters of over-current events, each of which lowers clocks."""
    return tuple(sorted((root / "sys/class/hwmon").glob("hwmon*/oc*_event_cnt")))


def _alert_files(root: Path) -> tuple[Path, ...]:
    """Cooling devices that stand for Jetson's throttle alerts; on means that clocks are cut."""
    return tuple(
        folder / "cur_state"
        for folder in sorted((root / "sys/class/thermal").glob("cooling_device*"))
        if (read_text(folder / "type") or "").endswith("throttle-alert")
    )


def _alerts(paths: Iterable[Path]) -> list[str]:
    return [read_text(path.with_name("type")) or "" for path in paths if (whole(path) or 0) > 0]


def _hexadecimal(path: Path | None) -> int | None:
    try:
        return int((read_text(path) if path else None) or "", 16)
    except ValueError:
        return None
