"""Estimators for paired, heavy-tailed timing samples. Pure functions of numpy arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from ngraphbench.student import t_quantile
from ngraphbench.types import Array

__all__ = [
    "LAUNCH_PRIOR",
    "RACE_SHARE",
    "Launch",
    "clipped",
    "hodges_lehmann",
    "holm",
    "jackknife_log_ratio",
    "launch_half_width",
    "launch_spread",
    "locations",
    "medians",
    "pooled_launch",
    "serial_inflation",
    "signed_rank_interval",
    "t_quantile",
    "tables",
]


@dataclass(frozen=True, slots=True)
class Launch:
    """How much a process differs from launch to launch: ``sd`` of log time, and its d.f.

    ``claim`` says what a launch is: of one ``artefact``, or ``compiler``, each built anew.
    """

    sd: float
    degrees: float
    claim: str = "artefact"


LAUNCH_PRIOR = Launch(sd=0.01, degrees=4.0)
"""What is believed of a host before anything is measured on it: 1 %, worth 4 d.f."""

RACE_SHARE = 2 / 3
"""The part of a race's allowed error that dropping candidates spends; the verdict on those
that stay has the rest."""


MAD_TO_SD = 1.4826
"""From the median absolute deviation to the standard deviation of a normal."""

SERIAL_FROM = 20
SERIAL_LEAST = 0.2
"""Lag-1 correlation, and the number of values from which it is worth estimating."""


def walsh_averages(values: Array) -> Array:
    """Return the n(n+1)/2 means of all pairs (a value with itself included), sorted.

    Of a table they are those of each row.
    """
    data = np.asarray(values, dtype=float)
    first, second = _pairs(data.shape[-1])
    averages: Array = data.take(first, -1)
    averages += data.take(second, -1)
    averages /= 2.0
    averages.sort()
    return averages


@lru_cache(maxsize=32)
def _pairs(count: int) -> tuple[Array, Array]:
    first, second = np.triu_indices(count)
    return first, second


def hodges_lehmann(values: Array) -> float:
    """Return the Hodges-Lehmann location: the median of the Walsh averages.

    Raises ValueError for an empty array. Source: Hodges and Lehmann, Ann. Math. Statist.
    34 (1963).

    >>> hodges_lehmann([1.0, 2.0, 30.0])
    8.75
    """
    if len(values) == 0:
        raise ValueError("hodges_lehmann of no values")
    return float(_middle(walsh_averages(values)))


def locations(table: Array) -> Array:
    """Return the Hodges-Lehmann location of each row, of which none is empty."""
    return _middle(walsh_averages(table))


def medians(table: Array) -> Array:
    """Return the median of each row, as np.median does in many times the time for few values."""
    ordered = np.array(table, dtype=float)
    ordered.sort()
    return _middle(ordered)


def _middle(ordered: Array) -> Array:
    """Return the middle of sorted values, of each row where they are a table."""
    count = ordered.shape[-1]
    upper: Array = ordered[..., count // 2]
    return upper if count % 2 else (ordered[..., count // 2 - 1] + upper) / 2.0


def tables(columns: Sequence[Array]) -> list[Array]:
    """Return columns of one length as the rows of one table, others as a table each.

    A session's launches are mostly of one length, and a call of numpy costs more than the work
    it does on so few values.
    """
    if len({len(column) for column in columns}) == 1:
        return [np.array(columns, dtype=float)]
    return [np.array([column], dtype=float) for column in columns]


@lru_cache(maxsize=256)
def _signed_rank_cut(count: int, tail: float) -> int:
    """Return the largest k with P(W+ < k) <= tail, W+ the signed-rank statistic; 0 if none."""
    ways = np.zeros(count * (count + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, count + 1):
        ways[rank:] = ways[rank:] + ways[:-rank]
    below = np.cumsum(ways) / 2.0**count
    return int(np.searchsorted(below, tail, side="right"))


def signed_rank_interval(values: Array, confidence: float) -> tuple[float, float]:
    """Return the exact Wilcoxon signed-rank interval for the location of ``values``.

    With too few values for that confidence it is the t interval instead, and for one
    value (-inf, inf). Above 200 values the normal approximation gives the ranks.
    """
    count = len(values)
    if count < 2:
        return -math.inf, math.inf
    tail = (1.0 - confidence) / 2.0
    averages = walsh_averages(values)
    if count > 200:
        mean = count * (count + 1) / 4.0
        sd = math.sqrt(count * (count + 1) * (2 * count + 1) / 24.0)
        cut = max(1, int(mean + NormalDist().inv_cdf(tail) * sd))
    else:
        cut = _signed_rank_cut(count, tail)
    if cut < 1:
        centre = float(np.mean(values))
        half = t_quantile(confidence, count - 1) * float(np.std(values, ddof=1))
        return centre - half / math.sqrt(count), centre + half / math.sqrt(count)
    return float(averages[cut - 1]), float(averages[len(averages) - cut])


def serial_inflation(columns: Sequence[Array]) -> float:
    """Return by how much an interval must widen because neighbouring values are alike.

    ``columns`` hold the values of each launch in order, each by itself or as rows of tables.
    The factor is sqrt((1 + r) / (1 - r)),
    r the lag-1 correlation less its small-sample bias (Marriott and Pope, Biometrika 41, 1954);
    1 where r is below 0.2 or values are fewer than 20. A block bootstrap with blocks of
    1.5 n^(1/3) covers less: 0.85 against 0.95 at r = 0.7 and three launches of 40 rounds.
    """
    count = sum(column.size for column in columns)
    if count < SERIAL_FROM:
        return 1.0
    # One slot five times as long would hide that all others resemble their neighbours.
    tamed = [clipped(column) for column in columns]
    centred = [rows - np.add.reduce(rows, -1, keepdims=True) / rows.shape[-1] for rows in tamed]
    squares = sum(_row_sums(rows * rows) for rows in centred)
    if squares <= 0.0:
        return 1.0
    found = sum(_row_sums(rows[..., 1:] * rows[..., :-1]) for rows in centred) / squares
    launches = sum(column.size // column.shape[-1] for column in columns)
    found = min(0.95, found + (1 + 3 * found) * launches / count)
    return math.sqrt((1 + found) / (1 - found)) if found > SERIAL_LEAST else 1.0


def _row_sums(rows: Array) -> float:
    return float(np.add.reduce(np.add.reduce(rows, -1), axis=None))


def clipped(values: Array, reach_sd: float = 3.0) -> Array:
    """Return ``values`` with outliers pulled in to ``reach_sd`` robust standard deviations.

    In a table each row has a centre and a spread of its own.
    """
    data = np.asarray(values, dtype=float)
    if not data.size:
        return data
    centre = medians(data)[..., None]
    reach = reach_sd * MAD_TO_SD * medians(np.abs(data - centre))[..., None]
    tamed: Array = np.minimum(np.maximum(data, centre - reach), centre + reach)
    return tamed


def launch_spread(log_times: Array, prior: Launch = LAUNCH_PRIOR) -> Launch:
    """Return the launch-to-launch spread, pooled over candidates and shrunk to ``prior``.

    ``log_times`` has one row per candidate and one column per epoch. What all candidates
    share in an epoch (drift) and what a candidate always has (speed) are taken out first:
    the two-way residuals are what launches add. Only a small spread is drawn to the prior:
    a host that proves noisier than believed is not talked down, and then what was seen
    stands alone, with its own degrees of freedom. Lending it the prior's made equal
    programs differ in 5.7 % of sessions at a launch spread of 2 %.
    """
    table = np.asarray(log_times, dtype=float)
    rows, columns = table.shape if table.ndim == 2 else (0, 0)
    if rows < 2 or columns < 2:
        return prior
    residual = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    degrees = float((rows - 1) * (columns - 1))
    return _shrunk(float(np.sum(residual**2)), degrees, prior)


def pooled_launch(shown: Sequence[Launch], prior: Launch) -> Launch:
    """Return the spread that several sessions of one host showed together, shrunk to ``prior``.

    ``shown`` is what each showed by itself, no prior in it; 0 degrees of freedom for nothing.
    """
    degrees = sum(launch.degrees for launch in shown)
    if degrees <= 0.0:
        return prior
    return _shrunk(sum(one.degrees * one.sd**2 for one in shown), degrees, prior)


def _shrunk(squares: float, degrees: float, prior: Launch) -> Launch:
    total = prior.degrees + degrees
    shrunk = (prior.degrees * prior.sd**2 + squares) / total
    if squares / degrees > shrunk:
        return Launch(sd=math.sqrt(squares / degrees), degrees=degrees, claim=prior.claim)
    return Launch(sd=math.sqrt(shrunk), degrees=total, claim=prior.claim)


def launch_half_width(launch: Launch, confidence: float, epochs: int, *, processes: float) -> float:
    """Return what launches add to half an interval of log time over ``epochs`` of them.

    ``processes`` is 1 for the time of one program, 2 for the ratio of two, and for any other
    sum of log times the sum of its squared weights.
    """
    return t_quantile(confidence, launch.degrees) * launch.sd * math.sqrt(processes / epochs)


def jackknife_log_ratio(numerator: Array, denominator: Array) -> tuple[float, float]:
    """Return log(sum numerator / sum denominator) and its delete-one jackknife s.e.

    The s.e. is 0 for a single pair: nothing is known of its spread.
    """
    top = np.asarray(numerator, dtype=float)
    bottom = np.asarray(denominator, dtype=float)
    estimate = math.log(top.sum() / bottom.sum())
    count = len(top)
    if count < 2:
        return estimate, 0.0
    left_out = np.log((top.sum() - top) / (bottom.sum() - bottom))
    spread = np.sum((left_out - left_out.mean()) ** 2) * (count - 1) / count
    return estimate, math.sqrt(float(spread))


def holm(confidence: float, rank: int, comparisons: int) -> float:
    """Return the confidence for the ``rank``-th (from 0) smallest p-value among several.

    Source: Holm, Scand. J. Statist. 6 (1979).

    >>> round(holm(0.95, 0, 5), 3)
    0.99
    """
    return 1.0 - (1.0 - confidence) / max(1, comparisons - rank)
