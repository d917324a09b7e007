"""Hosts that learn how much their launches differ, session by session, on the virtual clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sessions import DEFAULT, TRUTH, Declared, run_session

from ngraphbench.profiles import PROFILES, Profile
from ngraphbench.session.launches import Learned, fold
from ngraphbench.stats import Launch
from ngraphbench.summary import launch_of

# A fixed number of rounds: what is asked is what launches add, not when rounds end.
SHORT = replace(DEFAULT, rounds_min=12, rounds_max=12)
SINGLE = replace(PROFILES["quick"], rounds_min=12, rounds_max=12, confidence=0.95)


@dataclass
class Outcome:
    """Over many hosts: how many intervals held the truth, and their mean half-width."""

    cases: int = 0
    covered: int = 0
    half_widths: float = 0.0

    def add(self, declared: Declared) -> None:
        for name, found in declared.comparisons.items():
            self.cases += 1
            self.covered += found.low <= TRUTH[name] <= found.high
            self.half_widths += (found.high - found.low) / 2 / found.estimate

    @property
    def coverage(self) -> float:
        return self.covered / self.cases

    @property
    def half_width(self) -> float:
        return self.half_widths / self.cases


def believed_after(sessions: int, *, launch_sd: float, seed: int) -> Launch:
    """Return the prior of a host that has seen so many sessions of several launches."""
    known = Learned()
    for number in range(sessions):
        declared = run_session(
            "quiet", seed=seed + 7919 * (number + 1), launch_sd=launch_sd, profile=SHORT
        )
        seen = launch_of(list(declared.samples.values()), Launch(sd=0.0, degrees=0.0))
        known = fold(known, seen)
    return known.launch()


def outcome(
    sessions: int, *, launch_sd: float, profile: Profile, hosts: int, drift: str = "ar-slow"
) -> Outcome:
    """Return what a session of ``profile`` declares on hosts that have learned."""
    found = Outcome()
    for seed in range(hosts):
        prior = believed_after(sessions, launch_sd=launch_sd, seed=seed)
        found.add(run_session(drift, seed=seed, launch_sd=launch_sd, profile=profile, prior=prior))
    return found
