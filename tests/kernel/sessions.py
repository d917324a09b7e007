"""Whole sessions on a virtual clock, and what they declared against the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scenarios import DRIFTS, Machine, Program

from ngraphbench.profiles import PROFILES, Profile
from ngraphbench.session.kernel import Row, measure_epoch
from ngraphbench.session.schedule import Pair
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
) -> Declared:
    """Return what a session of ``profile`` declares on a machine that drifts.

    ``prior`` is what was believed of its launches.
    """
    rng = np.random.default_rng(seed)
    machine = Machine(rng, DRIFTS[drift](rng))
    rows: dict[str, list[Row]] = {name: [] for name in truth}
    for epoch in range(profile.epochs):
        programs = {
            name: Program(
                machine,
                name,
                10 * MS * ratio,
                launch=launch_sd * rng.standard_normal(),
            )
            for name, ratio in truth.items()
        }
        found = measure_epoch(
            programs,
            profile=profile,
            epoch=epoch,
            clock=machine.clock,
            seed=seed,
            call_ns={name: program.call_ns for name, program in programs.items()},
            pairs=[Pair(name, "base") for name in truth if name != "base"],
        )
        for name in rows:
            rows[name] += found.rows[name]
    samples = {name: columns(found) for name, found in rows.items()}
    launch = launch_of(list(samples.values()), prior)
    comparisons = {}
    for name in truth:
        if name != "base":
            found = compare(
                samples[name], samples["base"], confidence=profile.confidence, launch=launch
            )
            assert found is not None
            comparisons[name] = found
    return Declared(comparisons, samples, launch, machine.now_s)


@dataclass
class Tally:
    """Counts over many sessions, by candidate."""

    sessions: int = 0
    covered: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)
    right: dict[str, int] = field(default_factory=dict)
    bias: dict[str, float] = field(default_factory=dict)
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
            self._count(self.covered, name, found.low <= ratio <= found.high)
            self._count(self.wrong, name, said in lies)
            self._count(self.right, name, said == ("faster" if ratio > 1.0 else "tie"))
            self.bias[name] = self.bias.get(name, 0.0) + float(np.log(found.estimate / ratio))

    def _count(self, where: dict[str, int], name: str, hit: bool) -> None:
        where[name] = where.get(name, 0) + int(hit)

    def share(self, where: dict[str, int], name: str) -> float:
        return where[name] / self.sessions

    def coverage(self) -> float:
        """Return the share of all intervals that hold the truth."""
        return sum(self.covered.values()) / (self.sessions * len(self.covered))


def tally(drift: str, *, launch_sd: float, sessions: int, first_seed: int = 0) -> Tally:
    """Return the counts over ``sessions`` fixed-seed sessions of one scenario."""
    found = Tally()
    for seed in range(first_seed, first_seed + sessions):
        declared = run_session(drift, seed=seed, launch_sd=launch_sd)
        found.add(declared, truth=TRUTH, tie=DEFAULT.tie)
    return found
