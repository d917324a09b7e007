"""Throughput against batch size, compiled and not: where it saturates and where its knee is."""

from __future__ import annotations

from collections.abc import Sequence

from ngraphbench.analysis.curves import Curve, Point
from ngraphbench.analysis.friction import Friction
from ngraphbench.report.charts import Chart, Kind, Line, Mark, Panel, log_axis, place_axis, spelled
from ngraphbench.report.scene import Scene, anchor

__all__ = ["throughput_chart"]

LEAD = (
    "Items per second of a typical call, on log scales. The dashed grey line is the baseline."
    " What failed or was refused stands as a cross on the axis, at the batch size it was asked"
    " for."
)
KEYS: tuple[tuple[Kind, str], ...] = (
    ("knee", "knee: from here on a larger batch gains next to nothing"),
    ("enough", "smallest batch size with 95 % of the highest throughput"),
    ("failed", "no result"),
)


def throughput_chart(scene: Scene) -> Chart | None:
    """Return a panel per model with a line per candidate; None where nothing was measured."""
    by_title = by_model(scene.curves)
    known = {(one.title, one.label, one.device): one for one in scene.frictions}
    panels = [
        _panel(scene, title, found, known)
        for title, found in by_title.items()
        if any(curve.measured for curve in found) and len(found[0].points) > 1
    ]
    if not panels:
        return None
    used = {mark.kind for panel in panels for mark in panel.marks}
    shown = {mark.series for panel in panels for mark in panel.marks}
    return Chart(
        name="throughput",
        title="Throughput against batch size",
        lead=LEAD,
        panels=tuple(panels),
        series=tuple(label for label in scene.palette.numbers if label in shown),
        keys=tuple((kind, what) for kind, what in KEYS if kind in used),
        heads=("model", "compiler", "batch", "items/s"),
    )


def by_model(found: Sequence[Curve]) -> dict[str, list[Curve]]:
    """Return curves by the title of their model, in order."""
    gathered: dict[str, list[Curve]] = {}
    for curve in found:
        gathered.setdefault(curve.title, []).append(curve)
    return gathered


def _panel(
    scene: Scene,
    title: str,
    found: Sequence[Curve],
    known: dict[tuple[str, str, str], Friction],
) -> Panel:
    rates = [p.throughput for curve in found for p in curve.measured]
    ends = [end for rate in rates if rate for end in (rate.estimate, rate.low, rate.high)]
    lines: list[Line] = []
    marks: list[Mark] = []
    for curve in sorted(found, key=lambda curve: curve.label != curve.baseline):
        lines.append(_line(scene, curve))
        marks += [_mark(scene, curve, point) for point in curve.points]
        friction = known.get((curve.title, curve.label, curve.device))
        marks += _places(scene, curve, friction) if friction else []
    return Panel(
        title=title,
        x=place_axis("batch size", (p.batch for curve in found for p in curve.points)),
        y=log_axis("items/s", ends),
        marks=tuple(marks),
        lines=tuple(line for line in lines if len(line.points) > 1),
        tags=scene.tags(title),
    )


def _line(scene: Scene, curve: Curve) -> Line:
    points = [(float(p.batch), p.throughput.estimate) for p in curve.measured if p.throughput]
    return Line(
        points=tuple(points),
        series=curve.label,
        style="dashed" if curve.label == curve.baseline else "solid",
        tags=scene.tags(curve.title, curve.label),
    )


def _mark(scene: Scene, curve: Curve, point: Point) -> Mark:
    tags = scene.tags(curve.title, curve.label, point.batch)
    where, rate = f"{curve.label}, batch {point.batch}", point.throughput
    if rate is None or point.cell is None:
        return Mark(
            x=float(point.batch),
            y=0.0,
            series=curve.label,
            kind="failed",
            tip=f"{where}: {point.status}",
            note=point.status,
            tags=tags,
        )
    tip = f"{where}: {spelled(rate, '/s')}"
    if point.flags:
        tip += f"; {', '.join(point.flags)}"
    return Mark(
        x=float(point.batch),
        y=rate.estimate,
        low=rate.low,
        high=rate.high,
        series=curve.label,
        tip=tip,
        tags=tags,
        href=anchor(point.cell),
    )


def _places(scene: Scene, curve: Curve, friction: Friction) -> list[Mark]:
    """Return the knee and the batch size that is enough, where they are known."""
    marks = []
    rates = {p.batch: p.throughput for p in curve.measured}
    knee = rates.get(friction.knee) if friction.knee is not None else None
    if friction.knee is not None and knee is not None:
        between = "" if friction.knee == friction.knee_before else f" to {friction.knee_before}"
        marks.append(
            Mark(
                x=float(friction.knee),
                y=knee.estimate,
                series=curve.label,
                kind="knee",
                tip=f"{curve.label}: knee at batch {friction.knee}{between}",
                note="knee",
                tags=scene.tags(curve.title, curve.label, friction.knee),
            )
        )
    spot = friction.saturation
    if spot is not None and spot.throughput is not None:
        rising = ", still rising" if spot.rising else ""
        marks.append(
            Mark(
                x=float(spot.batch),
                y=spot.throughput.estimate,
                series=curve.label,
                kind="enough",
                note="95 % of the highest",
                tip=f"{curve.label}: 95 % of its highest, {spelled(spot.throughput, '/s')},"
                f" from batch {spot.batch} on (surely {spot.earliest} to {spot.latest}){rising}",
                tags=scene.tags(curve.title, curve.label, spot.batch),
            )
        )
    return marks
