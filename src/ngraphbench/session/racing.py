"""Racing: a candidate that is surely slower leaves, and a decided session ends.

Errors are bounded as follows. Two thirds of the profile's error (``stats.RACE_SHARE``) are
spent on dropping, equally over launches, and in each launch equally over the rivals that are
left (Holm, step by step, down to ``FEWEST_RIVALS``); the rest is left to the verdict on those
that stay. How a process happens to be laid out is drawn once a launch, so the launch term is
paid for once a launch; the noise of rounds is drawn anew, so it is paid for at every look: the
looks of a launch get shares of 1/2, 1/6, 1/12 and so on, which sum to 1 however many there
are. Peeking at every round without that declares a false winner in a third of exact ties.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ngraphbench import stats, summary
from ngraphbench.profiles import Profile
from ngraphbench.session.kernel import Row, Ruling, columns
from ngraphbench.session.schedule import FEWEST_ROUNDS
from ngraphbench.stats import LAUNCH_PRIOR, RACE_SHARE, Launch
from ngraphbench.summary import Comparison, Samples

__all__ = ["SLOW_PACE", "Drop", "Levels", "Race", "levels", "looks", "sure_factor"]

SLOW_PACE = 4
"""Who has nothing left to prove runs in every fourth round: enough to stay paired."""

LOOK_GROWTH = 1.5
FEWEST_RIVALS = 3
"""Levels are never easier than with so many: with few programs the launch spread is known
worst, and the verdict at the end has its own share."""

LAUNCH_PART = 0.5
"""A launch ends when noise is this small against the launch term: more rounds of the same
processes would narrow the interval by 11 % at most."""


@dataclass(frozen=True, slots=True)
class Levels:
    """Confidences of one comparison: of its launch term, and of the noise of its rounds."""

    launch: float
    within: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Who is surely slower than ``by``: after ``rounds`` its time is at least ``factor``."""

    key: str
    by: str
    rounds: int
    factor: float


def looks(profile: Profile) -> tuple[int, ...]:
    """Return after which rounds of a launch a race is looked at: a geometric series.

    >>> from ngraphbench.profiles import PROFILES
    >>> looks(PROFILES["default"])
    (6, 12, 18, 27, 41, 62, 93, 140, 210)
    """
    found = [max(FEWEST_ROUNDS, math.ceil(profile.rounds_min / 2))]
    following = max(profile.rounds_min, found[0] + 1)
    while following <= profile.rounds_max:
        found.append(following)
        following = math.ceil(following * LOOK_GROWTH)
    return tuple(found)


def levels(profile: Profile, *, look: int, rivals: int) -> Levels:
    """Return at which confidences the leader is compared with each of ``rivals``.

    ``look`` counts from 0 in every launch.
    """
    spent = (1.0 - profile.confidence) * RACE_SHARE / profile.epochs / max(FEWEST_RIVALS, rivals)
    return Levels(launch=1.0 - spent, within=1.0 - spent / ((look + 1) * (look + 2)))


def sure_factor(slow: Samples, fast: Samples, *, at: Levels, launch: Launch) -> float:
    """Return how many times as long as ``fast`` the other surely takes; 0 where nobody knows."""
    found = summary.compare(slow, fast, confidence=at.within, launch=launch)
    if found is None:
        return 0.0
    within = math.log(found.estimate / found.within_low)
    return found.estimate / math.exp(math.hypot(within, _term(found, at.launch, launch)))


def _term(found: Comparison, confidence: float, launch: Launch) -> float:
    return stats.launch_half_width(launch, confidence, found.epochs, processes=2)


@dataclass(slots=True)
class Race:
    """The races of one launch, one for each group of candidates that do the same work.

    ``groups`` holds their keys. ``kept`` (baselines) never leave: speed-ups need them; once
    surely slower they run at the slow pace. So do ``controls`` (the A/A sentinel), from the
    start: a control must see launches rather than rounds, and its twin is there in the same
    rounds. ``out`` holds who was beaten in an earlier launch, ``past`` the samples of
    earlier launches, ``leave`` is told of everyone who is beaten.
    """

    groups: tuple[tuple[str, ...], ...]
    profile: Profile
    kept: frozenset[str] = frozenset()
    controls: frozenset[str] = frozenset()
    out: set[str] = field(default_factory=set)
    past: Mapping[str, Samples] = field(default_factory=dict)
    prior: Launch = LAUNCH_PRIOR
    leave: Callable[[Drop], None] = lambda drop: None
    levels: Callable[..., Levels] = levels
    _decided: set[tuple[str, ...]] = field(default_factory=set)
    _gone: set[str] = field(default_factory=set)

    @property
    def contenders(self) -> list[str]:
        """Who may still turn out the fastest of its group."""
        return [key for group in self.groups for key in group if key not in self.out | self._gone]

    def resting(self, number: int) -> set[str]:
        """Return who does not run in round ``number``."""
        if number % SLOW_PACE == 0:
            return set()
        idle = {key for group in self._decided for key in group}
        return {*self.controls, *(self.kept & self.out), *idle}

    def look(self, rounds: int, rows: Mapping[str, Sequence[Row]]) -> Ruling:
        """Return who leaves after that many rounds of a launch, and whether that ends it.

        ``rows`` are this launch's, of everyone who is still running. It ends ``decided``
        when every group has one contender left or its contenders tie, ``precise`` when more
        rounds would not help but other launches may.
        """
        series = looks(self.profile)
        if rounds not in series:
            return Ruling()
        self._gone = {key for group in self.groups for key in group if key not in rows}
        samples = {key: self._all(key, found) for key, found in rows.items()}
        launch = self._launch(samples)
        drops: list[Drop] = []
        for group in self.groups:
            drops += self._drops(group, samples, launch, look=series.index(rounds))
        for drop in drops:
            self.out.add(drop.key)
            self.leave(drop)
        self._decided = {g for g in self.groups if self._is_decided(g, samples, launch)}
        leaving = frozenset(drop.key for drop in drops) - self.kept
        return Ruling(leaving, self._ended(rounds, samples, launch))

    def _ended(self, rounds: int, samples: Mapping[str, Samples], launch: Launch) -> str:
        open_groups = [group for group in self.groups if group not in self._decided]
        if not open_groups:
            return "decided"
        if rounds < self.profile.rounds_min:
            return ""
        narrow = all(self._is_narrow(group, samples, launch) for group in open_groups)
        return "precise" if narrow else ""

    def _all(self, key: str, rows: Sequence[Row]) -> Samples:
        own, past = columns(rows), self.past.get(key)
        if past is None:
            return own
        return {name: np.concatenate([past[name], own[name]]) for name in own}

    def _launch(self, samples: Mapping[str, Samples]) -> Launch:
        """Return the launch spread of those that ran in all rounds, side by side."""
        idle = {key for group in self._decided for key in group}
        running = [key for key in self.contenders if key not in idle] or self.contenders
        return summary.launch_of([samples[key] for key in running], self.prior)

    def _racing(self, group: tuple[str, ...], samples: Mapping[str, Samples]) -> list[str]:
        """Return the contenders of a group, the leader first."""
        racing = [key for key in group if key in samples and key not in self.out]
        if len(racing) < 2:
            return racing
        times = {key: self._time(samples[key], samples[racing[0]]) for key in racing}
        return sorted(racing, key=lambda key: times[key])

    def _time(self, one: Samples, reference: Samples) -> float:
        if one is reference:
            return 1.0
        found = summary.compare(one, reference, confidence=self.profile.confidence)
        return found.estimate if found is not None else math.inf

    def _drops(
        self, group: tuple[str, ...], samples: Mapping[str, Samples], launch: Launch, *, look: int
    ) -> list[Drop]:
        """Return who is surely slower, step by step: each one that leaves eases the next."""
        racing = self._racing(group, samples)
        found: list[Drop] = []
        while len(racing) > 1:
            leader, *rivals = racing
            at = self.levels(self.profile, look=look, rivals=len(rivals))
            fresh = []
            for key in rivals:
                factor = sure_factor(samples[key], samples[leader], at=at, launch=launch)
                if factor > 1.0:
                    rounds = len(summary.round_logs(samples[key]))
                    fresh.append(Drop(key, leader, rounds, factor))
            if not fresh:
                break
            found += fresh
            racing = [key for key in racing if key not in {drop.key for drop in fresh}]
        return found

    def _is_decided(
        self, group: tuple[str, ...], samples: Mapping[str, Samples], launch: Launch
    ) -> bool:
        racing = self._racing(group, samples)
        return all(
            summary.verdict(self._compare(samples, racing[0], key, launch), self.profile.tie)
            == "tie"
            for key in racing[1:]
        )

    def _is_narrow(
        self, group: tuple[str, ...], samples: Mapping[str, Samples], launch: Launch
    ) -> bool:
        racing = self._racing(group, samples)
        for key in racing[1:]:
            found = self._compare(samples, racing[0], key, launch)
            if found is None:
                return False
            within = math.log(found.within_high / found.within_low) / 2.0
            if within > LAUNCH_PART * _term(found, self.profile.confidence, launch):
                return False
        return True

    def _compare(
        self, samples: Mapping[str, Samples], a: str, b: str, launch: Launch
    ) -> Comparison | None:
        confidence = self.profile.confidence
        return summary.compare(samples[a], samples[b], confidence=confidence, launch=launch)
