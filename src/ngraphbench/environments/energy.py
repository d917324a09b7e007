"""Energy that the machine's own counters tell of; nothing is estimated where there is none.

Three kinds: RAPL (packages of Intel and AMD, readable by root alone on most systems), NVIDIA's
driver, and the power monitor of Jetson boards. Each sees all that runs on what it counts, idling
included. Not yet run on hardware.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ngraphbench.environments.nvml import Nvml, open_visible
from ngraphbench.environments.systemfiles import ROOT, read_text, whole
from ngraphbench.types import Device, Json

__all__ = ["Energy", "EnergyMeter", "find_energy"]

PACKAGE = re.compile(r"intel-rapl:\d+")
WHOLE_BOARD = ("VDD_IN", "POM_5V_IN")
"""Names of the rail that feeds all of a Jetson; a board without one has no total to tell."""

RAPL_STEP_S, NVML_STEP_S, LOOK_EVERY_S = 0.001, 0.1, 0.2
"""How often each moves, at worst; Jetson's power is looked at so often."""

MOST_WATTS = 500.0
"""A package that draws as much is not known: in less time its counter cannot wrap twice."""


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules of some seconds by counter. ``step_s`` is how finely the coarsest one tells time."""

    joules: dict[str, float]
    seconds: float
    step_s: float

    def to_json(self) -> Json:
        return {"joules": self.joules, "seconds": self.seconds, "step_s": self.step_s}


class _Counter(Protocol):
    """One source. ``stop`` returns the joules since ``start``, None where they are not known."""

    @property
    def name(self) -> str: ...

    @property
    def step_s(self) -> float: ...

    def start(self) -> None: ...

    def stop(self, seconds: float) -> float | None: ...


@dataclass(slots=True)
class _Counted:
    """A counter that grows, and starts again at 0 after ``wraps_at`` joules."""

    name: str
    step_s: float
    read: Callable[[], float | None]
    wraps_at: float | None = None
    _before: float | None = None

    def start(self) -> None:
        self._before = self.read()

    def stop(self, seconds: float) -> float | None:
        after, before = self.read(), self._before
        if after is None or before is None:
            return None
        if self.wraps_at is None:
            return after - before if after >= before else None
        known = seconds * MOST_WATTS < self.wraps_at
        return (after - before) % self.wraps_at if known else None


@dataclass(slots=True)
class _Watched:
    """A power that is looked at now and then, and added up (trapezoids)."""

    name: str
    read_watts: Callable[[], float | None]
    step_s: float = LOOK_EVERY_S
    _seen: list[tuple[float, float | None]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._seen, self._over = [], threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._watch, name="energy", daemon=True)
        self._thread.start()

    def stop(self, seconds: float) -> float | None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._look()
        joules = 0.0
        for (t0, a), (t1, b) in zip(self._seen, self._seen[1:], strict=False):
            if a is None or b is None:
                return None
            joules += (t1 - t0) * (a + b) / 2
        return joules

    def _watch(self) -> None:
        while not self._over.wait(self.step_s):
            self._look()

    def _look(self) -> None:
        self._seen.append((time.monotonic(), self.read_watts()))


@dataclass(slots=True)
class _Told:
    energy: Energy | None = None


@dataclass(frozen=True, slots=True)
class EnergyMeter:
    """The counters of a device; there may be none. They are read around what is measured."""

    counters: tuple[_Counter, ...] = ()
    now_s: Callable[[], float] = time.monotonic
    gpu: Nvml | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(counter.name for counter in self.counters)

    @contextmanager
    def measured(self) -> Iterator[_Told]:
        """Yield what has ``energy`` once it is over: None unless every counter told."""
        told = _Told()
        for counter in self.counters:
            counter.start()
        began = self.now_s()
        try:
            yield told
        finally:
            seconds = self.now_s() - began
            joules = {counter.name: counter.stop(seconds) for counter in self.counters}
        known = {name: value for name, value in joules.items() if value is not None}
        if self.counters and len(known) == len(self.counters) and seconds > 0.0:
            step_s = max(counter.step_s for counter in self.counters)
            told.energy = Energy(known, seconds, step_s)

    def close(self) -> None:
        """Let the GPU's driver go."""
        if self.gpu is not None:
            self.gpu.close()


def find_energy(device: Device, *, root: Path = ROOT) -> EnergyMeter:
    """Return the counters that can be read here; the GPU's where the device is one."""
    gpu = open_visible() if device.accelerator == "cuda" else None
    counters: list[_Counter] = [*_packages(root), *_boards(root)]
    if gpu is not None and gpu.energy_j() is not None:
        counters.append(_Counted("gpu", NVML_STEP_S, gpu.energy_j))
    return EnergyMeter(tuple(counters), gpu=gpu)


def _packages(root: Path) -> list[_Counter]:
    found: list[_Counter] = []
    for folder in sorted((root / "sys/class/powercap").glob("intel-rapl:*")):
        name, most = read_text(folder / "name") or "", whole(folder / "max_energy_range_uj")
        if PACKAGE.fullmatch(folder.name) and name.startswith("package") and most:
            read = _scaled(folder / "energy_uj")
            if read() is not None:
                # It counts up to the largest value, which is one of its values.
                found.append(_Counted(name, RAPL_STEP_S, read, (most + 1) / 1e6))
    return found


def _scaled(path: Path) -> Callable[[], float | None]:
    def read() -> float | None:
        value = whole(path)
        return None if value is None else value / 1e6

    return read


def _boards(root: Path) -> list[_Counter]:
    found: list[_Counter] = []
    for label in sorted((root / "sys/class/hwmon").glob("hwmon*/in*_label")):
        name = read_text(label) or ""
        if read_text(label.with_name("name")) == "ina3221" and name in WHOLE_BOARD:
            channel = label.name.removeprefix("in").removesuffix("_label")
            read = _power(label.with_name(f"in{channel}_input"), f"curr{channel}_input")
            if read() is not None:
                found.append(_Watched(name, read))
    return found


def _power(volts: Path, current: str) -> Callable[[], float | None]:
    def read() -> float | None:
        millivolts, milliamperes = whole(volts), whole(volts.with_name(current))
        if millivolts is None or milliamperes is None:
            return None
        return millivolts * milliamperes / 1e6

    return read
