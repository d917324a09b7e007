"""Charts as they stand in the page: drawings, a legend, and the values as a table."""

from __future__ import annotations

from collections.abc import Mapping

from ngraphbench.report.charts import Chart
from ngraphbench.report.drawing import Pen, draw, key_shape, text
from ngraphbench.report.facets import Facets
from ngraphbench.report.palette import Palette
from ngraphbench.report.wording import figure

__all__ = ["chart_html"]

PANELS = 120
"""Panels of one chart that a page shows; more would only be scrolled past."""

SIZES = {4: (266, 140), 2: (390, 165)}
"""Width and height of panels by how many stand beside each other, so that text stays as high."""

VALUES = 400
"""Marks above which the values are left to the CSV that stands beside a figure."""


def chart_html(chart: Chart, palette: Palette, facets: Facets, numbers: Mapping[str, int]) -> str:
    """Return a chart as a ``figure``; ``numbers`` are what a filter knows compilers by."""
    shown = chart.panels[:PANELS]
    beside = 2 if len(shown) <= 2 else chart.columns
    pen = Pen(palette, facets.attributes, *SIZES.get(beside, (340, 150)))
    left_out = chart.left_out + len(chart.panels) - len(shown)
    columns = f" c{beside}" if beside else ""
    notes = list(chart.notes)
    if left_out:
        notes.append(f"{left_out} more panels are in the figures that --figures writes.")
    return "".join(
        (
            f'<figure class="chart" id="chart-{chart.name}" aria-labelledby="name-{chart.name}">',
            f'<figcaption><h3 id="name-{chart.name}">{text(chart.title)}</h3>'
            f'<p class="lead">{text(chart.lead)}</p></figcaption>',
            _legend(chart, palette, numbers),
            f'<div class="panels{columns}">',
            *(draw(panel, pen) for panel in shown),
            "</div>",
            '<p class="nothing muted" hidden>Nothing here matches the filter.</p>',
            *(f'<p class="small muted">{text(note)}</p>' for note in notes),
            _values(chart),
            "</figure>",
        )
    )


def _legend(chart: Chart, palette: Palette, numbers: Mapping[str, int]) -> str:
    entries = []
    for label in chart.series:
        number = f' data-c="{numbers[label]}"' if label in numbers else ""
        shape = key_shape("point", palette.number(label))
        entries.append(f'<li{number}><button type="button">{shape}{text(label)}</button></li>')
    entries += [f"<li>{key_shape(kind, 0)}{text(what)}</li>" for kind, what in chart.keys]
    return f'<ul class="legend">{"".join(entries)}</ul>' if entries else ""


def _values(chart: Chart) -> str:
    rows = chart.table()
    if len(rows) > VALUES:
        return (
            '<p class="small muted">ngb report DIR --figures OUT writes these'
            f" {len(rows):,} values as CSV.</p>"
        )
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in chart.table_heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{_value(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    return (
        "<details><summary>The values as a table</summary>"
        f'<div class="scroll" role="region" tabindex="0" aria-label="Values: {text(chart.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )


def _value(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else figure(value)
    return text(value)
