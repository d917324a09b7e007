"""One candidate over batch sizes: which were measured, which were not and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ngraphbench.analysis.tables import Cell, Evidence, Group, Interval

__all__ = ["Curve", "Point", "curves", "families"]

PADDED = "batch-padded"
"""Flag of cells that compute more items than asked for; those asked for count."""


@dataclass(frozen=True, slots=True)
class Point:
    """One batch size of a curve. ``cell`` is None unless its timing may stand in a metric."""

    batch: int
    status: str
    cell: Cell | None = None
    base: Cell | None = None

    @property
    def throughput(self) -> Interval | None:
        """Items per second of a typical call, b / L(b): what ratios over batch sizes are of."""
        latency = self.cell.latency if self.cell else None
        if latency is None:
            return None
        low, estimate, high = (
            self.batch * 1e3 / ms for ms in (latency.high, latency.estimate, latency.low)
        )
        return Interval(estimate, low, high, latency.confidence)

    @property
    def flags(self) -> tuple[str, ...]:
        """The flag that says that more items were computed than count, if it has it."""
        return (PADDED,) if self.cell and PADDED in self.cell.flags else ()


@dataclass(frozen=True, slots=True)
class Curve:
    """A candidate of one model on one device, over every batch size that the model has.

    ``family`` is what its rivals share with it. A cell that failed, gave wrong outputs or was
    not steady is a point without a cell: it is told of, and never taken as 0.
    """

    title: str
    label: str
    device: str
    precision: str
    baseline: str
    family: tuple[object, ...]
    points: tuple[Point, ...]

    @property
    def measured(self) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.cell is not None)

    @property
    def coverage(self) -> str:
        """How many batch sizes were measured of how many were asked, such as ``3 of 4``."""
        return f"{len(self.measured)} of {len(self.points)}"

    @property
    def reason(self) -> str:
        """Why nothing can be said over batch sizes; empty if something can."""
        if len(self.measured) > 1:
            return ""
        return f"{self.coverage} batch sizes have a result; two are needed"

    @property
    def censored(self) -> str:
        """Why no batch size beyond the largest measured one has a result; empty if none was
        asked."""
        largest = max((point.batch for point in self.measured), default=0)
        beyond = (point.status for point in self.points if point.batch > largest)
        return next(beyond, "")

    def point(self, batch: int) -> Point:
        """Return the point at a batch size. Raises KeyError for one that was not asked."""
        return {point.batch: point for point in self.points}[batch]

    def cell(self, batch: int) -> Cell | None:
        """Return the measured cell at a batch size, or None."""
        return next((point.cell for point in self.points if point.batch == batch), None)

    def gap(self, low: int, high: int) -> bool:
        """Return whether a batch size between two was asked and has no result."""
        return any(low < p.batch < high and p.cell is None for p in self.points)


def curves(evidence: Evidence) -> list[Curve]:
    """Return one curve per model, setting and candidate, in the order of the groups."""
    if curves not in evidence.memory:
        evidence.memory[curves] = _curves(evidence)
    found: list[Curve] = evidence.memory[curves]
    return found


_Usable: TypeAlias = Mapping[str, Cell]
"""The cells of a group whose timing may stand in a metric, by label."""


def _curves(evidence: Evidence) -> list[Curve]:
    gathered: dict[tuple[object, ...], list[tuple[Group, _Usable]]] = {}
    for group in evidence.groups:
        family = gathered.setdefault((group.model, *group.setting[1:]), [])
        family.append((group, _usable(evidence, group)))
    return [
        _curve(family, groups, label)
        for family, groups in gathered.items()
        for label in dict.fromkeys(cell.label for group, _ in groups for cell in group.cells)
    ]


def families(found: Sequence[Curve]) -> list[list[Curve]]:
    """Return curves that belong to one model and setting together."""
    gathered: dict[tuple[object, ...], list[Curve]] = {}
    for curve in found:
        gathered.setdefault(curve.family, []).append(curve)
    return list(gathered.values())


def _curve(
    family: tuple[object, ...], groups: Sequence[tuple[Group, _Usable]], label: str
) -> Curve:
    """Return a candidate's curve; batch sizes come from one session where it has them."""
    sessions = Counter(group.session_id for group, usable in groups if label in usable)
    ranked = sorted(groups, key=lambda found: -sessions[found[0].session_id])
    by_batch: dict[int, list[tuple[Group, _Usable]]] = {}
    for group, usable in ranked:
        by_batch.setdefault(group.batch, []).append((group, usable))
    first = groups[0][0]
    return Curve(
        title=first.title,
        label=label,
        device=first.device,
        precision=first.precision,
        baseline=ranked[0][0].baseline,
        family=family,
        points=tuple(_point(batch, by_batch[batch], label) for batch in sorted(by_batch)),
    )


def _point(batch: int, groups: Sequence[tuple[Group, _Usable]], label: str) -> Point:
    for group, usable in groups:
        cell = usable.get(label)
        if cell is not None:
            return Point(batch, cell.status, cell, usable.get(group.baseline))
    found = (cell for group, _ in groups for cell in group.cells if cell.label == label)
    return Point(batch, next(map(_why_not, found), "not planned"))


def _why_not(cell: Cell) -> str:
    if cell.partly_compiled:
        return "partly compiled"
    # A result whose samples are lost is no result here.
    return "no samples" if cell.ranked else cell.status


def _usable(evidence: Evidence, group: Group) -> dict[str, Cell]:
    found: dict[str, Cell] = {}
    for cell in group.cells:
        if cell.ranked and evidence.logs(cell):
            found.setdefault(cell.label, cell)
    return found
