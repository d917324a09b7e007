"""Whether one candidate's own speed changed: a step, two modes, carry-over. Pure functions.

Each detector has a score that noise alone rarely reaches, set by simulation so that a session
of six candidates is flagged wrongly in fewer than 5 % of cases, and a size that matters. What
happens between launches cannot be told from a launch effect, and is not looked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ngraphbench.session.modes import fit_modes
from ngraphbench.session.residuals import Residuals, residuals_of, spread
from ngraphbench.stats import clipped
from ngraphbench.summary import Samples
from ngraphbench.types import Array, Json

__all__ = ["UNSTABLE", "is_suspect", "steadiness_flags"]

UNSTABLE = ("not-steady", "bimodal")
"""Flags of a candidate that a single number does not describe."""

APART = 0.03
"""Modes closer than this are not told apart."""

FEWEST_SLOTS = 36
FEWEST_SLOTS_OF_LAUNCH = 12
"""With fewer, modes and steps are not looked for: a handful of slots has any shape."""

MOST_BLAMED = 1 / 3
"""Where more of the candidates than this seem unsteady, it is the machine that is."""

STEP_SCORE = 4.2
STEP_SIZE = 0.025
STEP_EDGE = 0.08
STEP_EDGE_MOST = 5
"""A cut leaves this share of a launch's slots behind it, but no more slots than that."""

WARM_UP_SLOTS = 6
"""What ends sooner than this is warming up, which the estimators are robust to."""

STEP_CLIP = 2.5

WIDER = 1.3
"""Two modes are looked for where slots spread this much wider than those of the others."""

MODE_EVIDENCE = 1.0
MODE_SHARE = 0.15
MODE_DISTANCE = 2.0

CARRIED = 0.005
CARRY_SCORE = 3.7
CARRY_SCORE_PAIR = 4.4

SUSPECT_WIDER = 1.4
SUSPECT_FROM = 12


@dataclass(frozen=True, slots=True)
class _Step:
    score: float
    size: float


def steadiness_flags(
    samples: Mapping[str, Samples], labels: Mapping[str, str] | None = None
) -> dict[str, list[Json]]:
    """Return the flags of each candidate that was not steady; the steady ones are left out.

    ``not-steady``: its level stepped by 2.5 % or more within a launch. ``bimodal``: two modes
    3 % or more apart, each 15 % or more of its slots. ``carry-over``: who ran before it
    changes it by more than 0.5 %. ``labels`` name candidates in details. With fewer than
    three candidates nothing can be told from drift, and the result is empty; so it is where
    more than a third of them would be blamed for a step or modes.
    """
    found: dict[str, list[Json]] = {}
    rest = dict(samples)
    while residuals := residuals_of(rest):
        steps = {key: _step(own) for key, own in residuals.items()}
        worst = max(steps, key=lambda key: steps[key].score)
        if steps[worst].score < STEP_SCORE or abs(steps[worst].size) < STEP_SIZE:
            break
        # What stepped has shifted the others' residuals as well: they are judged without it.
        detail = f"its speed stepped by {abs(steps[worst].size):.1%} within a launch"
        found[worst] = [{"flag": "not-steady", "detail": detail}]
        del rest[worst]
    for key, detail in _bimodal(residuals, samples).items():
        found.setdefault(key, []).append({"flag": "bimodal", "detail": detail})
    if len(found) > max(1.0, MOST_BLAMED * len(samples)):
        return {}
    for key, detail in _carried(residuals, labels or {}).items():
        found.setdefault(key, []).append({"flag": "carry-over", "detail": detail})
    return found


def is_suspect(samples: Mapping[str, Samples]) -> bool:
    """Return whether some candidate's slots spread so much wider that more are worth having.

    A spread alone is no fault; but two modes can only be told from one with many slots.
    """
    residuals = residuals_of(samples)
    wider = _wider({key: own for key, own in residuals.items() if len(own.value) >= SUSPECT_FROM})
    return any(ratio >= SUSPECT_WIDER for ratio in wider.values())


def _wider(residuals: Mapping[str, Residuals]) -> dict[str, float]:
    """Return how much wider each candidate's slots spread than the median of the others'."""
    own = {key: spread(_centred(found)) for key, found in residuals.items()}
    if len(own) < 3:
        return {}
    return {
        key: value / float(np.median([v for other, v in own.items() if other != key]))
        for key, value in own.items()
    }


def _centred(found: Residuals) -> Array:
    """Return residuals with outliers pulled in and each launch's mean taken out."""
    values = np.empty_like(found.value)
    for epoch in np.unique(found.epoch):
        own = found.epoch == epoch
        values[own] = clipped(found.value[own])
        values[own] -= np.mean(values[own])
    return values


def _step(found: Residuals) -> _Step:
    """Return the best cut of any launch: its distance over its standard error, and its size.

    Neighbouring slots that resemble each other make the error larger, or a program that
    wanders would be one that stepped.
    """
    cuts = []
    for epoch in np.unique(found.epoch):
        values = clipped(found.value[found.epoch == epoch], STEP_CLIP)
        edge = min(max(3, int(np.ceil(STEP_EDGE * len(values)))), STEP_EDGE_MOST)
        if len(values) >= FEWEST_SLOTS_OF_LAUNCH:
            cuts.append(_best_cut(values, edge))
    noise = np.concatenate([rest for _, _, rest in cuts]) if cuts else np.zeros(0)
    degrees = len(noise) - 2 * len(cuts)
    squares = float(np.sum(noise**2))
    if degrees < 1 or squares <= 0:
        return _Step(0.0, 0.0)
    alike = sum(float(np.sum(rest[1:] * rest[:-1])) for _, _, rest in cuts) / squares
    alike = min(max(alike, 0.0), 0.95)
    error = (squares / degrees * (1 + alike) / (1 - alike)) ** 0.5
    distance, size, _ = max(cuts, key=lambda cut: cut[0])
    return _Step(distance / error, size)


def _best_cut(values: Array, edge: int) -> tuple[float, float, Array]:
    """Return (distance in units of one slot's noise, size, what the two levels leave)."""
    count = len(values)
    before = np.arange(WARM_UP_SLOTS, count - edge + 1)
    sums = np.cumsum(values)
    left = sums[before - 1] / before
    right = (sums[-1] - sums[before - 1]) / (count - before)
    distance = np.abs(right - left) * np.sqrt(before * (count - before) / count)
    best = int(np.argmax(distance))
    cut = int(before[best])
    rest = np.concatenate([values[:cut] - left[best], values[cut:] - right[best]])
    return float(distance[best]), float(right[best] - left[best]), rest


def _bimodal(residuals: Mapping[str, Residuals], samples: Mapping[str, Samples]) -> dict[str, str]:
    details = {}
    for key, ratio in _wider(residuals).items():
        if ratio < WIDER or len(residuals[key].value) < FEWEST_SLOTS:
            continue
        found = fit_modes(_centred(residuals[key]))
        real = found.evidence >= MODE_EVIDENCE and found.apart >= MODE_DISTANCE * found.sd
        minor = min(found.share, 1 - found.share)
        if not real or found.apart < APART or minor < MODE_SHARE:
            continue
        middle = float(np.mean(np.log(np.asarray(samples[key]["call_ns"], dtype=float))))
        fast = np.exp(middle - found.share * found.apart) / 1e6
        slow = fast * np.exp(found.apart)
        details[key] = (
            f"two speeds, {np.expm1(found.apart):.1%} apart: about {fast:.4g} and {slow:.4g} ms"
            f" a call, the slower one in {found.share:.0%} of slots"
        )
    return details


def _carried(residuals: Mapping[str, Residuals], labels: Mapping[str, str]) -> dict[str, str]:
    """Return who is changed by whom: by one that changes all, or by one that changes it."""
    if not residuals:
        return {}
    keys = list(residuals)
    owner = np.repeat(keys, [len(residuals[key].value) for key in keys])
    before = np.concatenate([residuals[key].previous for key in keys])
    value = np.concatenate([_centred(residuals[key]) for key in keys])
    weight = np.concatenate([_weights(residuals[key]) for key in keys])
    weight[before == ""] = 0.0
    details: dict[str, str] = {}
    culprits = sorted(set(before) - {""})
    while culprits:
        found = {key: _after(value, weight * (owner != key), before == key) for key in culprits}
        worst = max(culprits, key=lambda key: found[key][1])
        effect, score = found[worst]
        if abs(effect) <= CARRIED or score < CARRY_SCORE:
            break
        for key in keys:
            if key != worst:
                details.setdefault(key, _carry_text(effect, labels.get(worst, worst)))
        # Else whoever else ran before would seem to make programs faster.
        weight[before == worst] = 0.0
        culprits.remove(worst)
    for key in keys:
        for culprit in culprits:
            effect, score = _after(value, weight * (owner == key), before == culprit)
            if key != culprit and abs(effect) > CARRIED and score >= CARRY_SCORE_PAIR:
                details.setdefault(key, _carry_text(effect, labels.get(culprit, culprit)))
    return details


def _weights(found: Residuals) -> Array:
    return np.full(len(found.value), spread(_centred(found)) ** -2)


def _after(value: Array, weight: Array, after: Array) -> tuple[float, float]:
    """Return the effect of a predecessor, and its distance over its standard error."""
    inside, outside = float(np.sum(weight[after])), float(np.sum(weight[~after]))
    if np.count_nonzero(weight[after]) < 6 or outside <= 0:
        return 0.0, 0.0
    effect = float(np.sum((weight * value)[after])) / inside
    effect -= float(np.sum((weight * value)[~after])) / outside
    return effect, abs(effect) / (1 / inside + 1 / outside) ** 0.5


def _carry_text(effect: float, culprit: str) -> str:
    way = "slower" if effect > 0 else "faster"
    return f"{abs(effect):.1%} {way} right after {culprit}"
