"""What samples say: latency, throughput and speed-up with intervals. Recomputable by anyone.

``Samples`` is what a sample file holds, one numpy column per name. All comparisons are
paired: slots of the same epoch and round stood side by side on the same machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

import numpy as np

from ngraphbench import stats
from ngraphbench.records import interval
from ngraphbench.stats import LAUNCH_PRIOR, Launch
from ngraphbench.types import Array, Json

__all__ = [
    "ESTIMATOR",
    "Comparison",
    "Samples",
    "by_epoch",
    "compare",
    "launch_of",
    "location",
    "prior_of",
    "round_logs",
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


def round_logs(samples: Samples) -> dict[tuple[int, int], float]:
    """Return log ns per call by (epoch, round); several slots of one round are averaged."""
    epochs, rounds = np.asarray(samples["epoch"]).tolist(), np.asarray(samples["round"]).tolist()
    keys = list(zip(epochs, rounds, strict=True))
    logs = np.log(np.asarray(samples["call_ns"], dtype=float)).tolist()
    single = dict(zip(keys, logs, strict=True))
    if len(single) == len(keys):
        return single
    slots: dict[tuple[int, int], list[float]] = {}
    for key, value in zip(keys, logs, strict=True):
        slots.setdefault(key, []).append(value)
    return {key: sum(values) / len(values) for key, values in slots.items()}


def by_epoch(values: Mapping[tuple[int, int], float]) -> list[Array]:
    """Return values by (epoch, round) as one array per epoch, rounds in order."""
    epochs: dict[int, list[float]] = {}
    for (epoch, _), value in sorted(values.items()):
        epochs.setdefault(epoch, []).append(value)
    return [np.array(column) for column in epochs.values()]


def location(epochs: Sequence[Array], confidence: float) -> tuple[float, float, float]:
    """Return the mean of the epochs' Hodges-Lehmann locations, and its within-launch interval."""
    centres = [stats.hodges_lehmann(column) for column in epochs]
    estimate = float(np.mean(centres))
    pairs = zip(epochs, centres, strict=True)
    residuals = np.concatenate([column - centre for column, centre in pairs])
    low, high = stats.signed_rank_interval(residuals, confidence)
    # Every epoch counts the same, so a short one adds more noise than its share of rounds.
    wider = math.sqrt(len(residuals) * sum(1 / len(c) for c in epochs)) / len(epochs)
    wider *= stats.serial_inflation(epochs)
    return estimate, estimate + wider * min(low, 0.0), estimate + wider * max(high, 0.0)


def launch_of(all_samples: Sequence[Samples], prior: Launch = LAUNCH_PRIOR) -> Launch:
    """Return the launch spread pooled over candidates that were there in every epoch.

    Only rounds that all of them share count: what a machine does meanwhile must be common.
    Who ran in fewer than half of the rounds would leave too few, and is left out.
    """
    logs = [round_logs(samples) for samples in all_samples]
    epochs = [{epoch for epoch, _ in found} for found in logs]
    longest = max(map(len, epochs), default=0)
    if longest < 2:
        return prior
    logs = [found for found, there in zip(logs, epochs, strict=True) if len(there) == longest]
    most = max(map(len, logs))
    logs = [found for found in logs if 2 * len(found) >= most]
    shared = set(logs[0]).intersection(*logs)
    columns = [by_epoch({key: found[key] for key in shared}) for found in logs]
    table = [[float(np.median(column)) for column in found] for found in columns]
    return stats.launch_spread(np.array(table), prior) if len(columns[0]) == longest else prior


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
    left, right = round_logs(a), round_logs(b)
    shared = {key: left[key] - right[key] for key in left if key in right}
    if len(shared) < 2:
        return None
    epochs = by_epoch(shared)
    estimate, within_low, within_high = location(epochs, confidence)
    term = stats.launch_half_width(launch, confidence, len(epochs), processes=2)
    return Comparison(
        estimate=math.exp(estimate),
        low=math.exp(estimate - math.hypot(estimate - within_low, term)),
        high=math.exp(estimate + math.hypot(within_high - estimate, term)),
        within_low=math.exp(within_low),
        within_high=math.exp(within_high),
        rounds=len(shared),
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
    epochs = by_epoch(round_logs(samples))
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
