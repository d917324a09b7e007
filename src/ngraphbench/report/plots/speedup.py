"""Speed-up over the baseline: every candidate of every model and batch size at a glance."""

from __future__ import annotations

from collections.abc import Sequence

from ngraphbench.analysis.tables import Cell, Group
from ngraphbench.report.charts import (
    Axis,
    Chart,
    Kind,
    Mark,
    Panel,
    Rule,
    category_axis,
    log_axis,
)
from ngraphbench.report.plots.costs import rows_of, slot_of
from ngraphbench.report.scene import Scene, anchor, tags_of
from ngraphbench.report.wording import figure

__all__ = ["speedup_chart"]

LEAD = (
    "How many times as fast as the baseline, from rounds measured side by side. A line is the"
    " interval; where it crosses 1x, nothing is claimed. Log scale."
)

KEYS: tuple[tuple[Kind, str], ...] = (
    ("hollow", "hollow: a tie, unresolved or unstable"),
    ("failed", "no result, or not ranked"),
)


def speedup_chart(scene: Scene) -> Chart | None:
    """Return the speed-ups as recorded, a panel per model and a row per batch size."""
    by_title: dict[str, list[Group]] = {}
    for group in scene.evidence.groups:
        by_title.setdefault(group.title, []).append(group)
    ratios = [cell.speedup for cell in scene.evidence.cells if cell.speedup]
    if not ratios:
        return None
    ends = [end for ratio in ratios for end in (ratio.estimate, ratio.low, ratio.high)]
    axis = log_axis("times as fast as the baseline", [1.0, *ends], ending="x")
    panels = [_panel(scene, title, groups, axis) for title, groups in by_title.items()]
    shown = {mark.series for panel in panels for mark in panel.marks}
    used = {mark.kind for panel in panels for mark in panel.marks}
    return Chart(
        name="speedup",
        title="Speed-up over the baseline",
        lead=LEAD,
        panels=tuple(panel for panel in panels if panel.marks),
        series=tuple(label for label in scene.palette.numbers if label in shown),
        keys=tuple((kind, what) for kind, what in KEYS if kind in used),
        heads=("model", "compiler", "speed-up", "batch"),
    )


def _panel(scene: Scene, title: str, groups: Sequence[Group], axis: Axis) -> Panel:
    rivals = [(row, g, cell) for row, g in enumerate(groups) for cell in g.cells]
    rivals = [(row, g, cell) for row, g, cell in rivals if cell.label != g.baseline]
    labels = rows_of(scene, [cell.label for _, _, cell in rivals])
    marks = [_mark(g, cell, slot_of(row, cell.label, labels)) for row, g, cell in rivals]
    return Panel(
        title=title,
        x=axis,
        y=category_axis("", [f"batch {group.batch}" for group in groups]),
        marks=tuple(marks),
        rules=(Rule("x", 1.0),),
        value="x",
        rows=len(groups) * len(labels),
        tags=tags_of(groups[0], batch=False),
    )


def _mark(group: Group, cell: Cell, place: float) -> Mark:
    tags, speedup = tags_of(group, cell.label), cell.speedup
    where = f"{cell.label}, batch {group.batch}"
    if speedup is None or cell.partly_compiled:
        why = "only partly compiled" if cell.partly_compiled else cell.record["reason"]
        note = f"{cell.status} {why}".strip()
        return Mark(
            x=1.0,
            y=place,
            series=cell.label,
            kind="failed",
            tip=f"{where}: {note}",
            note=note,
            tags=tags,
            href=anchor(cell),
        )
    tip = f"{where}: {speedup.times} ({speedup.range}) against {group.baseline}, {cell.mark}"
    if cell.throughput:
        tip += f"; {figure(cell.throughput.estimate)} items/s"
    return Mark(
        x=speedup.estimate,
        y=place,
        series=cell.label,
        low=speedup.low,
        high=speedup.high,
        kind="point" if cell.mark in ("faster", "slower") else "hollow",
        tip=tip,
        note=cell.mark,
        tags=tags,
        href=anchor(cell),
    )
