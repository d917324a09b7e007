"""Whole races on a virtual clock, and what they declared against the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scenarios import DRIFTS, Machine, Program

from ngraphbench.analysis.topset import resolved_slower, verdict_confidence
from ngraphbench.profiles import PROFILES, Profile
from ngraphbench.session import racing
from ngraphbench.session.kernel import Row, Ruling, columns, measure_epoch
from ngraphbench.session.racing import Drop, Race
from ngraphbench.stats import Launch
from ngraphbench.summary import Samples, compare, launch_of

MS = 1_000_000
CLOSE: Mapping[str, float] = {
    "best": 1.0,
    "b3": 1.03,
    "b10": 1.1,
    "b20": 1.2,
    "b50": 1.5,
    "b100": 2.0,
}
"""Times relative to the best: one close race, four that should be over soon."""

EQUAL: Mapping[str, float] = dict.fromkeys(("e1", "e2", "e3", "e4"), 1.0)
SENTINEL = "sentinel"
DEFAULT = PROFILES["default"]


@dataclass(slots=True)
class Everyone(Race):
    """The same looks and the same decisions, but all are measured to the end."""

    def resting(self, number: int) -> set[str]:
        return set()

    def look(self, rounds: int, rows: Mapping[str, list[Row]]) -> Ruling:
        return Ruling(ended=Race.look(self, rounds, rows).ended)


@dataclass(slots=True)
class Naive(Race):
    """Peeks after every round at plain 95 % intervals of this very launch's rounds."""

    def look(self, rounds: int, rows: Mapping[str, list[Row]]) -> Ruling:
        if rounds < racing.FEWEST_ROUNDS:
            return Ruling()
        samples = {key: self._all(key, found) for key, found in rows.items()}
        level = self.profile.confidence
        drops = []
        for group in self.groups:
            leader, *rivals = self._racing(group, samples)
            for key in rivals:
                found = compare(samples[key], samples[leader], confidence=level)
                if found is not None and found.within_low > 1.0:
                    drops.append(Drop(key, leader, rounds, found.within_low))
        self.out |= {drop.key for drop in drops}
        left = [key for group in self.groups for key in group if key in rows]
        ended = "decided" if len([key for key in left if key not in self.out]) < 2 else ""
        return Ruling(frozenset(drop.key for drop in drops), ended)


@dataclass
class Raced:
    """One session: who was dropped, who may still be the fastest, and what it took.

    ``top`` is what the report would say; ``slots`` how often anyone ran.
    """

    dropped: dict[str, Drop]
    top: set[str]
    seconds: float
    slots: int
    epochs: int
    ended: str
    samples: dict[str, Samples] = field(repr=False, default_factory=dict)


def run_race(
    drift: str,
    *,
    seed: int,
    launch_sd: float = 0.0,
    truth: Mapping[str, float] = CLOSE,
    baseline: str = "b50",
    profile: Profile = DEFAULT,
    kind: type[Race] = Race,
    prior: Launch = racing.LAUNCH_PRIOR,
) -> Raced:
    """Return what a race among ``truth``, and a sentinel of the baseline, comes to."""
    rng = np.random.default_rng(seed)
    machine = Machine(rng, DRIFTS[drift](rng))
    times = {**truth, SENTINEL: truth[baseline]}
    samples: dict[str, Samples] = {}
    dropped: dict[str, Drop] = {}
    slots, ended, epoch = 0, "", 0
    while epoch < profile.epochs and ended != "decided":
        left = [key for key in times if key not in dropped or key == baseline]
        if kind is Everyone:
            left = list(times)
        launches = {key: launch_sd * rng.standard_normal() for key in times}
        programs = {
            key: Program(machine, key, 10 * MS * times[key], launch=launches[key]) for key in left
        }
        race = kind(
            groups=(tuple(truth),),
            profile=profile,
            kept=frozenset({baseline}) if kind is not Naive else frozenset(),
            controls=frozenset({SENTINEL}),
            out=set(dropped),
            past=samples,
            prior=prior,
            leave=lambda drop: dropped.setdefault(drop.key, drop),
        )
        found = measure_epoch(
            programs,
            profile=profile,
            epoch=epoch,
            clock=machine.clock,
            seed=seed,
            call_ns={key: program.call_ns for key, program in programs.items()},
            pairs=[],
            race=race,
        )
        for key, rows in found.rows.items():
            slots += len(rows)
            own, past = columns(rows), samples.get(key)
            both = {n: np.concatenate([past[n], own[n]]) for n in own} if past else own
            samples = {**samples, key: both}
        if kind is Naive:
            dropped.update({key: Drop(key, "", 0, 1.0) for key in race.out})
        ended, epoch = found.ended, epoch + 1
    top = declared(samples, set(dropped) & set(truth), profile=profile)
    return Raced(dropped, top, machine.now_s, slots, epoch, ended, samples)


def declared(samples: Mapping[str, Samples], dropped: set[str], *, profile: Profile) -> set[str]:
    """Return the top set that a report names."""
    launch = launch_of([found for key, found in samples.items() if key != SENTINEL])
    ranked = [key for key in samples if key not in dropped and key != SENTINEL]

    def paired(a: str, b: str, confidence: float) -> object:
        return compare(samples[a], samples[b], confidence=confidence, launch=launch)

    def time(key: str) -> float:
        found = compare(samples[key], samples[ranked[0]], confidence=profile.confidence)
        assert found is not None
        return found.estimate

    fastest, *rivals = sorted(ranked, key=time)
    confidence = verdict_confidence(profile.confidence, raced=True)
    slower = resolved_slower(fastest, rivals, paired, confidence=confidence, tie=profile.tie)
    return set(ranked) - slower
