"""Whether one candidate's own speed changed: steps, two modes, carry-over. Pure functions.

All work on residuals: what is left of a slot's log time when the candidate's own level in
that launch, and what all candidates shared in that round, are taken out. So drift of the
machine does not count, only what one program did alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ngraphbench.summary import Samples, round_logs
from ngraphbench.types import Array, Json

__all__ = ["Residuals", "residuals", "steadiness_flags"]

FEWEST = 12
"""Rounds below which nothing is said: a handful of slots has any shape."""

APART = 0.03
"""Modes or levels closer than this are not told apart."""

MODE_SHARE = 0.15
MODE_SEPARATION = 3.0
"""Distance of two modes over the spread within them. The best cut of one normal gives 2.65."""

STEP_SCORE = 4.5
"""Distance of two levels over its standard error, at the best of all cuts."""

_CLIP = 3.0


@dataclass(frozen=True, slots=True)
class Residuals:
    """Residual log times of one candidate, in the order they were measured."""

    epoch: Array
    round: Array
    value: Array


def residuals(samples: Mapping[str, Samples]) -> dict[str, Residuals]:
    """Return each candidate's residuals; what others did in a round is a median over them.

    Needs three candidates at least, two others being what tells a machine from a program;
    with fewer the result is empty.
    """
    logs = {key: _centred(round_logs(found)) for key, found in samples.items()}
    logs = {key: found for key, found in logs.items() if found}
    if len(logs) < 3:
        return {}
    result: dict[str, Residuals] = {}
    for key, own in logs.items():
        others = [found for name, found in logs.items() if name != key]
        rows = []
        for place, value in sorted(own.items()):
            shared = [found[place] for found in others if place in found]
            if len(shared) >= 2:
                rows.append((*place, value - float(np.median(shared))))
        if rows:
            table = np.array(rows, dtype=float)
            result[key] = Residuals(table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2])
    return result


def _centred(logs: Mapping[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    """Take each launch's own median out: launches differ, and that is another matter."""
    by_epoch: dict[int, list[float]] = {}
    for (epoch, _), value in logs.items():
        by_epoch.setdefault(epoch, []).append(value)
    level = {epoch: float(np.median(values)) for epoch, values in by_epoch.items()}
    return {place: value - level[place[0]] for place, value in logs.items()}


def steadiness_flags(found: Residuals) -> list[Json]:
    """Return ``not-steady`` and ``bimodal`` where the residuals show a step or two modes."""
    flags: list[Json] = []
    step = max((_step(found.value[found.epoch == e]) for e in np.unique(found.epoch)), default=0.0)
    if step >= APART:
        flags.append({"flag": "not-steady", "detail": f"its level stepped by {step:.0%}"})
        return flags
    modes = _modes(found.value)
    if modes is not None:
        apart, share = modes
        text = f"two speeds {apart:.0%} apart, the slower one in {share:.0%} of slots"
        flags.append({"flag": "bimodal", "detail": text})
    return flags


def _clipped(values: Array) -> Array:
    """Pull outliers in to three robust standard deviations: they are not levels."""
    centre = np.median(values)
    spread = 1.4826 * float(np.median(np.abs(values - centre))) or 1e-12
    return np.clip(values, centre - _CLIP * spread, centre + _CLIP * spread)


def _step(values: Array) -> float:
    """Return the size of the step at the best cut, 0 where none is beyond doubt."""
    count = len(values)
    if count < FEWEST:
        return 0.0
    data = _clipped(values)
    best, size = 0.0, 0.0
    for cut in range(count // 5, count - count // 5 + 1):
        left, right = data[:cut], data[cut:]
        gap = float(abs(left.mean() - right.mean()))
        pooled = np.concatenate([left - left.mean(), right - right.mean()])
        error = float(np.std(pooled)) * (1 / len(left) + 1 / len(right)) ** 0.5 or 1e-12
        if gap / error > best:
            best, size = gap / error, gap
    return size if best >= STEP_SCORE else 0.0


def _modes(values: Array) -> tuple[float, float] | None:
    """Return (distance of two modes, share of the slower), None where there is one mode."""
    count = len(values)
    if count < FEWEST:
        return None
    data = np.sort(_clipped(values))
    fewest = max(2, int(np.ceil(MODE_SHARE * count)))
    best: tuple[float, float, float] = (0.0, 0.0, 0.0)
    for cut in range(fewest, count - fewest + 1):
        fast, slow = data[:cut], data[cut:]
        apart = float(slow.mean() - fast.mean())
        within = float(np.std(np.concatenate([fast - fast.mean(), slow - slow.mean()]))) or 1e-12
        best = max(best, (apart / within, apart, 1 - cut / count))
    separation, apart, share = best
    return (apart, share) if separation >= MODE_SEPARATION and apart >= APART else None
