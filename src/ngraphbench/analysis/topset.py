"""Who cannot be told apart from the fastest: pure functions of pairwise comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ngraphbench.stats import RACE_SHARE, holm
from ngraphbench.summary import Comparison, verdict

__all__ = ["Compare", "resolved_slower", "verdict_confidence"]

Compare: TypeAlias = Callable[[str, str, float], "Comparison | None"]
"""Returns time of the first over time of the second, at a confidence."""


def verdict_confidence(confidence: float, *, raced: bool) -> float:
    """Return the confidence of a verdict: after a race, what dropping has not spent of it.

    >>> round(verdict_confidence(0.95, raced=True), 3)
    0.983
    """
    return 1.0 - (1.0 - confidence) * (1.0 - RACE_SHARE) if raced else confidence


def resolved_slower(
    fastest: str, rivals: Sequence[str], compare: Compare, *, confidence: float, tie: float
) -> set[str]:
    """Return the rivals that are slower than ``fastest``, and by more than a tie.

    Holm's procedure: each rival found slower eases the level of the next, and it stops at
    the first level at which no other one is. All that are slower at a level may leave
    at once: the levels after it are easier still. Source: Holm, Scand. J. Statist. 6 (1979).
    """
    slower: set[str] = set()
    while len(slower) < len(rivals):
        level = holm(confidence, len(slower), len(rivals))
        fresh = {
            rival
            for rival in rivals
            if rival not in slower and verdict(compare(fastest, rival, level), tie) == "slower"
        }
        if not fresh:
            break
        slower |= fresh
    return slower
