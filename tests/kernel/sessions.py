"""Whole sessions on a virtual clock, and what they declared against the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scenarios import (
    DRIFTS,
    Fault,
    Machine,
    Program,
    carry_over,
    run_epoch,
    sound,
    step,
    two_modes,
    wander,
    warm_up,
)
from scipy.stats import binomtest

from ngraphbench.profiles import PROFILES, Profile
from ngraphbench.session.kernel import Row
from ngraphbench.session.schedule import Pair
from ngraphbench.session.steadiness import steadiness_flags
from ngraphbench.stats import LAUNCH_PRIOR, Launch
from ngraphbench.summary import Comparison, Samples, compare, launch_of, verdict

MS = 1_000_000
TRUTH: Mapping[str, float] = {
    "base": 1.0,
    "aa": 1.0,
    "b3": 1.03,
    "b10": 1.10,
    "b20": 1.2,
    "b50": 1.5,
}
"""Times relative to the baseline: its twin, and programs 3 to 50 % slower."""

DEFAULT = PROFILES["default"]


@dataclass
class Declared:
    """One session: comparisons with the baseline by candidate, and the launch spread found."""

    comparisons: dict[str, Comparison]
    samples: dict[str, Samples]
    launch: Launch
    seconds: float


def columns(rows: list[Row]) -> Samples:
    """Return the rows as the columns of a sample file."""
    names = ("epoch", "round", "position")
    found = {name: np.array([getattr(row, name) for row in rows]) for name in names}
    for name in ("call_ns", "calls", "slot_ns", "first_ns", "cpu_ns", "nivcsw"):
        found[name] = np.array([getattr(row.result, name) for row in rows])
    return found


def run_session(
    drift: str,
    *,
    seed: int,
    launch_sd: float = 0.0,
    truth: Mapping[str, float] = TRUTH,
    profile: Profile = DEFAULT,
    prior: Launch = LAUNCH_PRIOR,
    faults: Mapping[str, Fault] | None = None,
    grain_ns: int = 1,
    trend: float = 0.0,
) -> Declared:
    """Return what a session of ``profile`` declares on a machine that drifts.

    ``prior`` is what was believed of its launches; ``faults`` happen to the programs
    named, and to them alone.
    """
    samples, seconds = run_samples(
        drift,
        seed=seed,
        launch_sd=launch_sd,
        truth=truth,
        profile=profile,
        faults=faults,
        grain_ns=grain_ns,
        trend=trend,
    )
    launch = launch_of(list(samples.values()), prior)
    comparisons = {}
    for name in truth:
        if name != "base":
            found = compare(
                samples[name], samples["base"], confidence=profile.confidence, launch=launch
            )
            assert found is not None
            comparisons[name] = found
    return Declared(comparisons, samples, launch, seconds)


def run_samples(
    drift: str,
    *,
    seed: int,
    launch_sd: float,
    truth: Mapping[str, float],
    profile: Profile,
    faults: Mapping[str, Fault] | None = None,
    grain_ns: int = 1,
    trend: float = 0.0,
) -> tuple[dict[str, Samples], float]:
    """Return what a session leaves, by program, and the seconds that it took."""
    rng = np.random.default_rng(seed)
    machine = Machine(
        rng,
        DRIFTS[drift](rng),
        grain_ns=grain_ns,
        trend=trend,
        faults=np.random.default_rng((seed, 1)),
    )
    rows: dict[str, list[Row]] = {name: [] for name in truth}
    for epoch in range(profile.epochs):
        programs = {
            name: Program(
                machine,
                name,
                10 * MS * ratio,
                launch=launch_sd * rng.standard_normal(),
                fault=(faults or {}).get(name, sound),
            )
            for name, ratio in truth.items()
        }
        found = run_epoch(
            programs,
            profile=profile,
            epoch=epoch,
            seed=seed,
            pairs=[Pair(name, "base") for name in truth if name != "base"],
            controls=lambda number: setattr(machine, "place", 0),
        )
        for name in rows:
            rows[name] += found.rows[name]
    samples = {name: columns(found) for name, found in rows.items()}
    return samples, machine.now_s


@dataclass(frozen=True)
class Scenario:
    """A machine and what is wrong with one program of the session.

    ``faults`` gives, by seed, what happens to the programs named in it, and to them alone;
    ``blamed`` and ``flag`` say who must be flagged, and as what ("" where nobody must be).
    ``trend`` and ``grain_ns`` are the machine's: see ``scenarios.Machine``.
    """

    name: str
    drift: str = "quiet"
    launch_sd: float = 0.01
    faults: Callable[[int], Mapping[str, Fault]] = lambda seed: {}
    blamed: str = "b10"
    flag: str = ""
    grain_ns: int = 1
    trend: float = 0.0

    def run(self, seed: int) -> Declared:
        """Return what the session of that seed declares."""
        return run_session(
            self.drift,
            seed=seed,
            launch_sd=self.launch_sd,
            faults=self.faults(seed),
            grain_ns=self.grain_ns,
            trend=self.trend,
        )


def _step_half_way(drift: str) -> Callable[[int], Mapping[str, Fault]]:
    """A step at half the time that the same session takes without it."""

    def faults(seed: int) -> Mapping[str, Fault]:
        whole_s = run_session(drift, seed=seed, launch_sd=0.01).seconds
        return {"b10": step(whole_s / 2)}

    return faults


def _carried(seed: int) -> Mapping[str, Fault]:
    return {name: carry_over("b20") for name in TRUTH if name != "b20"}


def _modes(share: float) -> Callable[[int], Mapping[str, Fault]]:
    return lambda seed: {"b10": two_modes(share=share)}


FAULTS = (
    *(
        Scenario("step of 5 %", drift, faults=_step_half_way(drift), flag="not-steady")
        for drift in ("quiet", "bursts")
    ),
    *(
        Scenario("modes 5 % apart", drift, faults=_modes(0.5), flag="bimodal")
        for drift in ("quiet", "bursts")
    ),
    Scenario("modes, 30 % slow", faults=_modes(0.3), flag="bimodal"),
    Scenario("carry-over of 1 %", faults=_carried, flag="carry-over"),
)
"""Programs that are not steady: these must be flagged."""

CONDITIONS = (
    Scenario("warm-up, 3 slots", faults=lambda seed: {"b10": warm_up()}),
    Scenario("coarse timer", grain_ns=1 * MS),
    Scenario("trend in a round", trend=0.01, launch_sd=0.0),
    Scenario(
        "wanders alone",
        launch_sd=0.0,
        faults=lambda seed: {"b10": wander(np.random.default_rng((seed, 2)))},
    ),
)
"""Machines and programs that are awkward: the truth must be covered all the same."""


@dataclass
class Tally:
    """Counts over many sessions, by candidate.

    ``alarms`` are sessions in which anybody was flagged; ``flags`` counts sessions by
    candidate and flag; ``within`` intervals without the launch term that hold the truth.
    """

    sessions: int = 0
    covered: dict[str, int] = field(default_factory=dict)
    within: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)
    right: dict[str, int] = field(default_factory=dict)
    bias: dict[str, float] = field(default_factory=dict)
    flags: dict[tuple[str, str], int] = field(default_factory=dict)
    alarms: int = 0
    seconds: float = 0.0

    def add(self, declared: Declared, *, truth: Mapping[str, float], tie: float) -> None:
        """Count one session. Comparisons are candidate over baseline: above 1 is slower."""
        self.sessions += 1
        self.seconds += declared.seconds
        for name, found in declared.comparisons.items():
            ratio = truth[name]
            said = verdict(found, tie)
            # ``faster`` here says that the baseline is the faster one.
            lies = {"slower"} if ratio > 1.0 else {"faster", "slower"}
            _count(self.covered, name, found.low <= ratio <= found.high)
            _count(self.within, name, found.within_low <= ratio <= found.within_high)
            _count(self.wrong, name, said in lies)
            _count(self.right, name, said == ("faster" if ratio > 1.0 else "tie"))
            self.bias[name] = self.bias.get(name, 0.0) + float(np.log(found.estimate / ratio))
        flagged = steadiness_flags(declared.samples)
        self.alarms += bool(flagged)
        for name, flags in flagged.items():
            for flag in flags:
                _count(self.flags, (name, flag["flag"]), True)

    def share(self, where: Mapping[Any, int], name: object) -> float:
        return where.get(name, 0) / self.sessions

    def coverage(self) -> float:
        """Return the share of all intervals that hold the truth."""
        return sum(self.covered.values()) / (self.sessions * len(self.covered))


def _count(where: dict[Any, int], name: object, hit: bool) -> None:
    where[name] = where.get(name, 0) + int(hit)


def tally(scenario: Scenario, *, sessions: int, first_seed: int = 0) -> Tally:
    """Return the counts over ``sessions`` fixed-seed sessions of one scenario."""
    found = Tally()
    for seed in range(first_seed, first_seed + sessions):
        found.add(scenario.run(seed), truth=TRUTH, tie=DEFAULT.tie)
    return found


def too_often(hits: int, cases: int, allowed: float) -> bool:
    """Return whether ``hits`` of ``cases`` are more than a rate of ``allowed`` explains."""
    return bool(binomtest(hits, cases, allowed, alternative="greater").pvalue < 0.001)


def broken_demands(found: Tally, launch_sd: float) -> list[str]:
    """Return the demands on a common-mode scenario that the counts do not meet."""
    count = found.sessions
    missed = count * len(found.covered) - sum(found.covered.values())
    broken = {
        "coverage": too_often(missed, count * len(found.covered), 0.07),
        "A/A": too_often(found.wrong["aa"], count, 0.05),
        "wrong at 3 %": too_often(found.wrong["b3"], count, 0.01),
        "wrong at 10 %": too_often(found.wrong["b10"], count, 0.001),
    }
    # 0.1 % and what the mean of so many sessions may stray by.
    stray = 4 * (0.003 + launch_sd) / count**0.5
    broken["bias"] = any(abs(total / count) > 0.001 + stray for total in found.bias.values())
    return [name for name, is_broken in broken.items() if is_broken]
