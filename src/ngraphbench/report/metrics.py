"""The metrics of a run on a terminal: what batches, depth and models do to compilers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ngraphbench.analysis.breakeven import BreakEven
from ngraphbench.analysis.depth import DepthFit
from ngraphbench.analysis.friction import Friction
from ngraphbench.analysis.metrics import Metrics, Order
from ngraphbench.analysis.ranking import Ranking
from ngraphbench.analysis.scaling import ORIGINS, TRAP, Scaled, Scaling
from ngraphbench.analysis.scores import Score, SpeedupMean
from ngraphbench.analysis.tables import Interval, join
from ngraphbench.report.wording import figure, shorten, visible

__all__ = ["print_metrics"]

NONE = "–"
ORDERS_SHOWN = 12
SCORES_AT = (-5, -3, -1, 0, 1, 3)


def print_metrics(console: Console, found: Metrics) -> None:
    """Print every metric that the run has; what it has not is left out."""
    if found.untrusted:
        console.print(Text("A session failed its A/A control: trust none of it.", style="red"))
    if found.flags:
        console.print(Text(visible(f"Session flags: {', '.join(found.flags)} (see `ngb show`).")))
    several = [one for one in found.scaling if len(one.rows) > 1]
    if several:
        _section(console, "Over batch sizes", _scaling(several, found.friction))
    if found.break_even:
        _section(console, "Break-even", _break_even(found.break_even))
    if found.depth:
        _section(console, "Over depth", [*_depth(found.depth), *_depth_notes(found.depth)])
    if found.rankings:
        _section(console, "Order of the models", _orders(found))
    if found.changes:
        _section(console, "The best compiler changes", _changes(found))
    if found.speedups:
        means = [_means(found.speedups), *_scores(found.scores)]
        _section(console, "Over models", means)


def _section(console: Console, title: str, lines: Iterable[RenderableType]) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    for line in lines:
        inner = Text(visible(line)) if isinstance(line, str) else line
        console.print(Padding(inner, (0, 0, 0, 2), expand=False))


def _table(*heads: str, left: int = 1) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for i, head in enumerate(heads):
        # A figure that is cut says something else: rather break it over two lines.
        table.add_column(head, justify="left" if i < left else "right", overflow="fold")
    return table


def _add(table: Table, *cells: str) -> None:
    table.add_row(*(Text(visible(cell)) for cell in cells))


def _ratio(value: Interval | None) -> str:
    """Return a ratio with half its interval, such as ``0.39 ±3%``."""
    if value is None:
        return NONE
    if value.low == value.high:
        return f"{value.estimate:.3g}"
    percent = value.half_percent
    half = f"{percent:.0f}" if percent < 100 else ">99"
    return f"{value.estimate:.3g} ±{half}%"


def _span(value: Interval | None, digits: int = 3) -> str:
    """Return an estimate with its interval, such as ``1.05 (0.98-1.13)``."""
    if value is None:
        return NONE
    low, estimate, high = (f"{x:.{digits}g}" for x in (value.low, value.estimate, value.high))
    return f"{estimate} ({low} to {high})"


def _scaling(found: Sequence[Scaling], profiles: Sequence[Friction]) -> list[RenderableType]:
    lines: list[RenderableType] = []
    labels = shorten((visible(one.label) for one in found), 22)
    steps = {
        (one.title, one.label, step.high_batch): step.friction
        for one in profiles
        for step in one.steps
    }
    for title, group in groupby(found, key=lambda one: one.title):
        table = _table("compiler", "batch", "b/L /s", "RTR", "ASE", "BSR", "friction")
        for one in group:
            table.add_section()
            for i, row in enumerate(one.rows):
                step = steps.get((one.title, one.label, row.batch))
                name = labels[visible(one.label)] if i == 0 else ""
                _add(table, name, str(row.batch), *_scaled(row), _friction(step))
        lines += [Text(visible(title), style="italic"), table]
    knees = {(one.title, one.label): _knee(one) for one in profiles}
    lines += [_scaling_note(one, labels, knees[one.title, one.label]) for one in found]
    lines += [f"{name}: {meaning}." for name, meaning in ORIGINS.items()]
    typical = (
        "b/L: items per second of a typical call. Ratios are of paired rounds, and need not be"
        " the quotient of two rows."
    )
    return [*lines, typical, TRAP]


def _scaled(row: Scaled) -> tuple[str, ...]:
    if row.throughput is None:
        return row.status, NONE, NONE, NONE
    mark = "!" if row.suspicious else "" if row.paired else "~"
    flags = "".join(f" {flag}" for flag in row.flags)
    rate = figure(row.throughput.estimate) + flags
    return rate, _ratio(row.rtr), _ratio(row.ase) + mark, _ratio(row.bsr)


def _friction(step: Interval | None) -> str:
    """Friction may be 0, so that its interval is shown as it is, not in percent."""
    if step is None:
        return ""
    return f"{step.estimate:.2f} ±{(step.high - step.low) / 2:.2f}"


def _scaling_note(one: Scaling, labels: dict[str, str], knee: str) -> str:
    name = f"{one.title}, {labels[visible(one.label)]}"
    beyond = f", {one.censored} beyond {one.largest}" if one.censored else ""
    text = f"{name}: {one.coverage} batch sizes{beyond}"
    if one.reason:
        return f"{text}; two are needed."
    summary = one.summary
    if any(not row.paired for row in one.rows):
        text += "; ~ unpaired: batch sizes of several sessions"
    if any(row.suspicious for row in one.rows):
        text += "; ! ASE above 1 is suspicious"
    if summary is None:
        return f"{text}; no common grid with others; {knee}."
    return (
        f"{text}; mean over batches {summary.grid[0]} to {summary.grid[-1]}, relative to"
        f" {summary.base}: RTR {_ratio(summary.mean_rtr)}, ASE {_ratio(summary.mean_ase)},"
        f" BSR {_ratio(summary.mean_bsr)}; {knee}."
    )


def _knee(one: Friction) -> str:
    spot = one.saturation
    if spot is None:
        return "no saturation known"
    knee = "no knee seen"
    if one.knee is not None:
        between = "" if one.knee == one.knee_before else f" to {one.knee_before}"
        knee = f"knee at batch {one.knee}{between}"
    rate = figure(spot.throughput.estimate) if spot.throughput else NONE
    sure = "" if spot.earliest == spot.latest else f" (surely {spot.earliest} to {spot.latest})"
    text = f"{knee}, 95 % of the highest, {rate}/s, from batch {spot.batch} on{sure}"
    return f"{text}, still rising" if spot.rising else text


def _break_even(found: Sequence[BreakEven]) -> list[str]:
    lines = []
    for (title, label, batch), group in groupby(
        found, key=lambda one: (one.title, one.label, one.batch)
    ):
        starts = list(group)
        parts = [f"{one.start} {_pays(one)}" for one in starts if not one.reason]
        told = "; ".join(parts) or f"not known: {starts[0].reason}"
        lines.append(f"{title}, batch {batch}, {label}: {told}.")
    return [*lines, "Calls until it has overtaken its baseline, without the export to ONNX."]


def _pays(one: BreakEven) -> str:
    if one.never or one.calls is None:
        return "never"
    if one.calls.high == 0.0:
        return "at once"
    low, estimate, high = (_count(x) for x in (one.calls.low, one.calls.estimate, one.calls.high))
    return f"{estimate} calls ({low} to {high})"


def _count(calls: float) -> str:
    return "never" if math.isinf(calls) else f"{calls:,.0f}"


def _depth(found: Sequence[DepthFit]) -> list[RenderableType]:
    lines: list[RenderableType] = []
    labels = shorten((visible(fit.label) for fit in found), 12)
    heads = ("alpha ms", "beta ms", "bend", "p", "S/x2", "repeat")
    for (title, batch), group in groupby(found, key=lambda fit: (fit.name, fit.batch)):
        table = _table("compiler", *heads)
        for fit in group:
            _add(
                table,
                labels[visible(fit.label)],
                *(_spread(fit.alpha_ms), _spread(fit.beta_ms), _ratio(fit.bend)),
                *(_chance(fit.lack_of_fit), _ratio(fit.trend), _ratio(fit.repeat_gain)),
            )
        lines += [Text(visible(f"{title}, batch {batch}"), style="italic"), table]
    return lines


def _chance(p: float | None) -> str:
    """Return a p-value to two decimals, as people quote it."""
    if p is None:
        return NONE
    return f"{p:.2f}" if p >= 0.01 else "<.01"


def _spread(value: Interval | None) -> str:
    """An overhead may be near 0, so that its interval is shown as it is."""
    if value is None:
        return NONE
    return f"{figure(value.estimate)} ±{figure((value.high - value.low) / 2)}"


def _depth_notes(found: Sequence[DepthFit]) -> list[str]:
    notes = []
    for fit in found:
        name = f"{fit.name}, {fit.label}"
        if fit.reason:
            notes.append(f"{name}: {fit.reason}.")
            continue
        memory = fit.memory_slope_bytes and fit.memory_slope_bytes.scaled(1 / 2**20)
        ratios = [f"{s.speedup.times} at depth {s.depth}" for s in fit.speedups]
        costs = [
            f"{_span(slope)} {unit} per block"
            for slope, unit in (
                (fit.compile_slope_s, "s of compiling"),
                (memory, "MiB"),
            )
            if slope is not None
        ]
        paired = "" if fit.paired else "; unpaired: depths of several sessions"
        told = [f"speed-up {join(ratios)}", *costs] if ratios else costs
        if told:
            notes.append(f"{name} ({fit.coverage} depths{paired}): {'; '.join(told)}.")
    return [
        *notes,
        "L(d) = alpha + beta d. S/x2: growth of the speed-up per doubling of depth; repeat: repeat"
        " gain; bend: a block's cost in the deeper half over the shallower one;"
        " p: of a straight line. Repeated blocks get cheaper where bend is below 1 and p small;"
        " otherwise a speed-up that grows is an overhead spread over more blocks.",
    ]


def _orders(found: Metrics) -> list[RenderableType]:
    lines: list[RenderableType] = [_rank(one) for one in found.rankings]
    lines += [
        f"{flip.model_a} and {flip.model_b} under {flip.compiler}: {flip.before} at batch"
        f" {flip.before_batch}, {flip.after} at batch {flip.after_batch}."
        for flip in found.flips
    ]
    told = [text for text in map(_told, found.orders) if text]
    lines += told[:ORDERS_SHOWN]
    if len(told) > ORDERS_SHOWN:
        lines.append(f"... and {len(told) - ORDERS_SHOWN} more, with --json.")
    return lines


def _rank(one: Ranking) -> str:
    tau = NONE if one.tau_b is None else f"{one.tau_b:.2f}"
    return (
        f"{one.baseline} to {one.compiler}, batch {one.batch}: Kendall tau_b {tau} over"
        f" {one.models} models; {one.reversed_beyond} of {one.pairs} pairs reversed by more than"
        " 5 % on both sides."
    )


def _told(one: Order) -> str:
    """Return what there is to say of an order beyond its verdict, or an empty string."""
    order = one.order
    names = f"{order.model_a} / {order.model_b}, batch {order.batch}, {order.compiler}"
    if one.origin is not None:
        if one.origin.cause == "no control":
            return f"{names}: reversed; there is no control of the same graph to tell the cause."
        ratio = one.origin.ratio
        control = f"{one.origin.control} {ratio.times if ratio else NONE}"
        return f"{names}: reversed by the {one.origin.cause} ({control})."
    if one.settle is None:
        return ""
    if one.settle.launches is not None:
        return f"{names}: unresolved; about {one.settle.launches} more launches would settle it."
    if one.settle.rounds is not None:
        return f"{names}: unresolved; about {one.settle.rounds} more rounds would settle it."
    return f"{names}: unresolved; too close to be settled."


def _changes(found: Metrics) -> list[str]:
    return [
        f"With the {one.axis} ({one.where}): {join(one.top_first)} for {one.first},"
        f" {join(one.top_second)} for {one.second}."
        for one in found.changes[:ORDERS_SHOWN]
    ]


def _means(found: Sequence[SpeedupMean]) -> Table:
    table = _table("compiler", "batch", "geometric mean speed-up", "harmonic", "models")
    for one in found:
        harmonic = NONE if one.harmonic is None else f"{one.harmonic:.3g}"
        count = f"{one.count} of {one.of}"
        _add(table, one.compiler, str(one.batch), _span(one.geometric), harmonic, count)
    return table


def _scores(found: Sequence[Score]) -> list[RenderableType]:
    if not found:
        return []
    table = _table("S(t) / ES(t) of GraphNet", "n", *(f"t={t}" for t in SCORES_AT))
    for one in found:
        at = {t: (s, es) for t, s, es in zip(one.tolerances, one.s, one.es, strict=True)}
        figures = (f"{at[t][0]:.2f}/{at[t][1]:.2f}" for t in SCORES_AT)
        _add(table, one.compiler, str(one.samples), *figures)
    return [table]
