"""What a chart shows, before anybody draws it: plain values in the units of its axes.

A chart is panels that share a legend. The page, figures for papers and notebooks draw the
same chart, and its table is what stands in the CSV beside a figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ngraphbench.analysis.tables import Interval
from ngraphbench.report.wording import figure

__all__ = [
    "Axis",
    "Chart",
    "Kind",
    "Line",
    "Mark",
    "Panel",
    "Rule",
    "Tags",
    "amount",
    "category_axis",
    "linear_axis",
    "log_axis",
    "place_axis",
    "spelled",
]

FINEST = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
"""Ticks of a decade where less than one is shown."""

Kind: TypeAlias = Literal["point", "hollow", "failed", "knee", "enough"]


@dataclass(frozen=True, slots=True)
class Tags:
    """What a filter hides it by; an empty one belongs to all."""

    model: str = ""
    compiler: str = ""
    device: str = ""
    batch: str = ""
    shape: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One value. ``low`` and ``high`` lie on the panel's value axis.

    ``kind``: ``point``; ``hollow`` is the lesser of two states; ``failed`` has no value and
    stands on the edge; ``knee`` rings a point; ``enough`` marks a place on the x axis.
    """

    x: float
    y: float
    series: str
    kind: Kind = "point"
    low: float | None = None
    high: float | None = None
    tip: str = ""
    note: str = ""
    tags: Tags = Tags()
    href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line through places; ``alert`` draws attention, ``label`` stands at its last place."""

    points: tuple[tuple[float, float], ...]
    series: str
    style: Literal["solid", "dashed", "alert"] = "solid"
    label: str = ""
    tags: Tags = Tags()


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across the panel at a value that means something."""

    axis: Literal["x", "y"]
    at: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from ``low`` to ``high``; ``ticks`` are values with their labels."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False
    ends: tuple[float, float] = field(init=False, repr=False, compare=False)
    """``low`` and ``high`` on the scale that shares are taken of: their logs, or themselves."""

    def __post_init__(self) -> None:
        ends = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        object.__setattr__(self, "ends", ends)

    def name(self, value: float) -> str:
        """Return the label of the tick that is nearest to a value, of an axis of categories."""
        return min(self.ticks, key=lambda tick: abs(tick[0] - value))[1]

    def share(self, value: float) -> float:
        """Return where a value lies, 0 at the low end and 1 at the high end, kept inside."""
        if self.log:
            if value <= 0.0:
                return 0.0
            value = math.log(value)
        if math.isnan(value):
            return 0.0
        low, high = self.ends
        return min(1.0, max(0.0, (value - low) / (high - low)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot. ``value`` is the axis that intervals lie on; ``rows`` makes y categories."""

    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...] = ()
    lines: tuple[Line, ...] = ()
    rules: tuple[Rule, ...] = ()
    value: Literal["x", "y"] = "y"
    rows: int = 0
    end_labels: bool = False
    alert: bool = False
    tags: Tags = Tags()
    series: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        drawn: list[Mark | Line] = [*self.marks, *self.lines]
        object.__setattr__(self, "series", frozenset(one.series for one in drawn))

    def places(self, mark: Mark) -> tuple[float | str | None, float | str | None]:
        """Return where a mark stands, categories by name, None where a failure has no value."""
        lacking = mark.kind in ("failed", "enough")
        if self.rows:
            return None if lacking else mark.x, self.y.name(mark.y)
        x = self.x.name(mark.x) if self.end_labels else mark.x
        return x, None if lacking else mark.y


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Panels about one idea. ``series`` are the labels of its legend, ``columns`` how many
    panels belong beside each other (0: as many as fit)."""

    name: str
    title: str
    lead: str
    panels: tuple[Panel, ...]
    series: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    keys: tuple[tuple[Kind, str], ...] = ()
    columns: int = 0
    heads: tuple[str, str, str, str] = ("model", "compiler", "x", "y")
    left_out: int = 0
    palette: dict[str, int] = field(default_factory=dict)

    @property
    def table_heads(self) -> tuple[str, ...]:
        """The heads of ``table``."""
        return (*self.heads, "low", "high", "note")

    def table(self) -> list[tuple[Any, ...]]:
        """Return a row per mark: panel, series, x, y, low, high, note."""
        return [
            (
                panel.title,
                mark.series,
                *panel.places(mark),
                mark.low,
                mark.high,
                mark.note or ("" if mark.kind == "point" else mark.kind),
            )
            for panel in self.panels
            for mark in panel.marks
        ]

    def to_svg(self) -> str:
        """Return the chart as one SVG that stands alone, sized for a column of a paper."""
        from ngraphbench.report.figures import chart_svg

        return chart_svg(self)

    def _repr_html_(self) -> str:
        from ngraphbench.report.notebook import chart_html

        return chart_html(self)


def amount(value: float, ending: str = "") -> str:
    """Return a value as an axis shows it: ``1,000``, ``0.5``, without needless digits."""
    if value == 0.0:
        return f"0{ending}"
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return text + ending


def spelled(value: Interval | None, unit: str = "") -> str:
    """Return an estimate with its interval for people, such as ``63.2 (61.0 to 65.4)/s``."""
    if value is None:
        return "–"
    low, estimate, high = (figure(x) for x in (value.low, value.estimate, value.high))
    return f"{estimate}{unit} ({low} to {high})"


def _finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def log_axis(label: str, values: Iterable[float | None], *, ending: str = "") -> Axis:
    """Return a logarithmic axis that holds ``values`` that are above 0, ticks at 1, 2, 5."""
    known = [value for value in _finite(values) if value > 0.0] or [1.0, 10.0]
    low, high = min(known), max(known)
    margin = max(1.06, (high / low) ** 0.05)
    low, high = low / margin, high * margin
    if high / low < 2.0:
        middle = math.sqrt(low * high)
        low, high = min(low, middle / 1.45), max(high, middle * 1.45)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    decades = math.log10(high / low)
    steps: tuple[float, ...] = (1.0,)
    for most, finer in ((2.6, (1.0, 3.0)), (1.6, (1.0, 2.0, 5.0)), (0.7, FINEST)):
        steps = finer if decades < most else steps
    every = max(1, math.ceil(decades / 5)) if len(steps) == 1 else 1
    ticks = [step * 10.0**power for power in powers if power % every == 0 for step in steps]
    kept = tuple((tick, amount(tick, ending)) for tick in ticks if low <= tick <= high)
    return Axis(label, low, high, kept, log=True)


def linear_axis(label: str, values: Iterable[float | None], *, zero: bool = False) -> Axis:
    """Return a linear axis that holds ``values``, with about five round ticks."""
    known = _finite(values) or [0.0, 1.0]
    low, high = min(known), max(known)
    if zero:
        low, high = min(0.0, low), max(0.0, high)
    span = (high - low) or abs(high) or 1.0
    margin = 0.06 * span
    low, high = low - (0.0 if zero and low == 0.0 else margin), high + margin
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(k for k in (1.0, 2.0, 2.5, 5.0, 10.0) if (high - low) / (step * k) <= 5.5)
    first = math.ceil(low / step)
    ticks = [round(step * i, 12) for i in range(first, math.floor(high / step) + 1)]
    return Axis(label, low, high, tuple((tick, amount(tick)) for tick in ticks))


def place_axis(label: str, places: Iterable[int]) -> Axis:
    """Return a logarithmic axis whose ticks are ``places``, such as the batch sizes measured."""
    known = sorted(set(places)) or [1]
    low, high = float(known[0]), float(known[-1])
    margin = max(1.12, (high / low) ** 0.05)
    every = math.ceil(len(known) / 9)
    ticks = tuple((float(place), f"{place:,}") for place in known[::every])
    return Axis(label, low / margin, high * margin, ticks, log=True)


def category_axis(label: str, names: Sequence[str]) -> Axis:
    """Return an axis with one place per name: 0, 1, 2 ..."""
    ticks = tuple((float(i), name) for i, name in enumerate(names))
    return Axis(label, -0.5, len(names) - 0.5, ticks)
