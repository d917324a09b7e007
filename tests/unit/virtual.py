"""Candidates on a virtual clock: known truth, injected drift, noise and launch effects."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ngraphbench.errors import PluginError, WorkerFailed
from ngraphbench.session.clock import VirtualClock
from ngraphbench.session.kernel import SlotResult
from ngraphbench.session.schedule import SlotRequest

SWITCH_NS = 20_000_000


@dataclass
class Machine:
    """A machine whose speed drifts as AR(1): ``sd`` of log speed, ``tau_s`` of memory."""

    rng: np.random.Generator
    clock: VirtualClock = field(default_factory=VirtualClock)
    sd: float = 0.0
    tau_s: float = 15.0
    _level: float = 0.0
    _at_ns: int = 0

    def drift(self) -> float:
        """Return the log slowdown now."""
        if self.sd == 0.0:
            return 0.0
        passed_s = (self.clock.now_ns() - self._at_ns) / 1e9
        keep = math.exp(-passed_s / self.tau_s)
        noise = self.sd * math.sqrt(max(0.0, 1 - keep**2)) * self.rng.standard_normal()
        self._level, self._at_ns = self._level * keep + noise, self.clock.now_ns()
        return self._level


@dataclass
class VirtualCandidate:
    """A program whose call takes ``call_ns`` on a quiet machine."""

    machine: Machine
    call_ns: float
    noise: float = 0.015
    fail_at: int | None = None
    error: Callable[[], PluginError | WorkerFailed] = lambda: WorkerFailed(
        "gone", status="crashed", reason="signal:SIGSEGV"
    )
    slots: int = 0
    running: bool = False

    def resume(self) -> None:
        self.running = True

    def suspend(self) -> None:
        self.running = False

    def slot(self, request: SlotRequest) -> SlotResult:
        assert self.running
        self.slots += 1
        if self.fail_at is not None and self.slots >= self.fail_at:
            raise self.error()
        self.machine.clock.advance_ns(SWITCH_NS)
        factor = math.exp(self.machine.drift() + self.noise * self.machine.rng.standard_normal())
        call_ns = self.call_ns * factor
        calls = max(request.calls_min, math.ceil(request.slot_ns / call_ns))
        slot_ns = int(calls * call_ns)
        self.machine.clock.advance_ns(slot_ns + int(request.rewarm_calls * call_ns))
        return SlotResult(
            calls=calls,
            slot_ns=slot_ns,
            call_ns=call_ns,
            first_ns=int(call_ns * 1.05),
            cpu_ns=2 * slot_ns,
            nivcsw=0,
            sub_ns=(call_ns,) * 5,
            rss_bytes=10**8,
        )
