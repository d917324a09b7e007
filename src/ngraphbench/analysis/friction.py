"""Friction: how much of a larger batch is paid for, step by step; where it saturates.

Between two measured batch sizes ``r = ln(L2/L1) / ln(b2/b1)``: 0 where items come for free,
1 where throughput stands still, above 1 where it falls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ngraphbench.analysis.contrasts import contrast
from ngraphbench.analysis.curves import Curve, Point, curves
from ngraphbench.analysis.tables import Evidence, Interval

__all__ = ["KNEE", "SATURATED", "Friction", "Saturation", "Step", "frictions"]

KNEE = 0.9
"""Friction above which a larger batch is called not worth it."""

SATURATED = 0.95
"""Share of the highest throughput at which a batch size is called enough."""


@dataclass(frozen=True, slots=True)
class Step:
    """The friction between two measured batch sizes.

    ``gap``: one between them was asked and has no result, so the step spans more.
    """

    low_batch: int
    high_batch: int
    friction: Interval
    paired: bool
    gap: bool


@dataclass(frozen=True, slots=True)
class Saturation:
    """The highest throughput over the grid, and the smallest batch size that comes near.

    ``batch`` reaches 95 % of it by the estimates; between ``earliest`` and ``latest`` it lies
    surely. ``rising``: the last step surely gained, so more may be beyond the grid.
    """

    throughput: Interval | None
    at_batch: int
    batch: int
    earliest: int
    latest: int
    rising: bool


@dataclass(frozen=True, slots=True)
class Friction:
    """The friction profile of one candidate.

    ``mean`` is weighted by the logs of the steps: ``-ln ASE(b_max) / ln(b_max / b0)``. The
    knee is the first batch size from which on friction is surely above 0.9; it lies between
    ``knee`` and ``knee_before``, which differ where a batch size is missing.
    """

    title: str
    label: str
    device: str
    precision: str
    steps: tuple[Step, ...]
    highest: Step | None
    mean: Interval | None
    knee: int | None
    knee_before: int | None
    saturation: Saturation | None
    coverage: str
    censored: str
    reason: str


def frictions(evidence: Evidence) -> list[Friction]:
    """Return the friction profile of every candidate, in the order of the groups."""
    return [_friction(evidence, curve) for curve in curves(evidence)]


def _friction(evidence: Evidence, curve: Curve) -> Friction:
    points = curve.measured
    found = [_step(evidence, curve, a, b) for a, b in pairwise(points)]
    steps = tuple(step for step in found if step is not None)
    knee = next((step for step in steps if step.friction.low > KNEE), None)
    whole = _step(evidence, curve, points[0], points[-1]) if len(points) > 1 else None
    reason = ""
    if len(points) < 2:
        reason = f"{curve.coverage} batch sizes have a result; two are needed"
    return Friction(
        title=curve.title,
        label=curve.label,
        device=curve.device,
        precision=curve.precision,
        steps=steps,
        highest=max(steps, key=lambda step: step.friction.estimate, default=None),
        mean=whole.friction if whole else None,
        knee=knee.low_batch if knee else None,
        knee_before=(knee.high_batch if knee.gap else knee.low_batch) if knee else None,
        saturation=_saturation(evidence, points, steps) if not reason else None,
        coverage=curve.coverage,
        censored=curve.censored,
        reason=reason,
    )


def _step(evidence: Evidence, curve: Curve, a: Point, b: Point) -> Step | None:
    if a.cell is None or b.cell is None:
        return None
    found = contrast(evidence, [(b.cell, 1.0), (a.cell, -1.0)])
    if found is None:
        return None
    width = math.log(b.batch / a.batch)
    low, estimate, high = (x / width for x in (found.low, found.value, found.high))
    friction = Interval(estimate, low, high, found.confidence)
    return Step(a.batch, b.batch, friction, found.paired, curve.gap(a.batch, b.batch))


def _saturation(
    evidence: Evidence, points: Sequence[Point], steps: Sequence[Step]
) -> Saturation | None:
    """Return where throughput reaches 95 % of its highest, by ratios with that batch size."""
    gains = {point.batch: _gain(evidence, points[0], point) for point in points}
    known = {batch: gain for batch, gain in gains.items() if gain is not None}
    if len(known) < len(points):
        return None
    best = max(points, key=lambda point: known[point.batch])
    shares = {p.batch: _share(evidence, p, best) for p in points}
    return Saturation(
        throughput=best.throughput,
        at_batch=best.batch,
        batch=min(b for b, share in shares.items() if share.estimate >= SATURATED),
        earliest=min(b for b, share in shares.items() if share.high >= SATURATED),
        latest=min(b for b, share in shares.items() if share.low >= SATURATED),
        rising=bool(steps) and best is points[-1] and steps[-1].friction.high < KNEE,
    )


def _gain(evidence: Evidence, first: Point, point: Point) -> float | None:
    """Return ln of throughput over that of the first point."""
    if point is first:
        return 0.0
    if point.cell is None or first.cell is None:
        return None
    found = contrast(evidence, [(first.cell, 1.0), (point.cell, -1.0)])
    return None if found is None else found.value + math.log(point.batch / first.batch)


def _share(evidence: Evidence, point: Point, best: Point) -> Interval:
    """Return throughput over that of ``best``; exactly 1 for ``best`` itself."""
    found = None
    if point is not best and point.cell is not None and best.cell is not None:
        found = contrast(evidence, [(best.cell, 1.0), (point.cell, -1.0)])
    if found is None:
        return Interval(1.0, 1.0, 1.0, 1.0)
    factor, ratio = found.factor, point.batch / best.batch
    return Interval(
        ratio * factor.estimate, ratio * factor.low, ratio * factor.high, factor.confidence
    )
