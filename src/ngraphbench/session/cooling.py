"""Waits until a device is as cool as when the first program was sustained on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ngraphbench.environments.thermal import find_sensors
from ngraphbench.types import Device

__all__ = ["Cooling", "thermometer"]

TOLERANCE_CELSIUS = 2.0
PATIENCE_S = 180.0
LOOK_EVERY_S = 1.0


def thermometer(device: Device) -> Callable[[], float | None]:
    """Return a function that reads the hottest sensor in degrees, None where there is none."""
    sensors = find_sensors(device.cpus, accelerator=device.accelerator)
    return lambda: sensors.read().temperature_c


@dataclass(slots=True)
class Cooling:
    """The start temperature of sustained blocks: that of the first, as far as patience goes."""

    read: Callable[[], float | None]
    interrupted: Callable[[], bool] = lambda: False
    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    first: float | None = None

    def wait(self) -> float | None:
        """Return the temperature now, in degrees, once it is that of the first call again.

        None, and at once, where no sensor is. It waits for three minutes at most: what is
        returned then is what was found.
        """
        found = self.read()
        if found is None:
            return None
        if self.first is None:
            self.first = found
        deadline = self.now_s() + PATIENCE_S
        while found is not None and found > self.first + TOLERANCE_CELSIUS:
            if self.interrupted() or self.now_s() >= deadline:
                break
            self.sleep(LOOK_EVERY_S)
            found = self.read()
        return found
