"""Whole races on a virtual clock, and what they declared against the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scenarios import DRIFTS, Machine, Program, run_epoch

from ngraphbench.analysis.topset import resolved_slower, verdict_confidence
from ngraphbench.profiles import PROFILES, Profile
from ngraphbench.session.kernel import Row, Ruling, columns
from ngraphbench.session.racing import Drop, Race
from ngraphbench.session.schedule import FEWEST_ROUNDS, Pair, is_look, precise_enough
from ngraphbench.stats import LAUNCH_PRIOR, Launch
from ngraphbench.summary import Comparison, Samples, compare, launch_of

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

TIED: Mapping[str, float] = {**CLOSE, "b3": 1.0}
"""Two that are equal, and both the best."""

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
    """Peeks after every round at plain intervals of the rounds so far, as if it looked once.

    Launches end at the precision that a sweep asks for.
    """

    def look(self, rounds: int, rows: Mapping[str, list[Row]]) -> Ruling:
        if rounds < FEWEST_ROUNDS:
            return Ruling()
        samples = {key: self._all(key, found) for key, found in rows.items()}
        (group,) = self.groups
        leader, *rivals = self._racing(group, samples)
        for key in rivals:
            found = compare(samples[key], samples[leader], confidence=self.profile.confidence)
            if found is not None and found.within_low > 1.0:
                self.out.add(key)
                self.leave(Drop(key, leader, found.rounds, found.within_low))
        left = [key for key in rivals if key not in self.out]
        return Ruling(frozenset(rivals) - set(left), self._end(rounds, rows, leader, left))

    def _end(self, rounds: int, rows: Mapping[str, list[Row]], leader: str, left: list[str]) -> str:
        if not left:
            return "decided"
        if not is_look(rounds, self.profile.rounds_min):
            return ""
        samples = {key: columns(found) for key, found in rows.items()}
        pairs = [Pair(key, leader) for key in left]
        return "precise" if precise_enough(samples, pairs, profile=self.profile) else ""


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
    prior: Launch = LAUNCH_PRIOR,
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
        found = run_epoch(programs, profile=profile, epoch=epoch, seed=seed, pairs=[], race=race)
        for key, rows in found.rows.items():
            slots += len(rows)
            own, past = columns(rows), samples.get(key)
            both = {n: np.concatenate([past[n], own[n]]) for n in own} if past else own
            samples = {**samples, key: both}
        ended, epoch = found.ended, epoch + 1
    top = declared(samples, set(dropped) & set(truth), profile=profile)
    return Raced(dropped, top, machine.now_s, slots, epoch, ended, samples)


def declared(samples: Mapping[str, Samples], dropped: set[str], *, profile: Profile) -> set[str]:
    """Return the top set that a report names."""
    launch = launch_of([found for key, found in samples.items() if key != SENTINEL])
    ranked = [key for key in samples if key not in dropped and key != SENTINEL]

    def paired(a: str, b: str, confidence: float) -> Comparison | None:
        return compare(samples[a], samples[b], confidence=confidence, launch=launch)

    def time(key: str) -> float:
        found = compare(samples[key], samples[ranked[0]], confidence=profile.confidence)
        assert found is not None
        return found.estimate

    fastest, *rivals = sorted(ranked, key=time)
    confidence = verdict_confidence(profile.confidence, raced=True)
    slower = resolved_slower(fastest, rivals, paired, confidence=confidence, tie=profile.tie)
    return set(ranked) - slower


@dataclass
class Outcome:
    """What races came to: counts over ``sessions``, and medians of times.

    ``wrong`` the best was dropped or resolved slower, ``named`` it alone is on top, ``false``
    only one of two equals is on top.
    """

    sessions: int = 0
    wrong: int = 0
    named: int = 0
    false: int = 0
    seconds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)


def outcome(
    drift: str, *, launch_sd: float, sessions: int, compared: int = 0, first_seed: int = 0
) -> Outcome:
    """Return the counts over fixed-seed races; ``compared`` of them are timed against all."""
    found = Outcome(sessions)
    for seed in range(first_seed, first_seed + sessions):
        raced = run_race(drift, seed=seed, launch_sd=launch_sd)
        found.wrong += "best" not in raced.top
        found.named += raced.top == {"best"}
        found.seconds.append(raced.seconds)
        if seed < first_seed + compared:
            whole = run_race(drift, seed=seed, launch_sd=launch_sd, kind=Everyone)
            found.ratios.append(raced.seconds / whole.seconds)
        found.false += false_winner(drift, seed=seed, launch_sd=launch_sd)
    return found


def false_winner(drift: str, *, seed: int, launch_sd: float, kind: type[Race] = Race) -> bool:
    """Return whether one of two equals is called the fastest alone."""
    tied = run_race(drift, seed=seed, launch_sd=launch_sd, truth=TIED, kind=kind)
    return not {"best", "b3"} <= tied.top
