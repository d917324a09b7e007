"""Pairs of runs on a virtual clock, and what comparing them declares against the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from run_fixture import Run, model
from sessions import run_samples

from ngraphbench.analysis.pairing import Side
from ngraphbench.analysis.regressions import RunComparison, compare_runs
from ngraphbench.analysis.tables import Evidence
from ngraphbench.profiles import PROFILES
from ngraphbench.session.launches import ONCE, Learned

PROGRAMS: Mapping[str, float] = {"base": 1.0, "b": 0.8, "c": 0.7, "d": 0.5}
"""Times relative to the baseline, as before the change."""
CHANGED = "d"
NUMBERS = {"estimate": 1.0, "low": 1.0, "high": 1.0, "confidence": 0.95, "claim": "artefact"}


@dataclass(frozen=True)
class Comparing:
    """Two runs of one profile on a machine that drifts: the second with a program changed.

    ``slower`` is by how much ``CHANGED`` is slower in the second run; 0: nothing changed.
    """

    drift: str = "quiet"
    launch_sd: float = 0.01
    profile: str = "default"
    slower: float = 0.0

    def run(self, seed: int) -> RunComparison:
        """Return what is declared of the pair of runs of that seed."""
        truth = {**PROGRAMS, CHANGED: PROGRAMS[CHANGED] * (1.0 + self.slower)}
        before = self._side(PROGRAMS, 2 * seed)
        return compare_runs(before, self._side(truth, 2 * seed + 1))

    def _side(self, truth: Mapping[str, float], seed: int) -> Side:
        profile = PROFILES[self.profile]
        programs, _ = run_samples(
            self.drift, seed=seed, launch_sd=self.launch_sd, truth=truth, profile=profile
        )
        run = Run(profile)
        # The host is new: nothing has been learned of its launches.
        start = Learned() if profile.epochs > 1 else ONCE
        prior = {"sd": start.sd, "degrees": start.degrees}
        session = run.session(baseline="base", launch_prior=prior)
        for name, samples in programs.items():
            record = run.cell(session, model("m"), name, 1)
            run.samples[name] = samples
            record["measurement"] = {"samples": name}
            summary = {"latency_ms": NUMBERS, "throughput_per_s": NUMBERS, "vs_baseline": None}
            record["summary"] = summary
        return Side(Evidence(*run.parts))


@dataclass(frozen=True)
class Found:
    """Counts over pairs of runs: any regression declared, that of ``CHANGED``, any other."""

    pairs: int = 0
    declared: int = 0
    seen: int = 0
    blamed: int = 0
    tied: int = 0

    def __add__(self, other: Found) -> Found:
        names = [field.name for field in fields(self)]
        return Found(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def add(self, comparison: RunComparison) -> Found:
        """Return the counts with one more pair."""
        labels = {change.label for change in comparison.regressions}
        tied = sum(change.verdict == "tie" for change in comparison.changes)
        return replace(
            self,
            pairs=self.pairs + 1,
            declared=self.declared + bool(labels),
            seen=self.seen + (CHANGED in labels),
            blamed=self.blamed + bool(labels - {CHANGED}),
            tied=self.tied + tied,
        )


def count(comparing: Comparing, *, pairs: int, first_seed: int = 0) -> Found:
    """Return the counts over ``pairs`` fixed-seed pairs of runs."""
    found = Found()
    for seed in range(first_seed, first_seed + pairs):
        found = found.add(comparing.run(seed))
    return found
