"""Watches the host through one launch: counters around it, sensors once a round.

Readings are taken between slots, while every worker is suspended; during a slot the parent
sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ngraphbench.environments.pressure import Counters, pressure_flags, read_counters
from ngraphbench.environments.systemfiles import ROOT
from ngraphbench.environments.thermal import Reading, Sensors, find_sensors
from ngraphbench.environments.throttling import Row, describe, throttle_flags
from ngraphbench.types import Device, Json

__all__ = ["HostWatch", "thermal_facts"]


class HostWatch:
    """What the kernel and the sensors say from its making on, for the CPU set of ``device``."""

    def __init__(self, now_ns: Callable[[], int], device: Device, *, root: Path = ROOT) -> None:
        self._now_ns = now_ns
        self._root = root
        self.sensors: Sensors = find_sensors(device.cpus, accelerator=device.accelerator, root=root)
        # What counters grow by in the first round counts too; its clock is of an idle CPU.
        self.readings: list[Reading] = [replace(self.sensors.read(), frequency_khz=None)]
        self._before: Counters = read_counters(now_ns(), root=root)

    def look(self) -> None:
        """Read the sensors; call it right after work on the CPU set, for an idle clock lies."""
        self.readings.append(self.sensors.read())

    def flags(self) -> list[Json]:
        """Return the flags of all that was seen so far."""
        after = read_counters(self._now_ns(), root=self._root)
        throttled = throttle_flags(self.readings, source=self.sensors.frequency_source)
        return [*pressure_flags(self._before, after), *throttled]

    def to_json(self) -> Json:
        """Return one launch for the session's state: rows of frequency and temperature."""
        return {
            "source": self.sensors.frequency_source,
            "sensors": self.sensors.names(),
            "on_battery": self.readings[-1].on_battery,
            "rows": [[r.frequency_khz, r.temperature_c] for r in self.readings],
        }

    def close(self) -> None:
        """Let the GPU's driver go."""
        if self.sensors.gpu is not None:
            self.sensors.gpu.close()


def thermal_facts(launches: Sequence[Json]) -> Json | None:
    """Return the ``thermal`` part of a session record from its launches, None without any."""
    if not launches:
        return None
    rows: list[Row] = [(row[0], row[1]) for launch in launches for row in launch["rows"]]
    batteries = [launch["on_battery"] for launch in launches]
    told = [battery for battery in batteries if battery is not None]
    return describe(rows, source=launches[0]["source"]) | {
        "on_battery": any(told) if told else None,
        "sensors": launches[0]["sensors"],
    }
