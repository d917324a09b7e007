"""How many inferences it takes until a compiler's costs have paid for themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ngraphbench.analysis.tables import Cell, Evidence, Group, Interval

__all__ = ["COLD", "WARM", "BreakEven", "break_evens", "inferences"]

COLD = ("import_s", "tuning_s", "compile_cold_s", "load_s", "first_run_s")
WARM = ("import_s", "compile_warm_s", "load_s", "first_run_s")
"""What a start costs before the second inference, with empty and with filled caches.

A search is part of a cold start alone: filled caches hold what it found.
"""

NEEDED = {"cold": "compile_cold_s", "warm": "compile_warm_s"}
"""Without this one nothing is said; others that were not measured count as nothing."""


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Calls at one batch size after which a candidate has overtaken its baseline.

    ``calls`` is None where it surely never does (``never``), or where that cannot be told
    (``reason``). It is infinite, or its high end is, where the samples allow that it never
    does. Costs are seconds before the second call, the candidate's and the baseline's; an
    export to ONNX is not among them.
    """

    title: str
    label: str
    batch: int
    device: str
    precision: str
    baseline: str
    start: Literal["cold", "warm"]
    calls: Interval | None
    never: bool
    reason: str
    cost_s: float | None = None
    baseline_cost_s: float | None = None


def break_evens(evidence: Evidence) -> list[BreakEven]:
    """Return the break-even points of every candidate beside its baseline, cold and warm."""
    return [
        found
        for group in evidence.groups
        for cell in group.cells
        if cell.label != group.baseline and cell.ranked
        for found in _break_evens(evidence, group, cell)
    ]


def inferences(extra_s: tuple[float, float, float], saved_s: Interval) -> Interval | None:
    """Return extra costs over the time saved per call, in calls; None where it never pays.

    ``extra_s`` is lowest, likely and highest. Costs that are lower to begin with are paid for
    at once: 0 calls. The interval takes the worst and the best of both; no time saved makes
    an end infinite.

    >>> inferences((9.0, 10.0, 11.0), Interval(2.0, 1.0, 3.0, 0.95)).estimate
    5.0
    """
    if saved_s.high <= 0.0:
        return None
    low, likely, high = (max(0.0, extra) for extra in extra_s)
    return Interval(
        _over(likely, saved_s.estimate),
        _over(low, saved_s.high),
        _over(high, saved_s.low),
        saved_s.confidence,
    )


def _over(extra_s: float, saved_s: float) -> float:
    return extra_s / saved_s if saved_s > 0.0 else math.inf


def _break_evens(evidence: Evidence, group: Group, cell: Cell) -> list[BreakEven]:
    saved = _saved_s(evidence, group, cell)
    return [_break_even(group, cell, "cold", saved), _break_even(group, cell, "warm", saved)]


def _break_even(
    group: Group, cell: Cell, start: Literal["cold", "warm"], saved: Interval | None
) -> BreakEven:
    mine = _costs(cell.record["costs"], start)
    theirs = _costs(group.base.record["costs"], start) if group.base else None
    calls, never, reason = None, False, ""
    if group.base is None:
        reason = f"{group.baseline}, the baseline, has no result"
    elif mine is None or theirs is None:
        reason = f"{NEEDED[start]} was not measured of both"
    elif saved is None:
        reason = "not measured side by side"
    else:
        extra = (mine[0] - theirs[2], mine[1] - theirs[1], mine[2] - theirs[0])
        calls = inferences(extra, saved)
        never = calls is None
    return BreakEven(
        title=group.title,
        label=cell.label,
        batch=group.batch,
        device=group.device,
        precision=group.precision,
        baseline=group.baseline,
        start=start,
        calls=calls,
        never=never,
        reason=reason,
        cost_s=mine[1] if mine else None,
        baseline_cost_s=theirs[1] if theirs else None,
    )


def _costs(costs: Mapping[str, Any], start: str) -> tuple[float, float, float] | None:
    """Return lowest, likely and highest seconds of a start; cold compiles may be several."""
    if costs.get(NEEDED[start]) is None:
        return None
    total = sum([float(costs.get(key) or 0.0) for key in (COLD if start == "cold" else WARM)])
    seen = costs.get("compile_cold_samples_s") if start == "cold" else None
    if not seen:
        return total, total, total
    rest = total - float(costs["compile_cold_s"])
    return rest + min(seen), total, rest + max(seen)


def _saved_s(evidence: Evidence, group: Group, cell: Cell) -> Interval | None:
    """Return seconds saved per call, by the paired speed-up and the baseline's latency."""
    base = group.base
    ratio = evidence.compare(cell, base) if base is not None else None
    latency = base.latency if base is not None and ratio is not None else None
    if ratio is None or latency is None:
        return None
    ends = [
        time_ms * (1.0 - share)
        for time_ms in (latency.low, latency.high)
        for share in (ratio.low, ratio.high)
    ]
    likely = latency.estimate * (1.0 - ratio.estimate)
    return Interval(likely / 1e3, min(ends) / 1e3, max(ends) / 1e3, ratio.confidence)
