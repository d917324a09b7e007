"""Depth scaling: what a block costs again each time that it is repeated.

Models that differ in their argument ``depth`` alone, measured in one session, give a straight
line ``L(d) = alpha + beta d`` where blocks do not know of each other. A speed-up that grows
with depth has two causes: a fixed overhead that is spread over more blocks (the line stays
straight), or blocks that get cheaper as they repeat (it bends, or the repeat gain is not 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ngraphbench import stats
from ngraphbench.analysis.contrasts import Contrast, Terms, contrast, times_ns
from ngraphbench.analysis.depthsets import chosen, depth_sets, places, usable
from ngraphbench.analysis.tables import Cell, Evidence, Group, Interval
from ngraphbench.summary import side_by_side
from ngraphbench.types import Array

__all__ = ["DepthFit", "Speed", "depth_fits", "marginal_ratio"]

NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed-up over the baseline at one depth."""

    depth: int
    speedup: Interval


@dataclass(frozen=True, slots=True)
class DepthFit:
    """The line through one candidate's times over depth, and what it says of repetition.

    ``alpha_ms`` is the fixed overhead, ``beta_ms`` the cost of one more block. ``bend`` is
    the cost of a block in the deeper half over that in the shallower half: below 1, repeated
    blocks get cheaper. ``lack_of_fit`` is the p-value of a straight line, ``residual`` the
    largest relative distance from it. ``trend`` is the factor of the speed-up per doubling of
    depth; ``repeat_gain`` the baseline's beta over this one's, over the speed-up at
    ``base_depth``. Slopes are per block; None is what could not be told. ``setting`` is what all
    its cells share beside the model, and ``place`` what of that tells it from other fits.
    """

    title: str
    label: str
    baseline: str
    batch: int
    device: str
    precision: str
    depths: tuple[int, ...]
    coverage: str
    base_depth: int | None
    reason: str = ""
    paired: bool = True
    alpha_ms: Interval | None = None
    beta_ms: Interval | None = None
    bend: Interval | None = None
    lack_of_fit: float | None = None
    residual: float | None = None
    speedups: tuple[Speed, ...] = ()
    trend: Interval | None = None
    repeat_gain: Interval | None = None
    compile_slope_s: Interval | None = None
    memory_slope_bytes: Interval | None = None
    setting: tuple[object, ...] = ()
    place: str = ""

    @property
    def name(self) -> str:
        """The model without its depth, and what else tells the fit from others of its batch."""
        return f"{self.title} [{self.place}]" if self.place else self.title


@dataclass(frozen=True, slots=True)
class _Line:
    """Cells by rising depth with their times, and the weights that make the line of them.

    ``solve`` has two rows: alpha and beta as sums over times. Errors are relative to times,
    so that is how they are weighted.
    """

    depths: tuple[int, ...]
    cells: tuple[Cell, ...]
    times_ns: Array
    solve: Array

    @classmethod
    def through(cls, depths: Sequence[int], cells: Sequence[Cell], times: Array) -> _Line:
        design = np.column_stack([np.ones(len(depths)), np.asarray(depths, dtype=float)])
        scaled = design / times[:, None]
        return cls(tuple(depths), tuple(cells), times, np.linalg.pinv(scaled) / times)

    @property
    def alpha_ns(self) -> float:
        return float(self.solve[0] @ self.times_ns)

    @property
    def beta_ns(self) -> float:
        return float(self.solve[1] @ self.times_ns)

    @property
    def projector(self) -> Array:
        """How relative residuals follow from relative errors of times."""
        design = np.column_stack([np.ones(len(self.depths)), np.asarray(self.depths, float)])
        hat = (design @ self.solve) * self.times_ns / self.times_ns[:, None]
        projector: Array = np.eye(len(self.depths)) - hat
        return projector

    def terms(self, row: int, scale: float) -> Terms:
        """Return how alpha (0) or beta (1), over ``scale``, follows the log times."""
        weights = self.solve[row] * self.times_ns / scale
        return [(cell, float(w)) for cell, w in zip(self.cells, weights, strict=True)]


def depth_fits(evidence: Evidence) -> list[DepthFit]:
    """Return one fit per candidate of each set of models that differ in ``depth`` alone.

    Sets with fewer than two depths are left out; a candidate with fewer than two results has
    a reason instead of a fit.
    """
    several = depth_sets(evidence)
    found = []
    for (key, by_depth), place in zip(several.items(), places(list(several.values())), strict=True):
        groups = [group for here in by_depth.values() for group in here]
        for label in dict.fromkeys(cell.label for group in groups for cell in group.cells):
            held, alone = chosen(evidence, by_depth, label)
            fit = _fit(evidence, str(key[0]), held, label, session_id=alone)
            found.append(replace(fit, setting=key[1:], place=place))
    return found


def marginal_ratio(
    evidence: Evidence,
    a: Mapping[int, Cell],
    b: Mapping[int, Cell],
    confidence: float | None = None,
) -> Interval | None:
    """Return the cost of one more block in ``a`` over that in ``b``, cells by depth.

    The rounds of one session cancel what the machine did. None for fewer than two depths, for
    cells of several sessions, and where a deeper model is not slower.
    """
    if min(len(a), len(b)) < 2 or len({c.key[0] for c in (*a.values(), *b.values())}) > 1:
        return None
    mine, theirs = _line(evidence, dict(a)), _line(evidence, dict(b))
    if mine is None or theirs is None or mine.beta_ns <= 0.0 or theirs.beta_ns <= 0.0:
        return None
    terms = [
        *mine.terms(1, mine.beta_ns),
        *((cell, -weight) for cell, weight in theirs.terms(1, theirs.beta_ns)),
    ]
    found = contrast(evidence, terms, confidence)
    return found.moved(math.log(mine.beta_ns / theirs.beta_ns)).factor if found else None


def _fit(
    evidence: Evidence, title: str, groups: dict[int, Group], label: str, *, session_id: str
) -> DepthFit:
    """Return the fit of a candidate, through the cells of one session where that is given."""
    held = {d: group for d, group in groups.items() if session_id in ("", group.session_id)}
    cells = _cells(evidence, held, label)
    any_group = next(iter(groups.values()))
    bare = DepthFit(
        title=title,
        label=label,
        baseline=any_group.baseline,
        batch=any_group.batch,
        device=any_group.device,
        precision=any_group.precision,
        depths=tuple(cells),
        coverage=f"{len(cells)} of {len(groups)}",
        base_depth=min(cells, default=None),
    )
    if len(cells) < 2:
        return replace(bare, reason=f"{bare.coverage} depths have a result; two are needed")
    line = _line(evidence, cells)
    if line is None:
        return replace(bare, reason="the depths share too few rounds")
    alpha = _absolute(contrast(evidence, line.terms(0, NS_PER_MS)), line.alpha_ns)
    beta = _absolute(contrast(evidence, line.terms(1, NS_PER_MS)), line.beta_ns)
    bend = _bend(evidence, line)
    misfit, residual = _lack_of_fit(evidence, line)
    versus = _against_baseline(evidence, groups, cells, line)
    return replace(
        bare,
        paired=len({cell.key[0] for cell in line.cells}) == 1,
        alpha_ms=alpha,
        beta_ms=beta,
        bend=bend.factor if bend else None,
        lack_of_fit=misfit,
        residual=residual,
        compile_slope_s=_slope(cells, "compile_cold_s"),
        memory_slope_bytes=_slope(cells, "peak_rss_bytes"),
        speedups=versus.speedups,
        trend=versus.trend,
        repeat_gain=versus.repeat_gain,
    )


def _cells(evidence: Evidence, groups: dict[int, Group], label: str) -> dict[int, Cell]:
    cells = {depth: usable(evidence, group, label) for depth, group in sorted(groups.items())}
    return {depth: cell for depth, cell in cells.items() if cell is not None}


def _line(evidence: Evidence, cells: dict[int, Cell]) -> _Line | None:
    times = times_ns(evidence, list(cells.values()))
    return _Line.through(list(cells), list(cells.values()), np.array(times)) if times else None


def _absolute(found: Contrast | None, value_ns: float) -> Interval | None:
    return found.moved(value_ns / NS_PER_MS).interval if found else None


def _bend(evidence: Evidence, line: _Line) -> Contrast | None:
    """Return ln of a block's cost in the deeper half over that in the shallower half.

    None for fewer than three depths, or where a deeper model is not slower.
    """
    if len(line.depths) < 3:
        return None
    middle = len(line.depths) // 2
    (first, mid, last) = (line.times_ns[i] for i in (0, middle, -1))
    early, late = mid - first, last - mid
    if early <= 0.0 or late <= 0.0:
        return None
    cells = (line.cells[0], line.cells[middle], line.cells[-1])
    weights = (first / early, -mid / late - mid / early, last / late)
    found = contrast(evidence, list(zip(cells, map(float, weights), strict=True)))
    shares = [line.depths[i] for i in (0, middle, -1)]
    per_block = (late / (shares[2] - shares[1])) / (early / (shares[1] - shares[0]))
    return found.moved(math.log(per_block)) if found else None


def _lack_of_fit(evidence: Evidence, line: _Line) -> tuple[float | None, float | None]:
    """Return the p-value of a straight line, and the largest relative distance from it.

    F test of the squared relative residuals against what rounds and launches make them,
    with Satterthwaite's degrees of freedom. None for fewer than three depths, and for
    depths of several sessions.
    """
    free = len(line.depths) - 2
    residuals = line.projector @ np.ones(len(line.depths))
    largest = float(residuals[np.argmax(np.abs(residuals))])
    sessions = {cell.key[0] for cell in line.cells}
    if free < 1 or len(sessions) > 1:
        return None, largest if free > 0 else None
    logs = [evidence.logs(cell) for cell in line.cells]
    shared, values = side_by_side(logs)
    table = line.projector @ np.array(values)
    parts = [table[:, start:end] for start, end in pairwise(shared.ends)]
    noise = np.hstack([part - np.median(part, axis=1, keepdims=True) for part in parts])
    rounds = float(np.mean([np.var(stats.clipped(row)) for row in noise]) * len(noise) / free)
    wider = max(stats.serial_inflation([part[i] for part in parts]) for i in range(len(table)))
    within = rounds * wider**2 / noise.shape[1]
    launch = evidence.launch(next(iter(sessions)))
    between = launch.sd**2 / len(parts)
    degrees = (within + between) ** 2 / (
        within**2 / max(1, noise.shape[1] - 1) + between**2 / launch.degrees
    )
    from scipy.special import fdtrc

    ratio = float(np.sum(residuals**2)) / free / (within + between)
    return float(fdtrc(free, degrees, ratio)), largest


@dataclass(frozen=True, slots=True)
class _Versus:
    speedups: tuple[Speed, ...] = ()
    trend: Interval | None = None
    repeat_gain: Interval | None = None


def _against_baseline(
    evidence: Evidence, groups: dict[int, Group], cells: dict[int, Cell], line: _Line
) -> _Versus:
    """Return speed-ups, their trend and the repeat gain, where the baseline has results."""
    bases = {depth: groups[depth].base for depth in cells}
    both = {d: b for d, b in bases.items() if b is not None and evidence.logs(b)}
    if all(both[d] == cells[d] for d in both):
        return _Versus()
    speedups = []
    for depth, base in both.items():
        found = contrast(evidence, [(base, 1.0), (cells[depth], -1.0)])
        if found is not None:
            speedups.append(Speed(depth, found.factor))
    if len(both) < len(cells):
        return _Versus(tuple(speedups))
    trend = contrast(evidence, _trend(both, cells))
    gain = _repeat_gain(evidence, both, cells, line)
    return _Versus(tuple(speedups), trend.factor if trend else None, gain.factor if gain else None)


def _trend(bases: dict[int, Cell], cells: dict[int, Cell]) -> Terms:
    """Return the slope of ln S(d) over log2 d, by least squares."""
    places = np.log2(list(cells))
    slopes = (places - places.mean()) / np.sum((places - places.mean()) ** 2)
    pairs = zip(cells, map(float, slopes), strict=True)
    return [
        term for depth, slope in pairs for term in ((bases[depth], slope), (cells[depth], -slope))
    ]


def _repeat_gain(
    evidence: Evidence, bases: dict[int, Cell], cells: dict[int, Cell], mine: _Line
) -> Contrast | None:
    """Return ln of (beta_e / beta_c) / S(d0); None where a slope is not positive."""
    theirs = _line(evidence, bases)
    if theirs is None or mine.beta_ns <= 0.0 or theirs.beta_ns <= 0.0:
        return None
    terms = [
        *theirs.terms(1, theirs.beta_ns),
        *((cell, -weight) for cell, weight in mine.terms(1, mine.beta_ns)),
        (theirs.cells[0], -1.0),
        (mine.cells[0], 1.0),
    ]
    speedup = theirs.times_ns[0] / mine.times_ns[0]
    value = math.log(theirs.beta_ns / mine.beta_ns / float(speedup))
    found = contrast(evidence, terms)
    return found.moved(value) if found else None


def _slope(cells: dict[int, Cell], cost: str) -> Interval | None:
    """Return a cost's slope over depth with its 95 % t interval; None for fewer than three."""
    known = {d: c.record["costs"].get(cost) for d, c in cells.items()}
    points = [(d, float(value)) for d, value in known.items() if value is not None]
    if len(points) < 3:
        return None
    from scipy.stats import linregress

    found = linregress([d for d, _ in points], [value for _, value in points])
    half = stats.t_quantile(0.95, len(points) - 2) * float(found.stderr)
    slope = float(found.slope)
    return Interval(slope, slope - half, slope + half, 0.95)
