"""Clocks, temperature, power, energy and throttling of an NVIDIA GPU, from its own driver.

Not yet run on hardware. ``libnvidia-ml`` is called through ctypes: asking ``nvidia-smi``
would start a process in every round beside what is being measured, and a binding would be one
more dependency for seven calls.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

__all__ = ["REASONS", "GpuReading", "Nvml", "open_nvml", "open_visible", "visible_index"]

LIBRARY = "libnvidia-ml.so.1"
TEMPERATURE_GPU = 0
CLOCK_SM = 1
POLICY_THERMAL = 1

REASONS = {
    0x08: "hardware slowdown",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
}
"""Bits of ``nvmlClocksEventReasons`` that are throttling; a power cap alone is how a busy GPU
works, and idling is none."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What the GPU says now; each None where it does not tell.

    ``throttled_ns`` is the time since the driver was loaded that heat held the clock down.
    """

    temperature_c: float | None = None
    sm_mhz: int | None = None
    power_mw: int | None = None
    pstate: int | None = None
    reasons: int | None = None
    throttled_ns: int | None = None


class _Violation(ctypes.Structure):
    _fields_ = (("reference_time", ctypes.c_ulonglong), ("violation_time", ctypes.c_ulonglong))


class Nvml:
    """One GPU, by its number as the driver counts."""

    def __init__(self, library: Any, *, index: int = 0) -> None:
        self._library = library
        self._device = ctypes.c_void_p()
        self.found = self._call("nvmlInit_v2") and self._call(
            "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(self._device)
        )

    def read(self) -> GpuReading:
        """Return what the GPU says now."""
        if not self.found:
            return GpuReading()
        return GpuReading(
            temperature_c=self._number("nvmlDeviceGetTemperature", TEMPERATURE_GPU),
            sm_mhz=self._number("nvmlDeviceGetClockInfo", CLOCK_SM),
            power_mw=self._number("nvmlDeviceGetPowerUsage"),
            pstate=self._number("nvmlDeviceGetPerformanceState"),
            reasons=self._reasons(),
            throttled_ns=self._violation(),
        )

    def energy_j(self) -> float | None:
        """Return the joules drawn since the driver was loaded; None where it does not count."""
        millijoules = ctypes.c_ulonglong()
        name = "nvmlDeviceGetTotalEnergyConsumption"
        done = self._call(name, self._device, ctypes.byref(millijoules))
        return millijoules.value / 1e3 if done else None

    def close(self) -> None:
        """Let the driver go."""
        self._call("nvmlShutdown")

    def _reasons(self) -> int | None:
        # Drivers before 535 know it by its older name.
        for name in (
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ):
            value = ctypes.c_ulonglong()
            if self._call(name, self._device, ctypes.byref(value)):
                return value.value
        return None

    def _violation(self) -> int | None:
        # Unlike the reasons of the moment it counts while slots run; the driver gives ns.
        seen = _Violation()
        name = "nvmlDeviceGetViolationStatus"
        done = self._call(name, self._device, ctypes.c_int(POLICY_THERMAL), ctypes.byref(seen))
        return int(seen.violation_time) if done else None

    def _number(self, name: str, *which: int) -> int | None:
        value = ctypes.c_uint()
        arguments = [ctypes.c_int(number) for number in which]
        done = self._call(name, self._device, *arguments, ctypes.byref(value))
        return value.value if done else None

    def _call(self, name: str, *arguments: object) -> bool:
        """Whether the call exists and succeeded."""
        try:
            function: Callable[..., int] = getattr(self._library, name)
        except AttributeError:
            return False
        return function(*arguments) == 0


def visible_index(visible: str | None) -> int:
    """Return the driver's number of the first GPU that CUDA shows, from CUDA_VISIBLE_DEVICES.

    A GPU named by its UUID is taken for the first one.

    >>> visible_index("2,0"), visible_index(None)
    (2, 0)
    """
    first = (visible or "").partition(",")[0].strip()
    return int(first) if first.isdecimal() else 0


def open_nvml(*, index: int = 0, load: Callable[[str], Any] = ctypes.CDLL) -> Nvml | None:
    """Return the GPU, or None where there is no driver or no such GPU."""
    with suppress(OSError):
        gpu = Nvml(load(LIBRARY), index=index)
        return gpu if gpu.found else None
    return None


def open_visible() -> Nvml | None:
    """Return the first GPU that CUDA shows, or None."""
    return open_nvml(index=visible_index(os.environ.get("CUDA_VISIBLE_DEVICES")))
