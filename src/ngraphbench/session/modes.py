"""One broad speed or two: a likelihood ratio of two modes against one, outliers allowed for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ngraphbench.types import Array

__all__ = ["Modes", "fit_modes"]

STRAY = 0.04
STRAY_WIDTH = 5.0
"""Every mode is a normal of which this share is this much wider: slots are heavy-tailed."""

STARTS = (0.2, 0.35, 0.5, 0.65, 0.8)
STEPS = 80
SHAPE_STEPS = 25
PLACES = 25


@dataclass(frozen=True, slots=True)
class Modes:
    """Two modes: ``apart`` in log time, ``share`` of slots in the slower one.

    ``sd`` is the spread within a mode, ``evidence`` the log likelihood ratio against one
    mode whose two sides may differ in width.
    """

    apart: float
    share: float
    sd: float
    evidence: float


def fit_modes(values: Array) -> Modes:
    """Return the two modes that fit ``values`` best, by expectation maximisation.

    ``values`` are residual log times with far outliers pulled in.
    """
    data = np.asarray(values, dtype=float)
    scale = max(float(np.std(data)), 1e-12)
    share = np.array(STARTS)[:, None]
    apart = 0.85 * scale / np.sqrt(share * (1 - share))
    fast = -share * apart
    sd = np.full_like(share, 0.55 * scale)
    for _ in range(STEPS):
        near, weight_fast = _weights((data - fast) / sd)
        far, weight_slow = _weights((data - fast - apart) / sd)
        total = (1 - share) * near + share * far
        slow_part = share * far / total
        weight_fast, weight_slow = weight_fast * (1 - slow_part), weight_slow * slow_part
        share = np.clip(np.mean(slow_part, axis=1, keepdims=True), 0.02, 0.98)
        fast = _mean(data, weight_fast)
        slow = _mean(data, weight_slow)
        squares = weight_fast * (data - fast) ** 2 + weight_slow * (data - slow) ** 2
        sd = np.sqrt(np.mean(squares, axis=1, keepdims=True)) + 1e-12
        apart = slow - fast
    likelihood = np.sum(np.log(total), axis=1) - len(data) * np.log(sd[:, 0])
    best = int(np.argmax(likelihood))
    swapped = apart[best, 0] < 0
    return Modes(
        apart=float(abs(apart[best, 0])),
        share=float(1 - share[best, 0] if swapped else share[best, 0]),
        sd=float(sd[best, 0]),
        evidence=float(likelihood[best]) - _one_mode(data, scale),
    )


def _weights(z: Array) -> tuple[Array, Array]:
    """Return the density of a mode at ``z`` and what a value there counts for it."""
    core = (1 - STRAY) * np.exp(-0.5 * z * z)
    stray = STRAY / STRAY_WIDTH * np.exp(-0.5 * (z / STRAY_WIDTH) ** 2)
    density = core + stray + 1e-300
    return density, (core + stray / STRAY_WIDTH**2) / density


def _mean(data: Array, weight: Array) -> Array:
    total: Array = np.sum(weight, axis=1, keepdims=True)
    mean: Array = np.sum(weight * data, axis=1, keepdims=True) / np.maximum(total, 1e-12)
    return mean


def _one_mode(data: Array, scale: float) -> float:
    """Return the log likelihood of one mode, wider on one side than on the other if need be.

    For a given peak the widths have a closed form; the peak is searched for.
    """
    offset = data - scale * np.linspace(-1.5, 1.5, PLACES)[:, None]
    left = offset < 0
    below = above = np.full((PLACES, 1), scale)
    for _ in range(SHAPE_STEPS):
        _, weight = _weights(offset / np.where(left, below, above))
        squares = weight * offset**2
        low = np.sum(squares * left, axis=1, keepdims=True) ** (1 / 3) + 1e-9
        high = np.sum(squares * ~left, axis=1, keepdims=True) ** (1 / 3) + 1e-9
        root = np.sqrt((low + high) / len(data))
        below, above = low * root, high * root
    density, _ = _weights(offset / np.where(left, below, above))
    return float(np.max(np.sum(np.log(2 / (below + above) * density), axis=1)))
