"""RTR, ASE and BSR beside throughput, so that nobody ranks on them without it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ngraphbench.analysis.scaling import ORIGINS, TRAP, Scaled, Scaling
from ngraphbench.analysis.tables import Interval
from ngraphbench.report.charts import (
    Axis,
    Chart,
    Line,
    Mark,
    Panel,
    Rule,
    linear_axis,
    log_axis,
    place_axis,
    spelled,
)
from ngraphbench.report.scene import Scene

__all__ = ["scaling_chart"]

METRICS = (("throughput", "T"), ("rtr", "RTR"), ("ase", "ASE"), ("bsr", "BSR"))
LABELS = {
    "throughput": "T, items/s",
    "rtr": "RTR, T(b) / T(b0)",
    "ase": "ASE, RTR over b",
    "bsr": "BSR, ASE over the baseline's",
}


def scaling_chart(scene: Scene) -> Chart | None:
    """Return four panels per model: T, RTR, ASE, BSR; None with fewer than two batch sizes."""
    panels: list[Panel] = []
    shown: set[str] = set()
    usable = [one for one in scene.scalings if not one.reason]
    for title, group in groupby(usable, key=lambda one: one.title):
        found = list(group)
        shown |= {one.label for one in found}
        panels += [_panel(scene, title, found, key) for key, _ in METRICS]
    if not panels:
        return None
    return Chart(
        name="scaling",
        title="What a larger batch gains",
        lead=TRAP,
        panels=tuple(panels),
        series=tuple(label for label in scene.palette.numbers if label in shown),
        notes=tuple(f"{name}: {meaning}." for name, meaning in ORIGINS.items()),
        columns=4,
        heads=("panel", "compiler", "batch", "value"),
    )


def _panel(scene: Scene, title: str, found: Sequence[Scaling], key: str) -> Panel:
    rows = [(one, row, _value(row, key)) for one in found for row in one.rows]
    known = [(one, row, value) for one, row, value in rows if value is not None]
    ends = [end for _, _, value in known for end in (value.estimate, value.low, value.high)]
    name = dict(METRICS)[key]
    return Panel(
        title=f"{name} · {title}" if key != "throughput" else title,
        x=place_axis("batch size", (row.batch for _, row, _ in rows)),
        y=_axis(key, ends),
        marks=tuple(_mark(scene, one, row, value, name) for one, row, value in known),
        lines=tuple(_line(scene, one, key) for one in found),
        rules=(Rule("y", 1.0),) if key != "throughput" else (),
        tags=scene.tags(title),
    )


def _axis(key: str, ends: Sequence[float]) -> Axis:
    if key == "throughput":
        return log_axis(LABELS[key], ends)
    if key == "rtr":
        return log_axis(LABELS[key], [1.0, *ends])
    return linear_axis(LABELS[key], [0.0, 1.0, *ends], zero=True)


def _value(row: Scaled, key: str) -> Interval | None:
    value: Interval | None = getattr(row, key)
    return value


def _line(scene: Scene, one: Scaling, key: str) -> Line:
    values = [(row.batch, _value(row, key)) for row in one.rows]
    points = [(float(batch), value.estimate) for batch, value in values if value is not None]
    return Line(
        points=tuple(points),
        series=one.label,
        style="dashed" if one.label == one.baseline else "solid",
        tags=scene.tags(one.title, one.label),
    )


def _mark(scene: Scene, one: Scaling, row: Scaled, value: Interval, name: str) -> Mark:
    notes = [] if row.paired else ["unpaired: batch sizes of several sessions"]
    notes += ["above 1 is suspicious"] if name == "ASE" and row.suspicious else []
    tail = f"; {'; '.join(notes)}" if notes else ""
    return Mark(
        x=float(row.batch),
        y=value.estimate,
        low=value.low,
        high=value.high,
        series=one.label,
        tip=f"{one.label}, batch {row.batch}: {name} {spelled(value)}{tail}",
        note="; ".join(notes),
        tags=scene.tags(one.title, one.label, row.batch),
    )
