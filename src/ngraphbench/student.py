"""Student's t quantile in plain Python: SciPy's takes a quarter of a second to import.

Whatever shows a run needs a few quantiles and nothing else of SciPy.
"""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["t_quantile"]

EXACT = 1e-15
"""Relative change below which an iteration has arrived."""

MOST_TERMS = 10_000


@lru_cache(maxsize=1024)
def t_quantile(confidence: float, degrees: float) -> float:
    """Return the two-sided Student t quantile, such as 2.776 for 0.95 and 4 d.f.

    ``degrees`` may be any number above 0; nan for others. To 12 digits of SciPy's up to 1000
    d.f., to 8 up to a million. The tail falls ever more slowly, so Newton's method from 0
    comes nearer step by step and never passes the root.
    """
    if not degrees > 0.0 or not 0.0 <= confidence < 1.0:
        return math.inf if degrees > 0.0 and confidence == 1.0 else math.nan
    value = 0.0
    while True:
        excess = _tails(value, degrees) - (1.0 - confidence)
        step = excess / (2.0 * _density(value, degrees))
        value += step
        if not step > EXACT * value:
            return value


def _density(value: float, degrees: float) -> float:
    return math.exp(
        math.lgamma((degrees + 1.0) / 2.0)
        - math.lgamma(degrees / 2.0)
        - (degrees + 1.0) / 2.0 * math.log1p(value * value / degrees)
    ) / math.sqrt(degrees * math.pi)


def _tails(value: float, degrees: float) -> float:
    """Return P(|T| > value): the regularised incomplete beta function I_x(d/2, 1/2)."""
    a, square = degrees / 2.0, value * value / degrees
    x, rest = 1.0 / (1.0 + square), square / (1.0 + square)
    front = math.sqrt(rest) * math.exp(
        math.lgamma(a + 0.5) - math.lgamma(a) - math.lgamma(0.5) - a * math.log1p(square)
    )
    if x < (a + 1.0) / (a + 2.5):
        return front / a * _fraction(x, a, 0.5)
    return 1.0 - 2.0 * front * _fraction(rest, 0.5, a)


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of I_x(a, b) by Lentz's method.

    Source: NIST Digital Library of Mathematical Functions, 8.17.22.
    """
    above, below = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    found = below
    for m in range(1, MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            above, below = 1.0 + term / above, 1.0 / (1.0 + term * below)
            found *= above * below
        if abs(above * below - 1.0) < EXACT:
            break
    return found
