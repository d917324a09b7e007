"""Weighted sums of log times with intervals: what every ratio of ratios comes down to.

RTR, ASE, BSR, friction, slopes and orders are all such sums. Each is formed round by round,
so that what the machine did to a round cancels, and so that a time which stands in a sum
twice (T(1) in a mean of ASE) counts with its whole weight. Pure functions of samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ngraphbench import stats
from ngraphbench.analysis.tables import Cell, Evidence, Interval
from ngraphbench.stats import Launch
from ngraphbench.summary import Logs, location, side_by_side

__all__ = ["Contrast", "Terms", "added", "cancelled", "contrast", "session_contrast", "times_ns"]

Terms: TypeAlias = Sequence[tuple[Cell, float]]
"""Cells, and the weight of each one's log time per call."""

BALANCED = 1e-9
MOVED = (5.0, 95.0)
"""Percentiles between which a session's level moved: two sessions may differ by as much."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A weighted sum of log times: ``low``/``high`` carry the launch term and bear claims.

    ``within_low``/``within_high`` hold for these very processes. ``launch_half`` is what
    launches add to half the interval. Not ``paired``: the sum spans sessions in a way that
    what the machine did does not cancel, and the interval holds how far it moved, too.
    """

    value: float
    low: float
    high: float
    within_low: float
    within_high: float
    launch_half: float
    confidence: float
    rounds: int
    epochs: int
    paired: bool = True

    @property
    def factor(self) -> Interval:
        """The sum as a ratio of times."""
        low, value, high = (math.exp(min(x, 700.0)) for x in (self.low, self.value, self.high))
        return Interval(value, low, high, self.confidence)

    @property
    def interval(self) -> Interval:
        """The sum itself."""
        return Interval(self.value, self.low, self.high, self.confidence)

    def moved(self, value: float) -> Contrast:
        """Return the sum with its interval about ``value``, which its weights are a gradient of."""
        shift = value - self.value
        names = ("value", "low", "high", "within_low", "within_high")
        return replace(self, **{name: getattr(self, name) + shift for name in names})


def cancelled(terms: Terms) -> bool:
    """Return whether the weights of each cell add up to nothing, so that the sum is 0."""
    sums: dict[tuple[str, str], float] = {}
    for cell, weight in terms:
        sums[cell.key] = sums.get(cell.key, 0.0) + weight
    return all(abs(weight) < BALANCED for weight in sums.values())


def contrast(evidence: Evidence, terms: Terms, confidence: float | None = None) -> Contrast | None:
    """Return the sum of weight times log time over ``terms``; a cell may occur repeatedly.

    None where samples are missing, or cells of one session share fewer than two rounds.
    ``confidence`` is the first session's own unless given. One evidence forms a sum once.
    """
    # Where samples are lost there may be many such sums, and none is worth remembering.
    if not all(evidence.logs(cell) for cell, _ in terms):
        return None
    key = (confidence, tuple((cell.key, weight) for cell, weight in terms))
    known: dict[object, Contrast | None] = evidence.memory
    if key not in known:
        known[key] = _contrast(evidence, terms, confidence)
    return known[key]


def _contrast(evidence: Evidence, terms: Terms, confidence: float | None) -> Contrast | None:
    weights: dict[str, dict[tuple[str, str], float]] = {}
    cells = {cell.key: cell for cell, _ in terms}
    for cell, weight in terms:
        inside = weights.setdefault(cell.key[0], {})
        inside[cell.key] = inside.get(cell.key, 0.0) + weight
    if not weights:
        return None
    level = evidence.profile(next(iter(weights))).confidence if confidence is None else confidence
    found = []
    for session_id, inside in weights.items():
        parts = [(evidence.logs(cells[key]), w) for key, w in inside.items() if abs(w) > BALANCED]
        if not parts:
            continue
        launch = evidence.launch(session_id)
        alone = len(weights) == 1
        part = session_contrast(parts, confidence=level, launch=launch, alone=alone)
        if part is None:
            return None
        found.append(part)
    return added(found) if found else None


def session_contrast(
    parts: Sequence[tuple[Logs, float]], *, confidence: float, launch: Launch, alone: bool = True
) -> Contrast | None:
    """Return the sum over cells of one session, each given by its log times and its weight.

    None for fewer than two shared rounds. Not ``alone`` means that other sessions add to the
    sum: weights that do not cancel in this one then let the machine's movement in.
    """
    rounds, values = side_by_side([logs for logs, _ in parts])
    if len(rounds) < 2:
        return None
    weights = [weight for _, weight in parts]
    sums = np.add.reduce([w * column for w, column in zip(weights, values, strict=True)])
    epochs = rounds.by_epoch(sums)
    value, within_low, within_high = location(epochs, confidence)
    squares = sum(weight**2 for weight in weights)
    term = stats.launch_half_width(launch, confidence, len(epochs), processes=squares)
    paired = alone or abs(sum(weights)) < BALANCED
    moved = 0.0 if paired else float(np.ptp(np.percentile(sums, MOVED))) / 2
    return Contrast(
        value=value,
        low=value - math.hypot(value - within_low, term, moved),
        high=value + math.hypot(within_high - value, term, moved),
        within_low=within_low,
        within_high=within_high,
        launch_half=term,
        confidence=confidence,
        rounds=len(rounds),
        epochs=len(epochs),
        paired=paired,
    )


def added(parts: Sequence[Contrast]) -> Contrast:
    """Return the sum of independent parts: half-widths add in squares."""
    if len(parts) == 1:
        return parts[0]
    value = sum(part.value for part in parts)

    def half(low: str, high: str, sign: int) -> float:
        return math.hypot(*(getattr(p, high if sign > 0 else low) - p.value for p in parts))

    return Contrast(
        value=value,
        low=value - half("low", "high", -1),
        high=value + half("low", "high", 1),
        within_low=value - half("within_low", "within_high", -1),
        within_high=value + half("within_low", "within_high", 1),
        launch_half=math.hypot(*(part.launch_half for part in parts)),
        confidence=parts[0].confidence,
        rounds=min(part.rounds for part in parts),
        epochs=min(part.epochs for part in parts),
        paired=all(part.paired for part in parts),
    )


def times_ns(evidence: Evidence, cells: Sequence[Cell]) -> list[float] | None:
    """Return each cell's time per call in ns, over the rounds that cells of a session share.

    None where samples are missing.
    """
    found = []
    for cell in cells:
        peers = [evidence.logs(one) for one in cells if one.key[0] == cell.key[0]]
        rounds, (values, *_) = side_by_side([evidence.logs(cell), *peers])
        if len(rounds) < 2:
            return None
        centres = [stats.hodges_lehmann(column) for column in rounds.by_epoch(values)]
        found.append(math.exp(np.mean(centres)))
    return found
