"""Charts as SVG. A drawing says what a thing is by its class; style sheets say how it looks.

Every string goes through ``text``, which escapes it and makes control characters visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from ngraphbench.report.charts import Axis, Kind, Line, Mark, Panel, Rule, Tags
from ngraphbench.report.palette import SHAPES, Palette
from ngraphbench.report.wording import shorten, visible

__all__ = ["Pen", "draw", "key_shape", "shape_definitions", "text", "whisker"]

TITLE = 34
"""Height above the plot: the title and the label of the y axis."""

FOOT = 34
ROW = 11
GLYPH = 6.1
"""Width of a character of the axes' text, roughly."""

FAILED = "M-4-4L4 4M4-4L-4 4"
KNEE = "M-8 0a8 8 0 1 0 16 0a8 8 0 1 0-16 0z"
ENOUGH = "M-1.5-11h3v11h-3z"


def text(value: object) -> str:
    """Return ``value`` as it may stand in markup and in a quoted attribute."""
    return escape(visible(value))


@dataclass(frozen=True, slots=True)
class Pen:
    """How to draw: sizes, styles by label, and what a filter knows things by."""

    palette: Palette
    attributes: Callable[[Tags], str] = lambda _: ""
    width: int = 340
    height: int = 150
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class _Plot:
    """Where a panel's plot lies within its drawing."""

    panel: Panel
    pen: Pen
    left: float
    top: float
    width: float
    height: float
    aside: Mapping[str, float]
    """How far each candidate stands aside, so that intervals do not cover each other."""

    def x(self, value: float) -> float:
        return round(self.left + self.width * self.panel.x.share(value), 1)

    def y(self, value: float) -> float:
        share = self.panel.y.share(value)
        # Categories are read from the top.
        return round(self.top + self.height * (share if self.panel.rows else 1.0 - share), 1)

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return self.left + self.width


def draw(panel: Panel, pen: Pen) -> str:
    """Return one panel as an ``svg`` element of ``pen.width``, its height as it needs."""
    plot = _plot(panel, pen)
    height = plot.bottom + FOOT
    parts = [
        f'<svg class="panel{" alert" if panel.alert else ""}" role="img"'
        f' viewBox="0 0 {pen.width} {height:g}" aria-label="{text(_described(panel))}"'
        f"{pen.attributes(panel.tags)}>",
        f'<text class="t" x="2" y="13">{text(_title(panel, pen))}</text>',
        *_axes(plot),
        *(_rule(plot, rule) for rule in panel.rules),
        *(_line(plot, line) for line in panel.lines),
        *(_mark(plot, mark) for mark in panel.marks),
        *(_end_labels(plot) if panel.end_labels else ()),
        "</svg>",
    ]
    return "".join(parts)


def _described(panel: Panel) -> str:
    count = len(panel.marks)
    return f"{panel.title}: {panel.y.label or 'rows'} against {panel.x.label}, {count} marks"


def _title(panel: Panel, pen: Pen) -> str:
    room = int((pen.width - 6) / (GLYPH + 0.75))
    return _short(panel.title, room)


def _plot(panel: Panel, pen: Pen) -> _Plot:
    longest = max((len(label) for _, label in panel.y.ticks), default=1)
    most = 0.36 * pen.width
    left = min(most, 10 + GLYPH * longest)
    right = 112.0 if panel.end_labels else 14.0
    height = float(panel.rows * ROW + 8 * len(panel.y.ticks)) if panel.rows else float(pen.height)
    width = pen.width - left - right
    return _Plot(panel, pen, left, TITLE, width, height, _aside(panel, pen))


def _aside(panel: Panel, pen: Pen) -> dict[str, float]:
    if panel.rows or panel.end_labels:
        return {}
    here = [label for label in pen.palette.numbers if label in panel.series]
    step = min(4.0, 14.0 / max(1, len(here)))
    return {label: round(step * (i - (len(here) - 1) / 2), 1) for i, label in enumerate(here)}


def _axes(plot: _Plot) -> list[str]:
    panel, parts = plot.panel, []
    most = max(3, int((plot.left - 6) / GLYPH))
    if panel.y.label:
        parts.append(f'<text class="a" x="2" y="27">{text(panel.y.label)}</text>')
    for value, label in panel.y.ticks:
        y = plot.y(value)
        grid = "" if panel.rows else f'<path class="g" d="M{plot.left:g} {y}H{plot.right:g}"/>'
        short = _short(label, most)
        parts.append(
            f'{grid}<text class="a e" x="{plot.left - 6:g}" y="{y + 4:g}">{text(short)}</text>'
        )
    bottom = plot.bottom
    parts.append(f'<path class="x" d="M{plot.left:g} {bottom:g}H{plot.right:g}"/>')
    parts += _x_ticks(plot)
    middle = plot.left + plot.width / 2
    parts.append(
        f'<text class="a c" x="{middle:g}" y="{bottom + 29:g}">{text(panel.x.label)}</text>'
    )
    return parts


def _x_ticks(plot: _Plot) -> list[str]:
    """Return ticks with labels, those left out that would touch the one before."""
    parts, free = [], -100.0
    axis: Axis = plot.panel.x
    names = len(axis.ticks) == 2 and plot.panel.end_labels
    for value, label in axis.ticks:
        x = plot.x(value)
        half = 0.0 if names else len(label) * GLYPH / 2
        if x - half < free:
            continue
        free = x + half + 4
        short = _short(label, 16) if names else label
        grid = f'<path class="g" d="M{x} {plot.top:g}V{plot.bottom:g}"/>'
        anchor = "start" if names and value == axis.ticks[0][0] else "c"
        parts.append(
            f'{grid}<text class="a {anchor}" x="{x}" y="{plot.bottom + 14:g}">{text(short)}</text>'
        )
    return parts


def _short(label: str, width: int) -> str:
    return shorten([visible(label)], width)[visible(label)]


def _rule(plot: _Plot, rule: Rule) -> str:
    if rule.axis == "x":
        x = plot.x(rule.at)
        shape = f'<path class="r" d="M{x} {plot.top:g}V{plot.bottom:g}"/>'
        return shape + _rule_label(rule, x + 3, plot.top - 3)
    y = plot.y(rule.at)
    shape = f'<path class="r" d="M{plot.left:g} {y}H{plot.right:g}"/>'
    return shape + _rule_label(rule, plot.left + 4, y - 3)


def _rule_label(rule: Rule, x: float, y: float) -> str:
    return f'<text class="a" x="{x:g}" y="{y:g}">{text(rule.label)}</text>' if rule.label else ""


def _line(plot: _Plot, line: Line) -> str:
    number = plot.pen.palette.number(line.series)
    aside = plot.aside.get(line.series, 0.0)
    points = "L".join(f"{plot.x(x) + aside:g} {plot.y(y)}" for x, y in line.points)
    classes = f"l s{number}" + {"dashed": " dash", "alert": " alert"}.get(line.style, "")
    return f'<path class="{classes}" d="M{points}"{plot.pen.attributes(line.tags)}/>'


def _mark(plot: _Plot, mark: Mark) -> str:
    number = plot.pen.palette.number(mark.series)
    prefix = plot.pen.prefix
    x, y = plot.x(mark.x) + plot.aside.get(mark.series, 0.0), plot.y(mark.y)
    kind: Kind = mark.kind
    if kind == "failed":
        y = y if plot.panel.rows else plot.bottom - 7
        x = plot.left + 7 if plot.panel.rows else x
    if kind == "enough":
        y = plot.bottom
    name = {"failed": "kx", "knee": "kk", "enough": "ke"}.get(kind, f"k{number}")
    tip = f"<title>{text(mark.tip)}</title>" if mark.tip else ""
    link = f' data-h="{text(mark.href)}"' if mark.href else ""
    return (
        f'<g class="m {kind} s{number}"{link}{plot.pen.attributes(mark.tags)}>{tip}'
        f'{_whisker(plot, mark, x, y)}<use href="#{prefix}{name}" x="{x:g}" y="{y:g}"/></g>'
    )


def _whisker(plot: _Plot, mark: Mark, x: float, y: float) -> str:
    if mark.low is None or mark.high is None:
        return ""
    if plot.panel.value == "x":
        low, high = plot.x(mark.low), plot.x(mark.high)
        return f'<path class="w" d="M{low} {y:g}H{high}"/>'
    low, high = plot.y(mark.low), plot.y(mark.high)
    return f'<path class="w" d="M{x:g} {low}V{high}M{x - 3:g} {low}h6M{x - 3:g} {high}h6"/>'


def _end_labels(plot: _Plot) -> list[str]:
    """Return the lines' names at their right ends, moved apart where they would overlap."""
    named = [line for line in plot.panel.lines if line.label]
    places = sorted((plot.y(line.points[-1][1]), i) for i, line in enumerate(named))
    parts, lowest = [], plot.top - 12.0
    heights = [y for y, _ in places]
    spread = _apart(heights, 13.0, lowest, plot.bottom + 4)
    for (_, i), y in zip(places, spread, strict=True):
        line = named[i]
        name = _short(line.label, 16)
        alert = " alert" if line.style == "alert" else ""
        parts.append(
            f'<text class="n{alert}" x="{plot.right + 10:g}" y="{y + 4:g}"'
            f"{plot.pen.attributes(line.tags)}>{text(name)}</text>"
        )
    return parts


def _apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return rising places moved as little as keeps them ``gap`` apart, from the top down."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap if moved else low))
    over = (moved[-1] - high) if moved else 0.0
    for i in range(len(moved) - 1, -1, -1):
        if over <= 0.0:
            break
        moved[i] -= over
        over = (moved[i - 1] + gap - moved[i]) if i else 0.0
    return moved


def whisker(low: float, high: float, y: float) -> str:
    """Return an interval with its ends, in percent of the width of the drawing it stands in."""
    ends = ((low, high, y, y), (low, low, y - 4, y + 4), (high, high, y - 4, y + 4))
    return "".join(
        f'<line class="whisker" x1="{x1}%" x2="{x2}%" y1="{y1}" y2="{y2}"/>'
        for x1, x2, y1, y2 in ends
    )


def shape_definitions(prefix: str = "") -> str:
    """Return the outlines that drawings of this ``prefix`` refer to."""
    known = {f"k{i}": shape for i, shape in enumerate(SHAPES)}
    known |= {"kx": FAILED, "kk": KNEE, "ke": ENOUGH}
    return "".join(f'<path id="{prefix}{name}" d="{shape}"/>' for name, shape in known.items())


def key_shape(kind: Kind, number: int, prefix: str = "") -> str:
    """Return a small drawing of a mark, for a legend."""
    name = {"failed": "kx", "knee": "kk", "enough": "ke"}.get(kind, f"k{number}")
    return (
        '<svg class="keyshape" viewBox="-9 -9 18 18" aria-hidden="true">'
        f'<g class="m {kind} s{number}"><use href="#{prefix}{name}"/></g></svg>'
    )
