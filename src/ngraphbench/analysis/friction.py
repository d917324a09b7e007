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
    whole = _step(evidence, curve, points[0], points[-1]) if not curve.reason else None
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
        saturation=_saturation(evidence, points, steps) if not curve.reason else None,
        coverage=curve.coverage,
        censored=curve.censored,
        reason=curve.reason,
    )


def _step(evidence: Evidence, curve: Curve, a: Point, b: Point) -> Step | None:
    if a.cell is None or b.cell is None:
        return None
    found = contrast(evidence, [(b.cell, 1.0), (a.cell, -1.0)])
    if found is None:
        return None
    friction = found.interval.scaled(1.0 / math.log(b.batch / a.batch))
    return Step(a.batch, b.batch, friction, found.paired, curve.gap(a.batch, b.batch))


def _saturation(
    evidence: Evidence, points: Sequence[Point], steps: Sequence[Step]
) -> Saturation | None:
    """Return where throughput reaches 95 % of its highest, by ratios with that batch size."""
    gains = _shares(evidence, points, points[0])
    if gains is None:
        return None
    best = max(points, key=lambda point: gains[point.batch].estimate)
    shares = _shares(evidence, points, best)
    if shares is None:
        return None
    return Saturation(
        throughput=best.throughput,
        at_batch=best.batch,
        batch=min(b for b, share in shares.items() if share.estimate >= SATURATED),
        earliest=min(b for b, share in shares.items() if share.high >= SATURATED),
        latest=min(b for b, share in shares.items() if share.low >= SATURATED),
        rising=bool(steps) and best is points[-1] and steps[-1].friction.high < KNEE,
    )


def _shares(
    evidence: Evidence, points: Sequence[Point], whole: Point
) -> dict[int, Interval] | None:
    """Return each point's throughput over that of ``whole``; None where one cannot be told."""
    shares = {}
    for point in points:
        if point is whole:
            shares[point.batch] = Interval(1.0, 1.0, 1.0, 1.0)
            continue
        if point.cell is None or whole.cell is None:
            return None
        found = contrast(evidence, [(whole.cell, 1.0), (point.cell, -1.0)])
        if found is None:
            return None
        shares[point.batch] = found.factor.scaled(point.batch / whole.batch)
    return shares
