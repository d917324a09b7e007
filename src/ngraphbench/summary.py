"""What samples say: latency, throughput and speed-up with intervals. Recomputable by anyone.

``Samples`` is what a sample file holds, one numpy column per name. All comparisons are
paired: slots of the same epoch and round stood side by side on the same machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np

from ngraphbench import stats
from ngraphbench.records import interval
from ngraphbench.stats import LAUNCH_PRIOR, Launch
from ngraphbench.types import Array, Json

__all__ = [
    "ESTIMATOR",
    "NO_LOGS",
    "Comparison",
    "Logs",
    "Rounds",
    "Samples",
    "compare",
    "compare_logs",
    "launch_of",
    "launch_of_logs",
    "location",
    "prior_of",
    "round_logs",
    "side_by_side",
    "summarise",
    "verdict",
]

ESTIMATOR = "1"
"""Version of the estimators below; stored with every summary."""

Samples: TypeAlias = Mapping[str, Array]
Verdict: TypeAlias = Literal["faster", "slower", "tie", "unresolved"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The ratio of two times per call, a / b: above 1, b is faster.

    ``low``/``high`` carry the launch term and bear claims; ``within_low``/``within_high``
    hold for these very processes only.
    """

    estimate: float
    low: float
    high: float
    within_low: float
    within_high: float
    rounds: int
    epochs: int
    confidence: float
    claim: str = "artefact"

    def to_json(self) -> Json:
        return {
            **interval(self.estimate, self.low, self.high, self.confidence, self.claim),
            "within": interval(
                self.estimate, self.within_low, self.within_high, self.confidence, "launch"
            ),
        }


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds of a session as (epoch, round), in order, and where the values of each epoch end."""

    keys: tuple[tuple[int, int], ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, keys: Sequence[tuple[int, int]]) -> Rounds:
        """Return rounds that are in order already."""
        last = (i for i, (one, after) in enumerate(pairwise(keys), start=1) if one[0] != after[0])
        return cls(tuple(keys), (0, *last, len(keys)) if keys else (0,))

    @property
    def epochs(self) -> int:
        return len(self.ends) - 1

    def __len__(self) -> int:
        return len(self.keys)

    def by_epoch(self, values: Array) -> list[Array]:
        """Return values, one for each round, as one array per epoch."""
        return [values[start:end] for start, end in pairwise(self.ends)]


@dataclass(frozen=True, slots=True, eq=False)
class Logs:
    """Log ns per call of one candidate, one value for each of its rounds."""

    rounds: Rounds
    values: Array

    def __len__(self) -> int:
        return len(self.rounds)


NO_LOGS = Logs(Rounds.of(()), np.array([]))


def round_logs(samples: Samples) -> Logs:
    """Return log ns per call by (epoch, round); several slots of one round are averaged."""
    epochs, rounds = np.asarray(samples["epoch"]).tolist(), np.asarray(samples["round"]).tolist()
    keys = list(zip(epochs, rounds, strict=True))
    logs = np.log(np.asarray(samples["call_ns"], dtype=float))
    if all(one < after for one, after in pairwise(keys)):
        return Logs(Rounds.of(keys), logs)
    slots: dict[tuple[int, int], list[float]] = {}
    for key, value in zip(keys, logs.tolist(), strict=True):
        slots.setdefault(key, []).append(value)
    keys = sorted(slots)
    return Logs(Rounds.of(keys), np.array([sum(slots[key]) / len(slots[key]) for key in keys]))


def side_by_side(all_logs: Sequence[Logs]) -> tuple[Rounds, list[Array]]:
    """Return the rounds that all candidates share, and the values of each one in them."""
    rounds = all_logs[0].rounds
    if all(logs.rounds == rounds for logs in all_logs[1:]):
        return rounds, [logs.values for logs in all_logs]
    everyone = [logs.rounds.keys for logs in all_logs]
    shared = set(everyone[0]).intersection(*everyone[1:])
    there = [[key in shared for key in keys] for keys in everyone]
    values = [logs.values[known] for logs, known in zip(all_logs, there, strict=True)]
    return Rounds.of(sorted(shared)), values


def location(epochs: Sequence[Array], confidence: float) -> tuple[float, float, float]:
    """Return the mean of the epochs' Hodges-Lehmann locations, and its within-launch interval."""
    tables = stats.tables(epochs)
    centres = [stats.locations(table) for table in tables]
    estimate = float(np.add.reduce(np.concatenate(centres))) / len(epochs)
    pairs = zip(tables, centres, strict=True)
    residuals = np.concatenate([(table - centre[:, None]).ravel() for table, centre in pairs])
    low, high = stats.signed_rank_interval(residuals, confidence)
    # Every epoch counts the same, so a short one adds more noise than its share of rounds.
    wider = math.sqrt(len(residuals) * sum(1 / len(c) for c in epochs)) / len(epochs)
    wider *= stats.serial_inflation(tables)
    return estimate, estimate + wider * min(low, 0.0), estimate + wider * max(high, 0.0)


def launch_of(all_samples: Sequence[Samples], prior: Launch = LAUNCH_PRIOR) -> Launch:
    """Return the launch spread pooled over candidates that were there in every epoch.

    Only rounds that all of them share count: what a machine does meanwhile must be common.
    Who ran in fewer than half of the rounds would leave too few, and is left out.
    """
    return launch_of_logs([round_logs(samples) for samples in all_samples], prior)


def launch_of_logs(logs: Sequence[Logs], prior: Launch) -> Launch:
    """Return what ``launch_of`` does, of what ``round_logs`` made of the samples."""
    longest = max((found.rounds.epochs for found in logs), default=0)
    if longest < 2:
        return prior
    logs = [found for found in logs if found.rounds.epochs == longest]
    most = max(map(len, logs))
    rounds, values = side_by_side([found for found in logs if 2 * len(found) >= most])
    if rounds.epochs < longest:
        return prior
    epochs = [np.array(values)[:, start:end] for start, end in pairwise(rounds.ends)]
    return stats.launch_spread(np.column_stack([stats.medians(table) for table in epochs]), prior)


def prior_of(session: Json | None) -> Launch:
    """Return what a session believed of its host's launches; the start where it does not say."""
    found = (session or {}).get("launch_prior") or asdict(LAUNCH_PRIOR)
    claim = (session or {}).get("conditions", {}).get("claim", LAUNCH_PRIOR.claim)
    return Launch(float(found["sd"]), float(found["degrees"]), claim)


def compare(
    a: Samples,
    b: Samples,
    *,
    confidence: float,
    launch: Launch = LAUNCH_PRIOR,
) -> Comparison | None:
    """Return time of ``a`` over time of ``b``, paired by epoch and round.

    None when they share fewer than two rounds. Launch effects of both sides enter the
    outer interval: a process is itself a few percent fast or slow.
    """
    return compare_logs(round_logs(a), round_logs(b), confidence=confidence, launch=launch)


def compare_logs(
    left: Logs, right: Logs, *, confidence: float, launch: Launch
) -> Comparison | None:
    """Return what ``compare`` does, of what ``round_logs`` made of both sides."""
    rounds, (mine, theirs) = side_by_side((left, right))
    if len(rounds) < 2:
        return None
    epochs = rounds.by_epoch(mine - theirs)
    estimate, within_low, within_high = location(epochs, confidence)
    term = stats.launch_half_width(launch, confidence, len(epochs), processes=2)
    return Comparison(
        estimate=math.exp(estimate),
        low=math.exp(estimate - math.hypot(estimate - within_low, term)),
        high=math.exp(estimate + math.hypot(within_high - estimate, term)),
        within_low=math.exp(within_low),
        within_high=math.exp(within_high),
        rounds=len(rounds),
        epochs=len(epochs),
        confidence=confidence,
        claim=launch.claim,
    )


def verdict(comparison: Comparison | None, tie: float) -> Verdict:
    """Return what may be said of ``b`` against ``a``; ``tie`` is the zone of equality.

    ``tie`` when the whole interval lies inside the zone, ``unresolved`` when the interval
    holds 1 and reaches out of it.
    """
    if comparison is None:
        return "unresolved"
    if comparison.high < 1.0 + tie and comparison.low > 1.0 / (1.0 + tie):
        return "tie"
    if comparison.low > 1.0:
        return "faster"
    return "slower" if comparison.high < 1.0 else "unresolved"


def _latency(samples: Samples, confidence: float, launch: Launch) -> Json:
    logs = round_logs(samples)
    epochs = logs.rounds.by_epoch(logs.values)
    estimate, low, high = location(epochs, confidence)
    term = stats.launch_half_width(launch, confidence, len(epochs), processes=1)
    return interval(
        math.exp(estimate) / 1e6,
        math.exp(estimate - math.hypot(estimate - low, term)) / 1e6,
        math.exp(estimate + math.hypot(high - estimate, term)) / 1e6,
        confidence,
        launch.claim,
    )


def _throughput(samples: Samples, batch: int, confidence: float, launch: Launch) -> Json:
    items = np.asarray(samples["calls"], dtype=float) * batch
    seconds = np.asarray(samples["slot_ns"], dtype=float) / 1e9
    estimate, error = stats.jackknife_log_ratio(items, seconds)
    epochs = len(np.unique(samples["epoch"]))
    rounds = len(items)
    within = stats.t_quantile(confidence, max(1, rounds - 1)) * error
    half = math.hypot(within, stats.launch_half_width(launch, confidence, epochs, processes=1))
    return interval(
        math.exp(estimate),
        math.exp(estimate - half),
        math.exp(estimate + half),
        confidence,
        launch.claim,
    )


def summarise(
    samples: Samples,
    *,
    batch: int,
    confidence: float,
    tie: float,
    launch: Launch = LAUNCH_PRIOR,
    baseline: Samples | None = None,
    baseline_label: str = "",
) -> Json | None:
    """Return the ``summary`` of a case record, or None for fewer than two slots.

    ``latency_ms`` is a location (typical call), ``throughput_per_s`` is items over wall
    time of all timed calls, ``vs_baseline`` the paired speed-up.
    """
    if len(samples["call_ns"]) < 2:
        return None
    versus: Json | None = None
    if baseline is not None:
        comparison = compare(baseline, samples, confidence=confidence, launch=launch)
        if comparison is not None:
            versus = {
                **comparison.to_json(),
                "verdict": verdict(comparison, tie),
                "baseline": baseline_label,
            }
    return {
        "estimator": ESTIMATOR,
        "latency_ms": _latency(samples, confidence, launch),
        "throughput_per_s": _throughput(samples, batch, confidence, launch),
        "vs_baseline": versus,
        "first_after_idle_ms": float(np.median(samples["first_ns"])) / 1e6,
        "percentiles_ms": {},
    }
