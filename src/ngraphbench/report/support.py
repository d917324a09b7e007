"""Who could run what: wins, refusals and failures side by side, and the reasons once each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from ngraphbench.analysis.tables import Cell, Evidence
from ngraphbench.records import FAILURES, PARTLY_COMPILED
from ngraphbench.report.charts import Tags
from ngraphbench.report.scene import anchor, tags_of

__all__ = ["Reason", "Spot", "SupportRow", "reasons", "support_rows"]


@dataclass(frozen=True, slots=True)
class Spot:
    """One cell of the matrix: a sign, a word, and why; ``mood`` is how it is coloured."""

    sign: str
    word: str
    why: str
    mood: str
    struck: bool
    anchor: str
    tags: Tags


@dataclass(frozen=True, slots=True)
class SupportRow:
    """One model at one batch size; None where a candidate was not asked."""

    title: str
    batch: int
    spots: tuple[Spot | None, ...]
    tags: Tags


def support_rows(evidence: Evidence, labels: Sequence[str]) -> list[SupportRow]:
    """Return the matrix, one row per model and batch size, one place per label."""
    rows = []
    for group in evidence.groups:
        known = {
            cell.label: _spot(cell, group.baseline, tags_of(group, cell.label))
            for cell in group.cells
        }
        spots = tuple(known.get(label) for label in labels)
        rows.append(SupportRow(group.title, group.batch, spots, tags_of(group)))
    return rows


def _spot(cell: Cell, baseline: str, tags: Tags) -> Spot:
    record, status = cell.record, cell.status
    where = (anchor(cell), tags)
    if cell.partly_compiled:
        details = [f["detail"] for f in record["flags"] if f["flag"] == PARTLY_COMPILED]
        return Spot("✕", "partly compiled", next(filter(None, details), ""), "warn", True, *where)
    if status == "ok":
        speedup = cell.speedup
        word = "baseline" if cell.label == baseline else speedup.times if speedup else "ok"
        mood = "none" if cell.mark == "slower" else "good"
        return Spot("✓", word, "", mood, False, *where)
    if status in ("unstable", "unverifiable"):
        return Spot("~", status, record["reason"], "warn", False, *where)
    mood = "bad" if status in FAILURES else "none"
    sign = "✕" if status in FAILURES else "–"
    return Spot(sign, status, record["reason"], mood, status == "wrong", *where)


@dataclass(frozen=True, slots=True)
class Reason:
    """What went wrong in the same way in one cell or several, with who had it and where."""

    status: str
    reason: str
    stage: str
    message: str
    hint: str
    failed: bool
    cells: tuple[tuple[str, Cell], ...]
    tags: Tags


def reasons(evidence: Evidence) -> list[Reason]:
    """Return why cells have no result, failures first, those alike together."""
    gathered: dict[tuple[str, ...], list[tuple[str, Cell, Tags]]] = {}
    for group in evidence.groups:
        for cell in group.cells:
            if cell.throughput is None:
                record = cell.record
                message = str(record["message"]).strip()
                key = (cell.status, str(record["reason"]), str(record["stage"]), message)
                where = f"{cell.label} on {group.title}, batch {group.batch}"
                gathered.setdefault(key, []).append((where, cell, tags_of(group, cell.label)))
    found = []
    for (status, reason, stage, message), same in gathered.items():
        hints = [str(cell.record["detail"].get("hint", "")) for _, cell, _ in same]
        found.append(
            Reason(
                status,
                reason,
                stage,
                message,
                next(filter(None, hints), ""),
                status in FAILURES,
                tuple((where, cell) for where, cell, _ in same),
                _shared([tags for _, _, tags in same]),
            )
        )
    return sorted(found, key=lambda one: not one.failed)


def _shared(tags: Sequence[Tags]) -> Tags:
    """Return what all have in common, so that a filter hides only what it may."""

    values = (set(column) for column in zip(*map(astuple, tags), strict=True))
    return Tags(*(found.pop() if len(found) == 1 else "" for found in values))
