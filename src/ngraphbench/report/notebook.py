"""What a notebook shows of a run and of a chart: nothing fetched, nothing scripted."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from ngraphbench.report.drawing import text
from ngraphbench.report.figures import chart_svg
from ngraphbench.report.wording import MARKS, figure, plus_minus

if TYPE_CHECKING:
    from ngraphbench.analysis.tables import Cell, Group
    from ngraphbench.report.charts import Chart
    from ngraphbench.report.scene import Scene

__all__ = ["chart_html", "run_html"]

ROWS = 60
WIDTH = 520


def chart_html(chart: Chart) -> str:
    """Return a chart as an image, so that its styles stay its own and nothing in it can run."""
    data = base64.b64encode(chart_svg(chart).encode("utf-8")).decode("ascii")
    return (
        f'<figure style="margin:0"><img alt="{text(chart.title)}"'
        f' src="data:image/svg+xml;base64,{data}" style="max-width:100%;width:{WIDTH}px"></figure>'
    )


def run_html(scene: Scene, *, title: str) -> str:
    """Return the verdict of a run, a row per cell (the first sixty), and its speed-ups."""
    from ngraphbench.report.gallery import CHARTS, chart_of
    from ngraphbench.report.opening import opening

    head = opening(scene)
    cells = [(group, cell) for group in scene.evidence.groups for cell in group.cells]
    rows = "".join(_row(group, cell) for group, cell in cells[:ROWS])
    more = f"<p>and {len(cells) - ROWS} more cells</p>" if len(cells) > ROWS else ""
    chart = chart_of(CHARTS["speedup"], scene)
    heads = ("model", "batch", "compiler", "items/s", "±", "against the baseline", "status")
    return (
        f"<div><p><strong>{text(head.lead)}</strong></p><p>{text(head.second)}</p>"
        f"<table><caption>{text(title)}</caption><thead><tr>"
        f"{''.join(f'<th>{text(name)}</th>' for name in heads)}</tr></thead>"
        f"<tbody>{rows}</tbody></table>{more}{chart_html(chart) if chart else ''}</div>"
    )


def _row(group: Group, cell: Cell) -> str:
    rate, speedup = cell.throughput, cell.speedup
    versus = "baseline" if cell.label == group.baseline else ""
    if speedup and not versus:
        versus = f"{MARKS.get(cell.mark, '')} {speedup.times} ({speedup.range})"
    values = (
        *(group.title, group.batch, cell.label),
        *(figure(rate.estimate) if rate else "–", plus_minus(rate) if rate else ""),
        *(versus, " ".join(filter(None, (cell.status, cell.record["reason"])))),
    )
    return f"<tr>{''.join(f'<td>{text(value)}</td>' for value in values)}</tr>"
