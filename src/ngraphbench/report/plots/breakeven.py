"""How many calls pay for a compiler."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ngraphbench.analysis.breakeven import BreakEven
from ngraphbench.report.charts import Axis, Chart, Mark, Panel, category_axis, log_axis
from ngraphbench.report.plots.costs import rows_of, slot_of
from ngraphbench.report.scene import Scene

__all__ = ["break_even_chart"]

LEAD = (
    "Calls after which a candidate has overtaken the baseline, what its start costs included."
    " Filled: from empty caches; hollow: from filled ones. Log scale; at the left edge it pays at"
    " once, a cross stands for never. Where the interval is open, so is whether it ever pays."
)


def break_even_chart(scene: Scene) -> Chart | None:
    """Return a panel per model, a row per batch size; None where nothing could be told."""
    told = [one for one in scene.break_evens if not one.reason]
    if not told:
        return None
    finite = [
        max(1.0, end)
        for one in told
        if one.calls
        for end in (one.calls.estimate, one.calls.low, one.calls.high)
        if math.isfinite(end)
    ]
    axis = log_axis("calls until it has paid", [1.0, 100.0, *finite])
    by_title: dict[str, list[BreakEven]] = {}
    for one in told:
        by_title.setdefault(one.title, []).append(one)
    panels = tuple(_panel(scene, title, found, axis) for title, found in by_title.items())
    shown = {mark.series for panel in panels for mark in panel.marks}
    never = any(one.never for one in told)
    return Chart(
        name="breakeven",
        title="When a compiler has paid for itself",
        lead=LEAD,
        panels=panels,
        series=tuple(label for label in scene.palette.numbers if label in shown),
        keys=(("failed", "never"),) if never else (),
        heads=("model", "compiler", "calls", "batch"),
    )


def _panel(scene: Scene, title: str, found: Sequence[BreakEven], axis: Axis) -> Panel:
    labels = rows_of(scene, [one.label for one in found])
    batches = sorted({one.batch for one in found})
    marks = [
        _mark(scene, one, slot_of(batches.index(one.batch), one.label, labels), axis)
        for one in found
    ]
    return Panel(
        title=title,
        x=axis,
        y=category_axis("", [f"batch {batch}" for batch in batches]),
        marks=tuple(marks),
        value="x",
        rows=len(batches) * len(labels),
        tags=scene.tags(title),
    )


def _mark(scene: Scene, one: BreakEven, place: float, axis: Axis) -> Mark:
    tags = scene.tags(one.title, one.label, one.batch)
    where = f"{one.label}, batch {one.batch}, {one.start}"
    if one.never or one.calls is None or math.isinf(one.calls.estimate):
        surely = "never" if one.never else "not known to pay"
        return Mark(
            x=axis.high,
            y=place,
            series=one.label,
            kind="failed",
            tip=f"{where}: {surely}",
            note=f"{one.start}, {surely}",
            tags=tags,
        )
    calls = one.calls
    ends = (calls.estimate, calls.low, calls.high)
    shown = ["never" if math.isinf(end) else f"{end:,.0f}" for end in ends]
    return Mark(
        x=calls.estimate,
        y=place,
        low=calls.low,
        high=calls.high,
        series=one.label,
        kind="point" if one.start == "cold" else "hollow",
        tip=f"{where}: {shown[0]} calls ({shown[1]} to {shown[2]})",
        note=one.start,
        tags=tags,
    )
