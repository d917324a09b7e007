"""Candidates for one deployment side by side: newest cells, paired comparisons, who may win.

Batch sizes and precisions compete, too: what counts is time per item (or per call).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from ngraphbench.analysis.tables import Cell, Evidence
from ngraphbench.analysis.topset import resolved_slower, verdict_confidence
from ngraphbench.summary import Comparison

__all__ = ["Contenders", "Prefer", "name_of"]

Prefer: TypeAlias = Literal["throughput", "latency"]


def name_of(cell: Cell) -> str:
    """Return a candidate's name with all that tells it from others of one model."""
    case = cell.record["case"]
    return f"{cell.label}, batch {case['batch']}, {case['precision']}"


class Contenders:
    """``cells``, the newest of each case by its id, with comparisons of paired rounds.

    ``prefer`` is what is compared: ``throughput`` time per item, ``latency`` time per call.
    """

    def __init__(self, evidence: Evidence, prefer: Prefer) -> None:
        self.evidence = evidence
        self.prefer = prefer
        order = {session_id: i for i, session_id in enumerate(evidence.sessions)}
        newest = sorted(evidence.cells, key=lambda cell: -order.get(cell.key[0], -1))
        self._all: dict[str, list[Cell]] = {}
        for cell in newest:
            self._all.setdefault(cell.key[1], []).append(cell)
        self.cells = {case_id: cells[0] for case_id, cells in self._all.items()}
        self._baselines = {
            cell.key: group.baseline for group in evidence.groups for cell in group.cells
        }

    def is_baseline(self, cell: Cell) -> bool:
        """Return whether a cell is what its session compares others with."""
        return self._baselines.get(cell.key) == cell.label

    def compare(self, a: str, b: str, confidence: float | None = None) -> Comparison | None:
        """Return what ``a`` takes over what ``b`` takes, of their newest common session.

        None where they were never measured side by side, or where that session failed its
        control.
        """
        for mine in self._all[a]:
            for theirs in self._all[b]:
                if mine.key[0] != theirs.key[0] or not (mine.ranked and theirs.ranked):
                    continue
                if self.evidence.untrusted(mine.key[0]):
                    return None
                found = self.evidence.compare(mine, theirs, confidence)
                return _scaled(found, self._share(mine, theirs)) if found else None
        return None

    def _share(self, mine: Cell, theirs: Cell) -> float:
        if self.prefer == "latency":
            return 1.0
        return float(theirs.record["case"]["batch"]) / float(mine.record["case"]["batch"])

    def fastest_first(self, case_ids: Sequence[str]) -> list[str]:
        """Return candidates by what they take, by paired rounds where there are some."""

        def taken(case_id: str) -> float:
            cell = self.cells[case_id]
            latency = cell.latency
            if latency is None:
                return float("inf")
            batch = cell.record["case"]["batch"] if self.prefer == "throughput" else 1
            return latency.estimate / float(batch)

        ranked = sorted(case_ids, key=taken)
        for i, rival in enumerate(ranked[1:], start=1):
            found = self.compare(rival, ranked[0])
            if found is not None and found.estimate < 1.0:
                ranked[0], ranked[i] = rival, ranked[0]
        return ranked

    def surely_slower(self, first: str, rivals: Sequence[str]) -> set[str]:
        """Return the rivals that are resolved to take more than ``first`` (Holm)."""
        if not rivals:
            return set()
        session_id = self.cells[first].key[0]
        profile = self.evidence.profile(session_id)
        raced = self.evidence.raced(session_id)
        return resolved_slower(
            first,
            rivals,
            self.compare,
            confidence=verdict_confidence(profile.confidence, raced=raced),
            tie=profile.tie,
        )


def _scaled(found: Comparison, factor: float) -> Comparison:
    ends = ("estimate", "low", "high", "within_low", "within_high")
    return replace(found, **{name: getattr(found, name) * factor for name in ends})
