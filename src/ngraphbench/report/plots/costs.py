"""What a start costs, with empty and with filled caches."""

from __future__ import annotations

from collections.abc import Sequence

from ngraphbench.analysis.breakeven import COLD, WARM
from ngraphbench.analysis.tables import Cell, Group
from ngraphbench.report.charts import Axis, Chart, Mark, Panel, category_axis, log_axis
from ngraphbench.report.scene import Scene, anchor, tags_of
from ngraphbench.report.wording import quantity
from ngraphbench.types import Json

__all__ = ["cost_chart", "rows_of", "slot_of"]

LEAD = (
    "Seconds until the second call: import, tuning, compile, load the inputs, first call. Filled:"
    " from empty caches; hollow: from filled ones. Log scale. An export to ONNX is not in it."
)
STARTS = (("cold", "compile_cold_s", COLD), ("warm", "compile_warm_s", WARM))


def cost_chart(scene: Scene) -> Chart | None:
    """Return a panel per model, a row per batch size; None where no compile was timed."""
    by_title: dict[str, list[Group]] = {}
    for group in scene.evidence.groups:
        by_title.setdefault(group.title, []).append(group)
    seconds = [
        total
        for cell in scene.evidence.cells
        for _, needed, keys in STARTS
        if (total := _total(cell.record["costs"], needed, keys)) is not None
    ]
    if not seconds:
        return None
    axis = log_axis("seconds before the second call", seconds)
    panels = [_panel(scene, title, groups, axis) for title, groups in by_title.items()]
    shown = {mark.series for panel in panels for mark in panel.marks}
    return Chart(
        name="costs",
        title="What a start costs",
        lead=LEAD,
        panels=tuple(panel for panel in panels if panel.marks),
        series=tuple(label for label in scene.palette.numbers if label in shown),
        heads=("model", "compiler", "seconds", "batch"),
    )


def _total(costs: Json, needed: str, keys: Sequence[str]) -> float | None:
    if costs.get(needed) is None:
        return None
    return sum(float(costs.get(key) or 0.0) for key in keys)


def rows_of(scene: Scene, labels: Sequence[str]) -> list[str]:
    """Return labels in the order in which they stand within a row, everywhere alike."""
    wanted = set(labels)
    return [label for label in scene.palette.numbers if label in wanted]


def slot_of(row: int, label: str, labels: Sequence[str]) -> float:
    """Return the place of a label within row ``row`` of a panel."""
    step = 0.8 / max(1, len(labels))
    return row + step * (labels.index(label) - (len(labels) - 1) / 2)


def _panel(scene: Scene, title: str, groups: Sequence[Group], axis: Axis) -> Panel:
    labels = rows_of(scene, [cell.label for group in groups for cell in group.cells])
    marks = [
        mark
        for row, group in enumerate(groups)
        for cell in group.cells
        for mark in _marks(group, cell, slot_of(row, cell.label, labels))
    ]
    return Panel(
        title=title,
        x=axis,
        y=category_axis("", [f"batch {group.batch}" for group in groups]),
        marks=tuple(marks),
        value="x",
        rows=len(groups) * len(labels),
        tags=tags_of(groups[0], batch=False),
    )


def _marks(group: Group, cell: Cell, place: float) -> list[Mark]:
    costs, marks = cell.record["costs"], []
    for start, needed, keys in STARTS:
        total = _total(costs, needed, keys)
        if total is None or total <= 0.0:
            continue
        # Only who searches has a cost of tuning.
        told = [key for key in keys if key in costs]
        parts = [f"{key.removesuffix('_s')} {quantity(key, costs[key])}" for key in told]
        marks.append(
            Mark(
                x=total,
                y=place,
                series=cell.label,
                kind="point" if start == "cold" else "hollow",
                tip=f"{cell.label}, batch {group.batch}, {start}: {quantity('_s', total)}"
                f" ({', '.join(parts)})",
                note=start,
                tags=tags_of(group, cell.label),
                href=anchor(cell),
            )
        )
    return marks
