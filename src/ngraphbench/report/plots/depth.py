"""Depth scaling: a block repeated, the line through its times, and the speed-up over depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ngraphbench.analysis.depth import DepthFit
from ngraphbench.analysis.depthsets import family
from ngraphbench.analysis.tables import Cell, Group, Interval
from ngraphbench.report.charts import (
    Axis,
    Chart,
    Line,
    Mark,
    Panel,
    Rule,
    Tags,
    linear_axis,
    spelled,
)
from ngraphbench.report.scene import Scene, anchor, tags_of

__all__ = ["depth_chart"]

LEAD = (
    "Milliseconds per call as a block is repeated, with the straight line through them, and the"
    " speed-up over the baseline. A speed-up that grows while the lines stay straight is an"
    " overhead spread over more blocks; a repeat gain above 1 or a bend below 1 with a small p"
    " says that repeated blocks get cheaper."
)


def depth_chart(scene: Scene) -> Chart | None:
    """Return two panels per family of blocks and setting: times with fits, and speed-ups.

    A setting is a batch size, precision, shapes, device and threads: no line joins unlike ones.
    """
    gathered: dict[tuple[object, ...], list[DepthFit]] = {}
    for fit in scene.depths:
        gathered.setdefault((fit.title, *fit.setting), []).append(fit)
    panels = [panel for fits in gathered.values() for panel in _panels(scene, fits)]
    if not panels:
        return None
    shown = {mark.series for panel in panels for mark in panel.marks}
    return Chart(
        name="depth",
        title="Depth",
        lead=LEAD,
        panels=tuple(panels),
        series=tuple(label for label in scene.palette.numbers if label in shown),
        notes=tuple(note for fits in gathered.values() for note in map(_told, fits) if note),
        columns=2,
        heads=("panel", "compiler", "depth", "value"),
    )


def _told(fit: DepthFit) -> str:
    where = f"{fit.name}, batch {fit.batch}, {fit.label}"
    if fit.reason:
        return f"{where}: {fit.reason}."
    parts = []
    if fit.alpha_ms and fit.beta_ms:
        parts.append(f"{spelled(fit.alpha_ms)} ms overhead + {spelled(fit.beta_ms)} ms per block")
    for name, value in (("repeat gain", fit.repeat_gain), ("bend", fit.bend)):
        if value:
            parts.append(f"{name} {spelled(value)}")
    if fit.lack_of_fit is not None:
        parts.append(f"p of a straight line {fit.lack_of_fit:.2g}")
    return f"{where}: {'; '.join(parts)}." if parts else ""


def _panels(scene: Scene, fits: Sequence[DepthFit]) -> list[Panel]:
    first = fits[0]
    cells = [(fit, *found) for fit in fits for found in _cells(scene, fit)]
    times = [(fit, depth, group, cell) for fit, depth, group, cell in cells if cell.latency]
    if not times:
        return []
    depths = sorted({depth for _, depth, _, _ in times})
    axis = Axis("depth, blocks", 0.0, depths[-1] * 1.06, tuple((float(d), str(d)) for d in depths))
    title = f"{first.name}, batch {first.batch}"
    shared = replace(tags_of(times[0][2]), model="")
    ends = [end for _, _, _, cell in times if cell.latency for end in _ends(cell.latency)]
    panels = [
        Panel(
            title=title,
            x=axis,
            y=linear_axis("ms per call", ends, zero=True),
            marks=tuple(_time(fit, depth, group, cell) for fit, depth, group, cell in times),
            lines=tuple(_fitted(fit, depths) for fit in fits if fit.alpha_ms and fit.beta_ms),
            tags=shared,
        )
    ]
    return [*panels, *_speedups(fits, axis, f"Speed-up · {title}", shared)]


def _cells(scene: Scene, fit: DepthFit) -> list[tuple[int, Group, Cell]]:
    """Return the cells that the fit may be made of, with their depths."""
    found = []
    for group in scene.evidence.groups:
        model = group.cells[0].record["case"]["model"]
        depth = model["args"].get("depth")
        if group.setting == fit.setting and depth in fit.depths and family(model) == fit.title:
            found += [(depth, group, cell) for cell in group.cells if cell.label == fit.label]
    return found


def _ends(value: Interval) -> tuple[float, float, float]:
    return value.estimate, value.low, value.high


def _time(fit: DepthFit, depth: int, group: Group, cell: Cell) -> Mark:
    latency = cell.latency
    assert latency is not None
    return Mark(
        x=float(depth),
        y=latency.estimate,
        low=latency.low,
        high=latency.high,
        series=fit.label,
        tip=f"{fit.label}, depth {depth}: {spelled(latency)} ms",
        tags=tags_of(group, fit.label),
        href=anchor(cell),
    )


def _fitted(fit: DepthFit, depths: Sequence[int]) -> Line:
    assert fit.alpha_ms is not None
    assert fit.beta_ms is not None
    alpha, beta = fit.alpha_ms.estimate, fit.beta_ms.estimate
    return Line(
        points=tuple((d, alpha + beta * d) for d in (0.0, float(depths[-1]))),
        series=fit.label,
        style="dashed" if fit.label == fit.baseline else "solid",
    )


def _speedups(fits: Sequence[DepthFit], axis: Axis, title: str, tags: Tags) -> list[Panel]:
    found = [(fit, speed) for fit in fits for speed in fit.speedups]
    if not found:
        return []
    ends = [end for _, speed in found for end in _ends(speed.speedup)]
    return [
        Panel(
            title=title,
            x=axis,
            y=linear_axis("times as fast as the baseline", [1.0, *ends]),
            marks=tuple(
                Mark(
                    x=float(speed.depth),
                    y=speed.speedup.estimate,
                    low=speed.speedup.low,
                    high=speed.speedup.high,
                    series=fit.label,
                    tip=f"{fit.label}, depth {speed.depth}: {speed.speedup.times}"
                    f" ({speed.speedup.range})",
                    tags=replace(tags, compiler=fit.label),
                )
                for fit, speed in found
            ),
            lines=tuple(
                Line(
                    points=tuple((float(s.depth), s.speedup.estimate) for s in fit.speedups),
                    series=fit.label,
                    tags=replace(tags, compiler=fit.label),
                )
                for fit in fits
                if len(fit.speedups) > 1
            ),
            rules=(Rule("y", 1.0),),
            tags=tags,
        )
    ]
