"""One compiler in several versions side by side: each against the one before it."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from ngraphbench.analysis.tables import Cell, Evidence, Group, Interval
from ngraphbench.case import canonical
from ngraphbench.summary import verdict as judge

__all__ = ["VersionVerdict", "version_verdicts"]


@dataclass(frozen=True, slots=True)
class VersionVerdict:
    """What may be said of ``later`` against ``earlier``, two labels of one compiler.

    ``verdict``: ``faster | slower | tie | unresolved``; ``speedup`` is the time of the earlier
    over that of the later by paired rounds, None where they share none.
    """

    model: str
    batch: int
    session_id: str
    earlier: str
    later: str
    verdict: str
    speedup: Interval | None
    sentence: str


def version_verdicts(evidence: Evidence) -> list[VersionVerdict]:
    """Return a verdict for each two neighbouring versions that one session measured."""
    return [
        _judged(evidence, group, earlier, later)
        for group in evidence.groups
        for cells in _by_compiler(group)
        for earlier, later in itertools.pairwise(cells)
    ]


def _by_compiler(group: Group) -> list[list[Cell]]:
    """Return the cells of each compiler that is there in several versions, earliest first."""
    found: dict[str, dict[str, Cell]] = {}
    for cell in group.cells:
        compiler = cell.record["case"]["compiler"]
        same = canonical([compiler["name"], compiler["options"]])
        if cell.ranked and not cell.record["case"]["replica"]:
            found.setdefault(same, {})[compiler["version"]] = cell
    several = (cells.values() for cells in found.values() if len(cells) > 1)
    return [sorted(cells, key=_order) for cells in several]


def _order(cell: Cell) -> tuple[list[tuple[int, int, str]], str]:
    version = cell.record["environment"].get("compiler_version", "")
    parts = re.findall(r"\d+|[A-Za-z]+", version)
    ordered = [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]
    return ordered, cell.label


def _judged(evidence: Evidence, group: Group, earlier: Cell, later: Cell) -> VersionVerdict:
    compared = evidence.compare(earlier, later)
    verdict = judge(compared, evidence.profile(group.session_id).tie)
    speedup = Interval.from_comparison(compared) if compared else None
    if evidence.untrusted(group.session_id):
        verdict = "unresolved"
    said = {
        "faster": "{later} is {times} faster than {earlier}",
        "slower": "{later} is slower than {earlier}: {times}",
        "tie": "{later} ties with {earlier}: {times}",
        "unresolved": "it is unresolved whether {later} or {earlier} is faster{times}",
    }[verdict]
    figures = f"{speedup.times} ({speedup.range})" if speedup else ""
    if verdict == "unresolved":
        figures = f": {figures}" if figures else ""
    sentence = said.format(later=later.label, earlier=earlier.label, times=figures)
    return VersionVerdict(
        model=group.title,
        batch=group.batch,
        session_id=group.session_id,
        earlier=earlier.label,
        later=later.label,
        verdict=verdict,
        speedup=speedup,
        sentence=f"{group.title} b={group.batch}: {sentence}.",
    )
