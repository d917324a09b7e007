"""Which model is faster, and does a compiler change that: slopes that cross are reversals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ngraphbench.analysis.reversal import Reversal, comparable
from ngraphbench.analysis.tables import Evidence, Group
from ngraphbench.report.charts import (
    Axis,
    Chart,
    Line,
    Mark,
    Panel,
    log_axis,
    spelled,
)
from ngraphbench.report.scene import Scene, anchor, tags_of

__all__ = ["order_chart"]

LEAD = (
    "Throughput of each model under the baseline and under a compiler. Lines that cross are"
    " models that swap places; orange where intervals resolve it. Log scale."
)
PANELS = 18
MODELS = 12


def order_chart(scene: Scene) -> Chart | None:
    """Return a panel per compiler, batch size and session with two models or more in it.

    Those with a resolved reversal come first, as orders do.
    """
    scene = scene.newest
    swapped: dict[tuple[str, str], set[str]] = {}
    places: dict[tuple[str, str, int], None] = {}
    for order in scene.orders:
        if not order.session_id:
            continue
        places[order.session_id, order.compiler, order.batch] = None
        if order.verdict == "reversed":
            _note_swap(swapped, order)
    groups = _by_place(scene.evidence)
    panels = [
        panel
        for session, compiler, batch in places
        for panel in _panels(scene, groups.get((session, batch), []), compiler, swapped)
    ]
    if not panels:
        return None
    panels.sort(key=lambda panel: not panel.alert)
    shown = {mark.series for panel in panels for mark in panel.marks}
    return Chart(
        name="order",
        title="Order of the models",
        lead=LEAD,
        panels=tuple(panels[:PANELS]),
        series=tuple(label for label in scene.palette.numbers if label in shown),
        left_out=max(0, len(panels) - PANELS),
        heads=("panel", "compiler", "side", "items/s"),
    )


def _note_swap(swapped: dict[tuple[str, str], set[str]], order: Reversal) -> None:
    key = (order.session_id, f"{order.compiler}\0{order.batch}\0{order.precision}")
    swapped.setdefault(key, set()).update((order.model_a, order.model_b))


def _by_place(evidence: Evidence) -> dict[tuple[str, int], list[Group]]:
    found: dict[tuple[str, int], list[Group]] = {}
    for group in evidence.groups:
        found.setdefault((group.session_id, group.batch), []).append(group)
    return found


def _panels(
    scene: Scene,
    groups: Sequence[Group],
    compiler: str,
    swapped: dict[tuple[str, str], set[str]],
) -> list[Panel]:
    alike: dict[tuple[object, ...], list[Group]] = {}
    for group in groups:
        cells = comparable(group)
        if compiler in cells and group.baseline in cells and compiler != group.baseline:
            alike.setdefault(group.setting, []).append(group)
    return [_panel(scene, found, compiler, swapped) for found in alike.values() if len(found) > 1]


def _panel(
    scene: Scene,
    groups: Sequence[Group],
    compiler: str,
    swapped: dict[tuple[str, str], set[str]],
) -> Panel:
    first = groups[0]
    key = (first.session_id, f"{compiler}\0{first.batch}\0{first.precision}")
    alert = swapped.get(key, set()) & {group.title for group in groups}
    chosen = sorted(groups, key=lambda group: group.title not in alert)[:MODELS]
    lines, marks, rates = [], [], []
    for group in chosen:
        cells = comparable(group)
        pair = (cells[group.baseline], cells[compiler])
        points = []
        for side, cell in enumerate(pair):
            rate = cell.throughput
            if rate is None:
                continue
            rates.append(rate)
            points.append((float(side), rate.estimate))
            marks.append(
                Mark(
                    x=float(side),
                    y=rate.estimate,
                    low=rate.low,
                    high=rate.high,
                    series=cell.label,
                    tip=f"{group.title}, batch {group.batch}, {cell.label}: {spelled(rate, '/s')}",
                    note=group.title,
                    tags=tags_of(group),
                    href=anchor(cell),
                )
            )
        lines.append(
            Line(
                points=tuple(points),
                series=first.baseline,
                label=group.title,
                style="alert" if group.title in alert else "solid",
                tags=tags_of(group),
            )
        )
    ends = [end for rate in rates for end in (rate.estimate, rate.low, rate.high)]
    tags = tags_of(first, compiler)
    return Panel(
        title=f"{compiler}, batch {first.batch}",
        x=Axis("", -0.12, 1.12, ((0.0, first.baseline), (1.0, compiler))),
        y=log_axis("items/s", ends),
        marks=tuple(marks),
        lines=tuple(line for line in lines if len(line.points) > 1),
        end_labels=True,
        alert=bool(alert),
        tags=replace(tags, model=""),
    )
