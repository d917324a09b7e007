"""What solo blocks say: percentiles, missed deadlines, throughput in flight, equilibrium.

Pure functions of rows (one per request, times in ns from the block's start) and of how each
block ended. Intervals of percentiles come from order statistics: they hold for these very
launches, and for calls that do not depend on each other; slow calls that come in bursts make
them too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ngraphbench import stats
from ngraphbench.records import interval
from ngraphbench.stats import LAUNCH_PRIOR, Launch
from ngraphbench.types import Array, Json

__all__ = [
    "PERCENTILES",
    "BlockSamples",
    "fewest_calls",
    "joules_per_item",
    "percentile_interval",
    "percentiles_ms",
    "summarise_blocks",
    "sustained_summary",
    "tail_percentiles",
]

BlockSamples: TypeAlias = Mapping[str, Array]

PERCENTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
CERTAINTY = 0.99
THROTTLED = 1.05
WINDOWS = 10


def fewest_calls(quantile: float) -> int:
    """Return the least number of calls from which a quantile may be told.

    So many that the second slowest of them is at or above the quantile with 99 % certainty:
    P(Binomial(n, 1 - quantile) <= 1) <= 0.01. A single slowest call is an anecdote, so one
    may be set aside. Source: early stopping in Reddi et al., MLPerf Inference Benchmark.

    >>> fewest_calls(0.50), fewest_calls(0.90), fewest_calls(0.99)
    (11, 64, 662)
    """
    beyond, calls = 1.0 - quantile, 2
    while quantile**calls + calls * beyond * quantile ** (calls - 1) > 1.0 - CERTAINTY:
        calls += 1
    return calls


def percentile_interval(values: Array, quantile: float, confidence: float) -> Json | None:
    """Return a quantile of ``values`` with its interval between two order statistics.

    None where there are too few values (``fewest_calls``) or no such interval exists. How
    many values lie below the true quantile is binomial, whatever their distribution.
    """
    from scipy.special import bdtr

    count = len(values)
    if count < fewest_calls(quantile):
        return None
    ordered = np.sort(np.asarray(values, dtype=float))
    tail = (1.0 - confidence) / 2.0
    below = bdtr(np.arange(count), count, quantile)
    # The low-th smallest (from 1) is above the quantile only if fewer than low are below it.
    low = int(np.searchsorted(below, tail, side="right"))
    high = int(np.searchsorted(below, 1.0 - tail, side="left")) + 1
    if low < 1 or high > count:
        return None
    middle = max(1, math.ceil(quantile * count - 1e-9))
    return interval(
        float(ordered[middle - 1]),
        float(ordered[low - 1]),
        float(ordered[high - 1]),
        confidence,
        "launch",
    )


def percentiles_ms(values_ns: Array, confidence: float) -> Json:
    """Return p50, p90 and p99 in ms, each with its interval; those that may not be told lack."""
    milliseconds = np.asarray(values_ns, dtype=float) / 1e6
    found = {
        name: percentile_interval(milliseconds, quantile, confidence)
        for name, quantile in PERCENTILES.items()
    }
    return {name: value for name, value in found.items() if value is not None}


def tail_percentiles(samples: BlockSamples | None, confidence: float) -> Json:
    """Return percentiles of sync calls back to back, over the tails blocks of all launches."""
    if samples is None:
        return {}
    of_kind = np.asarray(samples["kind"]) == "tails"
    times = np.asarray(samples["end_ns"])[of_kind] - np.asarray(samples["start_ns"])[of_kind]
    return percentiles_ms(times, confidence)


def summarise_blocks(
    outcomes: Sequence[Json],
    samples: BlockSamples | None,
    *,
    batch: int,
    confidence: float,
    launch: Launch = LAUNCH_PRIOR,
) -> list[Json]:
    """Return the ``blocks`` of a case record: one entry per kind and number in flight.

    ``outcomes`` tells how each block of each launch ended. Figures are over the launches in
    which it went well; ``status`` is the first other than ``ok``. Throughput is in items/s.
    """
    groups: dict[tuple[str, int], list[Json]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome["kind"], outcome["in_flight"] or 0), []).append(outcome)
    return [
        _entry(group, _of(samples, group), batch=batch, confidence=confidence, launch=launch)
        for group in groups.values()
    ]


def _of(samples: BlockSamples | None, group: Sequence[Json]) -> dict[str, Array]:
    """Return the rows of one group, from launches that gave figures."""
    names = ("epoch", "calls", "due_ns", "start_ns", "end_ns")
    if samples is None:
        return {name: np.array([], dtype=np.int64) for name in names}
    epochs = [outcome["epoch"] for outcome in group if outcome["status"] in _TIMED]
    mine = np.asarray(samples["kind"]) == group[0]["kind"]
    mine &= np.asarray(samples["in_flight"]) == (group[0]["in_flight"] or 0)
    mine &= np.isin(np.asarray(samples["epoch"]), epochs)
    return {name: np.asarray(samples[name])[mine] for name in names}


_TIMED = ("ok", "overloaded")


def _entry(
    group: Sequence[Json],
    rows: Mapping[str, Array],
    *,
    batch: int,
    confidence: float,
    launch: Launch,
) -> Json:
    first = group[0]
    timed = [outcome for outcome in group if outcome["status"] in _TIMED]
    bad = next((outcome for outcome in group if outcome["status"] != "ok"), first)
    kind = first["kind"]
    entry: Json = {
        "kind": kind,
        "rate_per_s": first["rate_per_s"],
        "in_flight": first["in_flight"],
        "status": bad["status"],
        "reason": bad["reason"],
        "message": bad["message"],
        "note": next((outcome["note"] for outcome in group if outcome["note"]), ""),
        "launches": len(timed),
        "requests": int(np.sum(rows["calls"])),
        "seconds": sum(outcome["window_ns"] for outcome in timed) / 1e9,
        **dict.fromkeys(_FIGURES),
    }
    if not timed or not len(rows["epoch"]):
        return entry
    service_ns = rows["end_ns"] - rows["start_ns"]
    if kind != "sustained":
        entry["service_ms"] = percentiles_ms(service_ns, confidence)
    if kind == "paced":
        _add_paced(entry, rows, confidence)
    elif kind == "sustained":
        entry["sustained"] = {
            **sustained_summary(rows, confidence),
            "start_celsius": first["start_celsius"],
        }
    energy = _energy(timed, rows, batch=batch, confidence=confidence, launch=launch)
    entry |= {"energy": energy} if energy else {}
    if kind in ("tails", "concurrent"):
        entry["throughput_per_s"] = _throughput(
            timed, rows, batch=batch, confidence=confidence, launch=launch
        )
    return entry


_FIGURES = (
    *("response_ms", "service_ms", "deadline_ms", "missed", "missed_share"),
    *("throughput_per_s", "sustained"),
)


def _add_paced(entry: Json, rows: Mapping[str, Array], confidence: float) -> None:
    """Add response times, from when a request was due, and deadlines missed."""
    from scipy.special import betaincinv

    response_ns = rows["end_ns"] - rows["due_ns"]
    period_ns = 1e9 / entry["rate_per_s"]
    count, missed = len(response_ns), int(np.count_nonzero(response_ns > period_ns))
    tail = (1.0 - confidence) / 2.0
    low = float(betaincinv(missed, count - missed + 1, tail)) if missed else 0.0
    high = float(betaincinv(missed + 1, count - missed, 1 - tail)) if missed < count else 1.0
    entry["deadline_ms"] = period_ns / 1e6
    entry["missed"] = missed
    entry["missed_share"] = interval(missed / count, low, high, confidence, "launch")
    if entry["status"] != "overloaded":
        # Of an ever longer queue, response times tell the block's length and nothing else.
        entry["response_ms"] = percentiles_ms(response_ns, confidence)


def _throughput(
    timed: Sequence[Json],
    rows: Mapping[str, Array],
    *,
    batch: int,
    confidence: float,
    launch: Launch,
) -> Json | None:
    """Return items/s: requests in the window, the last ones by their share of it.

    Within a launch the spread of ten parts of the window counts, from launch to launch the
    session's launch spread.
    """
    logs, errors = [], []
    for outcome in timed:
        mine = rows["epoch"] == outcome["epoch"]
        edges = np.linspace(0.0, outcome["window_ns"], WINDOWS + 1)
        parts = _requests_in(rows["start_ns"][mine], rows["end_ns"][mine], edges)
        whole = float(np.sum(parts))
        if whole <= 0.0 or outcome["window_ns"] <= 0:
            return None
        logs.append(math.log(whole * batch / (outcome["window_ns"] / 1e9)))
        errors.append(float(np.std(parts, ddof=1)) / math.sqrt(WINDOWS) / (whole / WINDOWS))
    count = len(logs)
    estimate = float(np.mean(logs))
    within = stats.t_quantile(confidence, count * (WINDOWS - 1)) * math.hypot(*errors) / count
    term = stats.launch_half_width(launch, confidence, count, processes=1)
    half = math.hypot(within, term)
    low, high = math.exp(estimate - half), math.exp(estimate + half)
    return interval(math.exp(estimate), low, high, confidence, launch.claim)


def _energy(
    timed: Sequence[Json],
    rows: Mapping[str, Array],
    *,
    batch: int,
    confidence: float,
    launch: Launch,
) -> Json | None:
    """Return joules per item by the machine's counters, None unless all launches have them.

    The mean power while a block was under way, times the window's seconds per item. The
    interval holds the session's launch spread, that of the launches' own values, and how
    finely counters tell time.
    """
    told = [outcome.get("energy") for outcome in timed]
    logs, steps, watts = [], [], []
    for outcome, energy in zip(timed, told, strict=True):
        calls = float(np.sum(rows["calls"][rows["epoch"] == outcome["epoch"]]))
        drawn = sum(energy["joules"].values()) if energy else 0.0
        if energy is None or drawn <= 0.0 or calls <= 0.0:
            return None
        watts.append(drawn / energy["seconds"])
        logs.append(math.log(watts[-1] * outcome["window_ns"] / 1e9 / (calls * batch)))
        steps.append(energy["step_s"] / energy["seconds"])
    count = len(logs)
    spread = float(np.std(logs, ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    term = stats.launch_half_width(launch, confidence, count, processes=1)
    half = math.hypot(
        term,
        math.hypot(*steps) / count,
        stats.t_quantile(confidence, count - 1) * spread if count > 1 else 0.0,
    )
    centre = float(np.mean(logs))
    low, middle, high = (math.exp(centre + sign * half) for sign in (-1, 0, 1))
    return {
        "joules_per_item": interval(middle, low, high, confidence, launch.claim),
        "watts": float(np.mean(watts)),
        "counters": sorted(told[0]["joules"]) if told[0] else [],
    }


def joules_per_item(blocks: Sequence[Json]) -> float | None:
    """Return the energy of an item in calls back to back; None where no counter told of it."""
    energy = (block.get("energy") for block in blocks if block["kind"] == "tails")
    return next((float(e["joules_per_item"]["estimate"]) for e in energy if e), None)


def _requests_in(start_ns: Array, end_ns: Array, edges: Array) -> Array:
    """Return how many requests fall between neighbouring edges, each by its share of time."""
    length = np.maximum(end_ns - start_ns, 1)
    # The share that is done by each edge; its differences are what was done in between.
    done = np.array(
        [float(np.sum(np.clip((edge - start_ns) / length, 0.0, 1.0))) for edge in edges]
    )
    return np.diff(done)


def sustained_summary(rows: Mapping[str, Array], confidence: float) -> dict[str, Any]:
    """Return what minutes of back to back calls did to the time of a call.

    ``equilibrium_ms`` is the location of the last third's slot means, ``start_ms`` that of
    the first twentieth (three slots at least). ``throttled_after_s`` is when the running
    median of five slots exceeds the start by more than 5 % for good, None if it does not.
    """
    means_ns = (rows["end_ns"] - rows["start_ns"]) / np.maximum(rows["calls"], 1)
    count = len(means_ns)
    start_ns = float(np.median(means_ns[: max(3, count // 20)]))
    last = np.log(means_ns[-max(1, count // 3) :])
    centre = stats.hodges_lehmann(last)
    low, high = stats.signed_rank_interval(last, confidence)
    smooth = np.array(
        [np.median(means_ns[max(0, i - 2) : min(count, i + 3)]) for i in range(count)]
    )
    cool = np.flatnonzero(smooth <= THROTTLED * start_ns)
    first_hot = int(cool[-1]) + 1 if len(cool) else 0
    # A last slot or two that are slow say nothing of "for good".
    throttled = first_hot <= count - max(3, count // 10)
    bounds = (low, high) if math.isfinite(low) else (centre, centre)
    return {
        "start_ms": start_ns / 1e6,
        "equilibrium_ms": interval(
            math.exp(centre) / 1e6,
            math.exp(bounds[0]) / 1e6,
            math.exp(bounds[1]) / 1e6,
            confidence,
            "launch",
        ),
        "slowdown": math.exp(centre) / start_ns,
        "throttled_after_s": float(rows["start_ns"][first_hot]) / 1e9 if throttled else None,
        "slots": count,
    }
