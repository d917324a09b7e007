"""Charts as files for papers, without a browser.

SVG needs nothing. PDF and PNG are made of it by vl-convert, which is one wheel with no
libraries of the system's; see ``ngraphbench[report]``.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ngraphbench.errors import NGraphBenchError, SpecError, StoreError
from ngraphbench.report.charts import Chart, Kind
from ngraphbench.report.drawing import Pen, draw, key_shape, shape_definitions, text
from ngraphbench.report.palette import LIGHT, SERIES_LIGHT, Palette
from ngraphbench.store.disk import write_whole
from ngraphbench.store.export import inert

__all__ = ["FORMATS", "chart_csv", "chart_svg", "write_figures"]

FORMATS = ("svg", "pdf", "png")
COLUMN = 252
"""Points of a column of a paper, 3.5 inches or 89 mm: what a figure is wide."""

UNITS = 340
"""Width of one panel in the units it is drawn in; a column's text is then 8 points high."""

PAGE = 640.0
"""Height in points above which panels stand in two columns, over the width of a page."""

GAP = 14
ZOOM = 4
"""Pixels per point of a PNG: 288 a column inch."""

STYLE = (
    "text{{font-family:Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif;fill:{ink}}}"
    ".t{{font-size:12.5px;font-weight:bold}}.a,.k{{font-size:11px}}.a{{fill:{muted}}}"
    ".n{{font-size:11px}}.c{{text-anchor:middle}}.e{{text-anchor:end}}"
    ".g{{stroke:{grid};fill:none}}.x{{stroke:{muted};fill:none}}"
    ".r{{stroke:{muted};stroke-dasharray:3 3;fill:none}}"
    ".w{{fill:none;stroke-width:1.3}}.l{{fill:none;stroke-width:1.7}}.dash{{stroke-dasharray:6 4}}"
)


def chart_svg(chart: Chart) -> str:
    """Return a chart as one SVG that stands alone, as wide as a column or a page of a paper."""
    palette = Palette(chart.palette)
    rows, across = _laid_out(chart, palette)
    legend, legend_height = _legend(chart, palette, across * UNITS + (across - 1) * GAP)
    width = across * UNITS + (across - 1) * GAP
    height = legend_height + sum(high for _, high in rows) + GAP * max(0, len(rows) - 1)
    points = COLUMN if across == 1 else 2 * COLUMN + 12
    placed, top = [], float(legend_height)
    for row, high in rows:
        for i, (drawing, own) in enumerate(row):
            x = i * (UNITS + GAP)
            placed.append(
                drawing.replace(
                    '<svg class="panel',
                    f'<svg x="{x}" y="{top:g}" width="{UNITS}" height="{own:g}" class="panel',
                    1,
                )
            )
        top += high + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{points}" '
        f'height="{points * height / width:.1f}" viewBox="0 0 {width} {height:g}">'
        f"<title>{text(chart.title)}</title><style>{_style()}</style>"
        f"<defs>{shape_definitions()}</defs>"
        f'<rect width="{width}" height="{height:g}" fill="{LIGHT["card"]}"/>'
        f"{legend}{''.join(placed)}</svg>"
    )


def _style() -> str:
    rules = [STYLE.format(**LIGHT)]
    for i, colour in enumerate(SERIES_LIGHT):
        rules.append(f".m.s{i} use{{fill:{colour}}}.m.s{i} .w,.l.s{i}{{stroke:{colour}}}")
        rules.append(
            f".m.s{i}.hollow use,.m.s{i}.knee use,.m.s{i}.failed use"
            f"{{fill:{LIGHT['card']};stroke:{colour};stroke-width:1.6}}"
        )
        rules.append(f".m.s{i}.knee use{{fill:none}}")
    rules.append(f".l.alert{{stroke:{SERIES_LIGHT[2]};stroke-width:2.4}}")
    rules.append(f".n.alert{{fill:{LIGHT['bad']};font-weight:bold}}")
    return "".join(rules)


def _laid_out(
    chart: Chart, palette: Palette
) -> tuple[list[tuple[list[tuple[str, float]], float]], int]:
    """Return rows of drawings with their heights, and how many stand beside each other."""
    pen = Pen(palette, width=UNITS)
    drawn = [(drawing, _height(drawing)) for drawing in (draw(p, pen) for p in chart.panels)]
    alone = sum(high for _, high in drawn) * COLUMN / UNITS
    across = 2 if (chart.columns in (2, 4) and len(drawn) > 1) or alone > PAGE else 1
    rows = [drawn[i : i + across] for i in range(0, len(drawn), across)]
    return [(row, max(high for _, high in row)) for row in rows], across


def _height(drawing: str) -> float:
    box = drawing.split('viewBox="', 1)[1].split('"', 1)[0]
    return float(box.split()[3])


def _legend(chart: Chart, palette: Palette, width: int) -> tuple[str, int]:
    """Return the legend and its height: names one after the other, broken where they must."""
    entries: list[tuple[Kind, int, str]] = [
        ("point", palette.number(label), label) for label in chart.series
    ]
    entries += [(kind, 0, what) for kind, what in chart.keys]
    x, y, parts = 8.0, 14.0, []
    for kind, number, name in entries:
        need = 22 + 6.2 * len(name)
        if x > 8.0 and x + need > width:
            x, y = 8.0, y + 16
        shape = key_shape(kind, number).replace(
            "<svg ", f'<svg x="{x - 8:g}" y="{y - 13:g}" width="18" height="18" ', 1
        )
        parts.append(f'{shape}<text class="k" x="{x + 13:g}" y="{y:g}">{text(name)}</text>')
        x += need
    return "".join(parts), int(y + 12) if entries else 0


def chart_csv(chart: Chart) -> str:
    """Return a chart's values as CSV, a row per mark; no cell can act as a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(chart.table_heads)
    writer.writerows([_cell(value) for value in row] for row in chart.table())
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return inert(value)
    if isinstance(value, float) and not math.isfinite(value):
        return ""
    return value


def write_figures(charts: Iterable[Chart], folder: Path, *, form: str = "svg") -> list[Path]:
    """Return the files written to ``folder``: each chart in ``form``, and its values as CSV.

    Raises SpecError for another format, NGraphBenchError where vl-convert is missing, and
    StoreError for a folder that cannot be written.
    """
    if form not in FORMATS:
        raise SpecError(
            f"A figure cannot be {form!r}.", hint=f"Choose --format from {', '.join(FORMATS)}."
        )
    convert = _converter(form)
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for chart in charts:
            picture, values = folder / f"{chart.name}.{form}", folder / f"{chart.name}.csv"
            write_whole(picture, convert(chart_svg(chart)))
            write_whole(values, chart_csv(chart))
            written += [picture, values]
    except OSError as error:
        raise StoreError(
            f"The figures cannot be written to {folder}: {error.strerror}.",
            reason="write",
            hint="Give another folder with --figures.",
        ) from error
    return written


def _converter(form: str) -> Callable[[str], bytes]:
    if form == "svg":
        return lambda svg: svg.encode("utf-8")
    try:
        import vl_convert
    except ImportError as error:
        raise NGraphBenchError(
            f"A figure as {form} is made by vl-convert, which is not installed here.",
            reason="missing-vl-convert",
            hint="Run: pip install 'ngraphbench[report]', or write --format svg.",
        ) from error
    if form == "pdf":
        return lambda svg: bytes(vl_convert.svg_to_pdf(svg))
    return lambda svg: bytes(vl_convert.svg_to_png(svg, scale=ZOOM))
