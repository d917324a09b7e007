"""Throughput as bars with intervals, for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from ngraphbench.analysis.tables import Cell, Evidence, Group
from ngraphbench.report.bars import bar
from ngraphbench.report.wording import figure, shorten, visible

__all__ = ["RATES_MOST", "rate_lines"]

RATES_MOST = 40
"""More bars than fit a screen or two tell nothing at a glance."""
_FIGURE = 8
_LABEL = 22


def rate_lines(evidence: Evidence, *, width: int, indent: int) -> list[Text]:
    """Return a line per measured cell of the run, by model and batch size; none for too many.

    Bars of one model and batch size share a scale; those of others do not.
    """
    groups = [(group, _shown(group)) for group in evidence.groups]
    count = sum(len(cells) for _, cells in groups)
    if not 1 < count <= RATES_MOST:
        return []
    labels = shorten((visible(c.label) for _, cells in groups for c in cells), _LABEL)
    names = max(map(len, labels.values()))
    room = max(8, min(44, width - indent - names - 1 - _FIGURE))
    lines: list[Text] = []
    for group, cells in groups:
        if not cells:
            continue
        title = f"{visible(group.title)}, batch {group.batch}"
        lines.append(Text(title[: width - indent], style="dim"))
        most = max(c.throughput.estimate for c in cells if c.throughput) * 1.1
        lines += [_line(group, cell, labels, most=most, room=room, names=names) for cell in cells]
    return lines


def _shown(group: Group) -> Sequence[Cell]:
    return [cell for cell in group.cells if cell.ranked and cell.throughput]


def _line(
    group: Group, cell: Cell, labels: dict[str, str], *, most: float, room: int, names: int
) -> Text:
    found = cell.throughput
    assert found is not None
    text = Text(f"{labels[visible(cell.label)]:<{names}} ")
    drawn = bar(found.low, found.estimate, found.high, most=most, width=room)
    text.append(drawn, style="dim" if cell.label == group.baseline else "cyan")
    text.append(f"{figure(found.estimate):>{_FIGURE}}")
    return text
