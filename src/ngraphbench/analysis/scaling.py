"""RTR, ASE and BSR: what a batch gains, after arXiv 2504.20198.

``L(b)`` is the time of a call at batch size b, ``T(b) = b / L(b)``, ``b0`` the smallest batch
size measured, 1 where there is one. RTR and ASE are as published, known to us second-hand;
the formula of BSR is this project's reading of what is published about it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ngraphbench.analysis.contrasts import Terms, cancelled, contrast
from ngraphbench.analysis.curves import Curve, Point, curves, families
from ngraphbench.analysis.tables import Cell, Evidence, Interval

__all__ = ["ORIGINS", "TRAP", "Scaled", "Scaling", "Summary", "log2_weights", "scalings"]

ORIGINS = {
    "RTR": "relative throughput rate, T(b) / T(1); published, second-hand",
    "ASE": "absolute scaling efficiency, RTR / b; published, second-hand",
    "BSR": "batch scaling ratio, ASE over the baseline's ASE; this project's reading",
}
"""What each of the paper's metrics is, and where its formula comes from."""

TRAP = (
    "A compiler that removes launch overhead raises T(1), and so looks worse in RTR, ASE and BSR"
    " while being faster everywhere. Never rank on them without T."
)
"""Printed wherever the three are."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """The metrics at one batch size; None where they cannot be told.

    ``throughput`` is b / L(b), of a typical call, as the ratios are.
    Not ``paired``: the batch sizes were measured in several sessions, so intervals are wider.
    ``suspicious`` is an ASE surely above 1: a batch that costs less than its items apart.
    """

    batch: int
    status: str
    throughput: Interval | None = None
    rtr: Interval | None = None
    ase: Interval | None = None
    bsr: Interval | None = None
    paired: bool = True
    suspicious: bool = False
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """Means over log2 b (trapezoid) on ``grid``, and the values at its largest batch size.

    The grid is what all candidates of the model with the same ``base`` have in common.
    """

    base: int
    grid: tuple[int, ...]
    mean_rtr: Interval | None
    mean_ase: Interval | None
    mean_bsr: Interval | None
    last: Scaled | None


@dataclass(frozen=True, slots=True)
class Scaling:
    """One candidate's metrics over batch sizes.

    ``base`` is the batch size that RTR and ASE are relative to, ``bsr_base`` that of BSR:
    the smallest that the baseline has, too. Values of different bases are never compared.
    ``censored`` says why nothing larger than ``largest`` has a result. ``reason`` says why
    there is no metric at all.
    """

    title: str
    label: str
    device: str
    precision: str
    baseline: str
    base: int | None
    bsr_base: int | None
    rows: tuple[Scaled, ...]
    coverage: str
    largest: int | None
    censored: str
    reason: str
    summary: Summary | None


def scalings(evidence: Evidence) -> list[Scaling]:
    """Return the metrics of every candidate of every model, in the order of the groups."""
    return [found for family in families(curves(evidence)) for found in _family(evidence, family)]


def _family(evidence: Evidence, family: Sequence[Curve]) -> list[Scaling]:
    """Return the metrics of candidates that share a model, and the grids they have in common."""
    measured = [tuple(point.batch for point in curve.measured) for curve in family]
    grids: dict[int, set[int]] = {}
    for batches in measured:
        if len(batches) > 1:
            grids[min(batches)] = grids.get(min(batches), set(batches)) & set(batches)
    return [
        _scaling(evidence, curve, batches, grids.get(min(batches), set()) if batches else set())
        for curve, batches in zip(family, measured, strict=True)
    ]


def log2_weights(grid: Sequence[int]) -> list[float]:
    """Return the share of each batch size in a mean over log2 b by the trapezoid rule.

    >>> log2_weights([1, 2, 8])
    [0.16666666666666666, 0.5, 0.3333333333333333]
    """
    logs = np.log2(np.asarray(grid, dtype=float))
    widths = np.diff(logs)
    weights = np.zeros(len(logs))
    weights[:-1] += widths / 2
    weights[1:] += widths / 2
    return [float(weight) for weight in weights / widths.sum()]


def _scaling(
    evidence: Evidence, curve: Curve, measured: Sequence[int], shared: Collection[int]
) -> Scaling:
    """Return the metrics of one candidate; ``shared`` are the batch sizes of its grid."""
    base = min(measured, default=None)
    bsr_base = min((p.batch for p in curve.measured if p.base is not None), default=None)
    reason, grid = curve.reason, tuple(sorted(shared))
    if reason or base is None:
        rows = tuple(Scaled(p.batch, p.status, p.throughput, flags=p.flags) for p in curve.points)
    else:
        rows = tuple(_scaled(evidence, curve, p, base, bsr_base) for p in curve.points)
    return Scaling(
        title=curve.title,
        label=curve.label,
        device=curve.device,
        precision=curve.precision,
        baseline=curve.baseline,
        base=base,
        bsr_base=bsr_base,
        rows=rows,
        coverage=curve.coverage,
        largest=max(measured, default=None),
        censored=curve.censored,
        reason=reason,
        summary=None if reason or len(grid) < 2 else _summary(evidence, curve, grid, rows),
    )


def _scaled(
    evidence: Evidence, curve: Curve, point: Point, base: int, bsr_base: int | None
) -> Scaled:
    batch = point.batch
    if point.cell is None:
        return Scaled(batch, point.status, point.throughput, flags=point.flags)
    gain, gain_paired = _value(evidence, point.cell, _ase(curve, base, batch))
    over, over_paired = _value(evidence, point.cell, _bsr(curve, bsr_base, batch))
    return Scaled(
        batch=batch,
        status=point.status,
        throughput=point.throughput,
        rtr=gain.scaled(batch / base) if gain else None,
        ase=gain,
        bsr=over,
        paired=gain_paired and over_paired,
        suspicious=gain is not None and gain.low > 1.0,
        flags=point.flags,
    )


def _ase(curve: Curve, base: int, batch: int) -> Terms:
    """Return ln ASE(b) = ln L(b0) - ln L(b)."""
    cell, first = curve.cell(batch), curve.cell(base)
    if cell is None or first is None:
        raise ValueError(f"No result at batch {base} or {batch}.")
    return [(first, 1.0), (cell, -1.0)]


def _bsr(curve: Curve, base: int | None, batch: int) -> Terms | None:
    """Return ln BSR(b) = ln S(b) - ln S(b0); None where the baseline has no result."""
    if base is None:
        return None
    here, first = curve.point(batch), curve.point(base)
    if here.cell is None or here.base is None or first.cell is None or first.base is None:
        return None
    return [(here.base, 1.0), (here.cell, -1.0), (first.base, -1.0), (first.cell, 1.0)]


def _value(evidence: Evidence, cell: Cell, terms: Terms | None) -> tuple[Interval | None, bool]:
    """Return the ratio that ``terms`` stand for, 1 where they cancel, and if it is paired."""
    if terms is None:
        return None, True
    if cancelled(terms):
        return Interval(1.0, 1.0, 1.0, evidence.profile(cell.key[0]).confidence), True
    found = contrast(evidence, terms)
    return (found.factor, found.paired) if found is not None else (None, True)


def _summary(
    evidence: Evidence, curve: Curve, grid: tuple[int, ...], rows: Sequence[Scaled]
) -> Summary:
    weights = dict(zip(grid, log2_weights(grid), strict=True))
    found = {row.batch: row for row in rows}
    base = grid[0]
    ase = {batch: _ase(curve, base, batch) for batch in grid}
    bsr = {batch: _bsr(curve, base, batch) for batch in grid}
    whole = {batch: terms for batch, terms in bsr.items() if terms is not None}
    return Summary(
        base=base,
        grid=grid,
        mean_rtr=_mean(evidence, ase, {b: weights[b] * b / base for b in grid}),
        mean_ase=_mean(evidence, ase, weights),
        mean_bsr=_mean(evidence, whole, weights) if len(whole) == len(grid) else None,
        last=found[grid[-1]],
    )


def _mean(
    evidence: Evidence, terms: Mapping[int, Terms], weights: Mapping[int, float]
) -> Interval | None:
    """Return the weighted sum of ratios, each given by its terms.

    Its log is taken to change as its gradient says (the delta method), in which T(1) stands
    with the whole weight that it has in all ratios.
    """
    ratios: dict[int, float] = {}
    for batch, parts in terms.items():
        found = contrast(evidence, parts)
        if found is None and not cancelled(parts):
            return None
        ratios[batch] = math.exp(found.value) if found is not None else 1.0
    total = sum(weights[batch] * ratio for batch, ratio in ratios.items())
    gradient = [
        (cell, weight * weights[batch] * ratios[batch] / total)
        for batch, parts in terms.items()
        for cell, weight in parts
    ]
    change = contrast(evidence, gradient)
    if change is None:
        confidence = evidence.profile(gradient[0][0].key[0]).confidence
        return Interval(total, total, total, confidence) if cancelled(gradient) else None
    return change.moved(math.log(total)).factor
