"""Machines that drift, and programs with known truth, on a virtual clock.

All effects are log-multiplicative and act on slot means. The parameters are fixed, so that
figures stay comparable from version to version.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ngraphbench.session.clock import VirtualClock
from ngraphbench.session.kernel import EpochResult, SlotResult, measure_epoch
from ngraphbench.worker.timing import SlotRequest

MS = 1_000_000
SWITCH_NS = 20 * MS
NOISE_SD = 0.015
OUTLIER_SHARE = 0.03
OUTLIER_FROM = 0.05
OUTLIER_SHAPE = 1.5
OUTLIER_CAP = 4.0

Drift = Callable[[float], float]
"""Log slowdown of a machine at a time in seconds; asked with times that never go back."""


def quiet(rng: np.random.Generator) -> Drift:
    """No drift at all."""
    return lambda now_s: 0.0


def _autoregressive(rng: np.random.Generator, *, sd: float, tau_s: float) -> Drift:
    level, at_s = sd * rng.standard_normal(), 0.0

    def drift(now_s: float) -> float:
        nonlocal level, at_s
        keep = math.exp(-(now_s - at_s) / tau_s)
        level = keep * level + sd * math.sqrt(1 - keep**2) * rng.standard_normal()
        at_s = now_s
        return level

    return drift


def ar_slow(rng: np.random.Generator) -> Drift:
    """AR(1) of sd 3.5 % with a memory of 15 s."""
    return _autoregressive(rng, sd=0.035, tau_s=15.0)


def ar_fast(rng: np.random.Generator) -> Drift:
    """AR(1) of sd 5 % with a memory of 0.3 s."""
    return _autoregressive(rng, sd=0.05, tau_s=0.3)


def walk(rng: np.random.Generator) -> Drift:
    """A random walk that has sd 7 % after 60 s."""
    level, at_s = 0.0, 0.0

    def drift(now_s: float) -> float:
        nonlocal level, at_s
        level += 0.07 * math.sqrt((now_s - at_s) / 60.0) * rng.standard_normal()
        at_s = now_s
        return level

    return drift


def thermal(rng: np.random.Generator) -> Drift:
    """15 % slower in the long run, with a time constant of 20 s, and AR(1) of 1 %."""
    wobble = _autoregressive(rng, sd=0.01, tau_s=5.0)
    return lambda now_s: 0.15 * (1 - math.exp(-now_s / 20.0)) + wobble(now_s)


def bursts(rng: np.random.Generator) -> Drift:
    """8 % slower in bursts of 4 s, 12 s apart, both exponential."""
    on, until_s = False, rng.exponential(12.0)

    def drift(now_s: float) -> float:
        nonlocal on, until_s
        while now_s >= until_s:
            on = not on
            until_s += rng.exponential(4.0 if on else 12.0)
        return math.log(1.08) if on else 0.0

    return drift


DRIFTS: dict[str, Callable[[np.random.Generator], Drift]] = {
    "quiet": quiet,
    "ar-slow": ar_slow,
    "ar-fast": ar_fast,
    "walk": walk,
    "thermal": thermal,
    "bursts": bursts,
}


class Moment(NamedTuple):
    """What a fault may depend on: time, the process's own slots so far, who ran before."""

    now_s: float
    slots: int
    previous: str
    rng: np.random.Generator


Fault = Callable[[Moment], float]
"""Log slowdown of one program alone, in one slot."""


def sound(moment: Moment) -> float:
    """No fault."""
    return 0.0


def step(at_s: float, size: float = 0.05) -> Fault:
    """``size`` slower from a time on, for good."""
    return lambda moment: math.log1p(size) if moment.now_s >= at_s else 0.0


def two_modes(apart: float = 0.05, share: float = 0.5) -> Fault:
    """``share`` of all slots, by chance, ``apart`` slower: every launch has both modes."""
    return lambda moment: math.log1p(apart) if moment.rng.random() < share else 0.0


def carry_over(culprit: str, size: float = 0.01) -> Fault:
    """``size`` slower right after a slot of ``culprit``."""
    return lambda moment: math.log1p(size) if moment.previous == culprit else 0.0


def warm_up(size: float = 0.10, slots: int = 3) -> Fault:
    """``size`` slower in the first slots of every launch, and then in a step no more."""
    return lambda moment: math.log1p(size) if moment.slots < slots else 0.0


def wander(rng: np.random.Generator, sd: float = 0.02, tau_s: float = 1.5) -> Fault:
    """AR(1) of a program's own: its neighbouring rounds resemble each other."""
    drift = _autoregressive(rng, sd=sd, tau_s=tau_s)
    return lambda moment: drift(moment.now_s)


@dataclass
class Machine:
    """One machine in one session: its clock, its drift, and the grain of its timer.

    ``trend`` is the log slowdown by place in the round: a machine that cools down in the
    pause before a round, and heats up in it. ``faults`` draws what happens to one program
    alone, so that the noise of a session is the same with and without.
    """

    rng: np.random.Generator
    drift: Drift
    clock: VirtualClock = field(default_factory=VirtualClock)
    grain_ns: int = 1
    trend: float = 0.0
    faults: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    previous: str = ""
    place: int = 0

    @property
    def now_s(self) -> float:
        return self.clock.now_ns() / 1e9

    def timed_ns(self, duration_ns: float) -> int:
        """Let a slot pass, and return how long it took by the machine's timer."""
        before = self.clock.now_ns() // self.grain_ns
        self.clock.advance_ns(int(duration_ns))
        return (self.clock.now_ns() // self.grain_ns - before) * self.grain_ns

    def noise(self) -> float:
        """Return the noise of one slot mean, as a log factor."""
        value = NOISE_SD * self.rng.standard_normal()
        if self.rng.random() < OUTLIER_SHARE:
            tail = OUTLIER_FROM * (1 - self.rng.random()) ** (-1 / OUTLIER_SHAPE)
            value += math.log1p(min(tail, OUTLIER_CAP))
        return value


@dataclass
class Program:
    """A program whose call takes ``call_ns``; ``launch`` is this process's own log factor."""

    machine: Machine
    name: str
    call_ns: float
    launch: float = 0.0
    fault: Fault = sound
    slots: int = 0

    def resume(self) -> None: ...

    def suspend(self) -> None: ...

    def slot(self, request: SlotRequest) -> SlotResult:
        machine = self.machine
        machine.clock.advance_ns(SWITCH_NS)
        moment = Moment(machine.now_s, self.slots, machine.previous, machine.faults)
        effects = self.launch + machine.drift(machine.now_s) + machine.noise()
        effects += self.fault(moment) + machine.trend * machine.place
        self.slots, machine.previous = self.slots + 1, self.name
        machine.place += 1
        call_ns = self.call_ns * math.exp(effects)
        calls = max(request.calls_min, math.ceil(request.slot_ns / call_ns))
        slot_ns = machine.timed_ns(calls * call_ns)
        call_ns = call_ns if machine.grain_ns == 1 else slot_ns / calls
        return SlotResult(
            calls=calls,
            slot_ns=slot_ns,
            call_ns=call_ns,
            first_ns=int(call_ns),
            cpu_ns=2 * slot_ns,
            nivcsw=0,
        )


def run_epoch(programs: Mapping[str, Program], **settings: Any) -> EpochResult:
    """Return the rows of one launch of ``programs``, by the clock of the machine they share.

    ``settings`` are those of ``measure_epoch``: the profile, the epoch, the seed, the pairs.
    """
    clock = next(iter(programs.values())).machine.clock
    call_ns = {key: program.call_ns for key, program in programs.items()}
    return measure_epoch(programs, clock=clock, call_ns=call_ns, **settings)
