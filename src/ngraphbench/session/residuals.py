"""What one program did alone: its slots without its own level and what the machine did to all.

All detectors of unsteady programs work on these. Pure functions of samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ngraphbench.stats import clipped
from ngraphbench.summary import Samples
from ngraphbench.types import Array

__all__ = ["Residuals", "residuals_of", "spread"]


@dataclass(frozen=True, slots=True)
class Residuals:
    """Residual log times of one candidate's slots, in the order they were measured.

    ``previous`` names who ran right before each slot, "" where nobody did in that launch.
    """

    epoch: Array
    value: Array
    previous: Array


def residuals_of(samples: Mapping[str, Samples]) -> dict[str, Residuals]:
    """Return each candidate's residuals: log time less its launch's median and the round's.

    What a round did to all is the median over the *others*, each less its own launch's
    median. It takes two others to tell a machine from a program: with fewer than three
    candidates the result is empty, and rounds in which fewer than two others ran are left out.
    """
    keys = [key for key, found in samples.items() if len(found["call_ns"])]
    if len(keys) < 3:
        return {}
    epoch, place, owner, log = _slots([samples[key] for key in keys])
    log = log - _launch_levels(epoch, owner, log, len(keys))
    _, rounds = np.unique(place, return_inverse=True)
    shared = _shared(rounds, owner, log, len(keys))
    before = np.roll(owner, 1)
    names = np.array([*keys, ""], dtype=object)
    before[np.flatnonzero(np.diff(epoch, prepend=-1))] = len(keys)
    found: dict[str, Residuals] = {}
    for index, key in enumerate(keys):
        own = np.flatnonzero(owner == index)
        value = log[own] - shared[rounds[own], index]
        own, value = own[np.isfinite(value)], value[np.isfinite(value)]
        if len(own):
            found[key] = Residuals(epoch[own], value, names[before[own]])
    return found


def _slots(samples: list[Samples]) -> tuple[Array, Array, Array, Array]:
    """Return (epoch, place of the round, owner, log ns) of all slots in order of time."""
    epoch = np.concatenate([np.asarray(s["epoch"], dtype=int) for s in samples])
    number = np.concatenate([np.asarray(s["round"], dtype=int) for s in samples])
    position = np.concatenate([np.asarray(s["position"], dtype=int) for s in samples])
    owner = np.repeat(np.arange(len(samples)), [len(s["call_ns"]) for s in samples])
    log = np.log(np.concatenate([np.asarray(s["call_ns"], dtype=float) for s in samples]))
    order = np.lexsort((position, number, epoch))
    place = epoch * (int(number.max()) + 1) + number
    return epoch[order], place[order], owner[order], log[order]


def _launch_levels(epoch: Array, owner: Array, log: Array, candidates: int) -> Array:
    levels = np.empty_like(log)
    launch = epoch * candidates + owner
    for value in np.unique(launch):
        own = launch == value
        levels[own] = np.median(log[own])
    return levels


def _shared(rounds: Array, owner: Array, log: Array, candidates: int) -> Array:
    """Return, per round and candidate, the median over the others; nan with fewer than two."""
    shape = (int(rounds.max()) + 1, candidates)
    total, count = np.zeros(shape), np.zeros(shape)
    np.add.at(total, (rounds, owner), log)
    np.add.at(count, (rounds, owner), 1)
    with np.errstate(invalid="ignore"):
        table = total / count
    shared = np.full(shape, np.nan)
    for index in range(candidates):
        others = np.delete(table, index, axis=1)
        enough = np.isfinite(others).sum(axis=1) >= 2
        shared[enough, index] = np.nanmedian(others[enough], axis=1)
    return shared


def spread(values: Array) -> float:
    """Return the standard deviation of ``values`` as it is without outliers, never 0."""
    return max(float(np.std(clipped(values))), 1e-12)
