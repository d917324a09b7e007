"""The friction profile: what each larger batch size costs, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ngraphbench.analysis.friction import KNEE, Friction, Step
from ngraphbench.report.charts import Chart, Line, Mark, Panel, Rule, linear_axis, place_axis
from ngraphbench.report.scene import Scene

__all__ = ["friction_chart"]

LEAD = (
    "Between two batch sizes: 0 where more items come for free, 1 where throughput stands still,"
    f" above 1 where it falls. A step surely above {KNEE} is the knee."
)


def friction_chart(scene: Scene) -> Chart | None:
    """Return a panel per model; each step stands at its larger batch size."""
    usable = [one for one in scene.frictions if one.steps]
    panels = [
        _panel(scene, title, list(group))
        for title, group in groupby(usable, key=lambda one: one.title)
    ]
    if not panels:
        return None
    shown = {one.label for one in usable}
    return Chart(
        name="friction",
        title="Friction",
        lead=LEAD,
        panels=tuple(panels),
        series=tuple(label for label in scene.palette.numbers if label in shown),
        heads=("model", "compiler", "to batch", "friction"),
    )


def _panel(scene: Scene, title: str, found: Sequence[Friction]) -> Panel:
    steps = [(one, step) for one in found for step in one.steps]
    places = sorted({b for _, step in steps for b in (step.low_batch, step.high_batch)})
    ends = [e for _, s in steps for e in (s.friction.estimate, s.friction.low, s.friction.high)]
    low, high = min(-0.2, *ends), max(1.2, *ends)
    lines = (
        Line(
            points=tuple((float(s.high_batch), s.friction.estimate) for s in one.steps),
            series=one.label,
            style="dashed" if scene.palette.number(one.label) == 0 else "solid",
            tags=scene.tags(title, one.label),
        )
        for one in found
    )
    return Panel(
        title=title,
        x=place_axis("to batch size", places),
        # One step that the samples say nothing of would flatten all others.
        y=linear_axis("friction", [max(low, -1.0), min(high, 2.5)]),
        marks=tuple(_mark(scene, one, step) for one, step in steps),
        lines=tuple(line for line in lines if len(line.points) > 1),
        rules=(Rule("y", 0.0), Rule("y", KNEE, f"knee {KNEE}")),
        tags=scene.tags(title),
    )


def _mark(scene: Scene, one: Friction, step: Step) -> Mark:
    value = step.friction
    notes = [] if step.paired else ["unpaired"]
    notes += ["a batch size between has no result"] if step.gap else []
    tail = f"; {', '.join(notes)}" if notes else ""
    return Mark(
        x=float(step.high_batch),
        y=value.estimate,
        low=value.low,
        high=value.high,
        series=one.label,
        kind="point" if not notes else "hollow",
        tip=f"{one.label}, batch {step.low_batch} to {step.high_batch}: friction"
        f" {value.estimate:.2f} ({value.low:.2f} to {value.high:.2f}){tail}",
        note=", ".join(notes),
        tags=scene.tags(one.title, one.label, step.high_batch),
    )
