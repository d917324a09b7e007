"""Results on a terminal: the answer first, then the table, then what to be careful about.

Whatever was not written by this package is untrusted text: it is shown as ``Text``, never
as markup, with control characters made visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ngraphbench.analysis.reversal import Reversal, unpaired_count
from ngraphbench.analysis.tables import Cell, Evidence, Read
from ngraphbench.analysis.tables import Group as CellGroup
from ngraphbench.analysis.verdict import headline
from ngraphbench.analysis.versions import version_verdicts
from ngraphbench.records import FAILURES
from ngraphbench.report.alone import BlockTable, block_tables
from ngraphbench.report.rates import rate_lines
from ngraphbench.report.scene import Scene
from ngraphbench.report.wording import (
    FLAGS,
    MARKS,
    cautions,
    compile_lines,
    evaluation_lines,
    figure,
    first_line,
    flags_used,
    plus_minus,
    session_notes,
    shorten,
    visible,
)
from ngraphbench.types import Json

__all__ = ["clean", "print_run", "result_table"]

MARK_STYLES = {
    "faster": "bold cyan",
    "slower": "magenta",
    "tie": "",
    "unresolved": "yellow",
    "unstable": "yellow",
}
REVERSALS_SHOWN = 12
RATES_TITLE = "Items per second (█ up to the interval, ▒ the interval, ┃ the estimate)"


def clean(text: object) -> str:
    """Return untrusted text for use inside rich markup: inert, every character visible.

    >>> clean("[bold]\\x1b[31m")
    '\\\\[bold]␛[31m'
    """
    return escape(visible(text))


def result_table(records: Sequence[Json], sessions: Sequence[Json], read: Read) -> RenderableType:
    """Return a table of every cell, failures included, that fits the console it is printed on."""
    return _ResultTable(Evidence(records, sessions, read))


def print_run(
    console: Console, records: Sequence[Json], sessions: Sequence[Json], read: Read
) -> None:
    """Print a run: headline, table, reversals, failures with their logs, notes."""
    scene = Scene(records, sessions, read)
    evidence, newest = scene.evidence, scene.newest
    console.print(Text(visible(headline(newest.answers, newest.orders)), style="bold"))
    if not evidence.cells:
        return
    console.print()
    console.print(_ResultTable(evidence))
    if rates := rate_lines(evidence, width=console.width, indent=2):
        _section(console, RATES_TITLE, list(rates))
    for alone in block_tables(evidence):
        _section(console, alone.title, [_block_table(alone), *alone.notes])
    if len(scene.answers) > 1:
        _section(console, "Verdicts", [f"{v.model}: {v.sentence}" for v in scene.answers])
    if versions := version_verdicts(evidence):
        _section(console, "Versions", [found.sentence for found in versions])
    if order_lines := _order_lines(newest.orders, unpaired_count(newest.evidence)):
        _section(console, "Order of the models", order_lines)
    failures = _failures(evidence.cells)
    if failures:
        _section(console, "Not ok", failures)
    if scores := evaluation_lines(evidence):
        _section(console, "Task metric", scores)
    if compiles := compile_lines(evidence):
        _section(console, "Compiling", compiles)
    _section(console, "Notes", _notes(evidence))


def _section(console: Console, title: str, lines: Sequence[RenderableType]) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    for line in lines:
        console.print(_indented(Text(visible(line)) if isinstance(line, str) else line))


def _indented(inner: RenderableType) -> Padding:
    return Padding(inner, (0, 0, 0, 2), expand=False)


def _block_table(alone: BlockTable) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    labels = shorten((visible(row.label) for row in alone.rows), 22)
    table.add_column("model", overflow="fold", min_width=5)
    table.add_column("batch", justify="right")
    table.add_column("compiler", no_wrap=True)
    for head in alone.heads:
        table.add_column(head, justify="right", no_wrap=True)
    last = ("", 0)
    for row in alone.rows:
        same, last = last == (row.model, row.batch), (row.model, row.batch)
        if not same:
            table.add_section()
        place = ("", "") if same else (visible(row.model), str(row.batch))
        cells = (*place, labels[visible(row.label)], *map(visible, row.values))
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _order_lines(orders: Sequence[Reversal], apart: int) -> list[str]:
    """Return the orders that can be told, and how many cannot; ``apart``: of two sessions."""
    paired = [order for order in orders if order.reason not in ("unpaired", "untrusted")]
    lines = [_order_line(order) for order in paired[:REVERSALS_SHOWN]]
    hidden = len(paired) - len(lines)
    if hidden:
        lines.append(f"... and {hidden} more, in the page that `ngb report` writes.")
    beside = [order.reason for order in orders if order.session_id]
    for count, why in (
        (apart, "unpaired: the models were not measured in one session"),
        (beside.count("unpaired"), "unpaired: the models share no rounds"),
        (beside.count("untrusted"), "untrusted: the session failed its A/A control"),
    ):
        if count:
            lines.append(f"{count} {'order' if count == 1 else 'orders'} unresolved ({why}).")
    return lines


def _order_line(order: Reversal) -> str:
    where = f"{order.verdict}  batch {order.batch}, {order.compiler}"
    ratios = (order.under_baseline, order.under_compiler)
    factors = [f"{r.times} ({r.range})" if r else "–" for r in ratios]
    names = f"{order.model_a} / {order.model_b}"
    return f"{where}: {names} {factors[0]} in {order.baseline}, {factors[1]} under {order.compiler}"


def _failures(cells: Sequence[Cell]) -> list[RenderableType]:
    """Return what went wrong, once where all compilers of a model and batch share it."""
    shared: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        if cell.status not in ("ok", "skipped"):
            case, record = cell.record["case"], cell.record
            place = (record["session_id"], case["model"]["label"], case["batch"])
            what = (cell.status, record["stage"], record["reason"], record["message"])
            shared.setdefault((*place, *what), []).append(cell)
    return [_failure(same) for same in shared.values()]


def _failure(cells: Sequence[Cell]) -> Group:
    cell, record = cells[0], cells[0].record
    case = record["case"]
    text = Text(visible(cell.status), style=_status_style(cell))
    labels = ", ".join(other.label for other in cells)
    where = f"  {case['model']['label']}, batch {case['batch']}, {labels}"
    stage = f" ({record['stage']})" if record["stage"] else ""
    text.append(visible(where + stage), style="default not bold")
    logs = dict.fromkeys(other.record["log"] for other in cells if other.record["log"])
    lines = [_why(cell), record["detail"].get("hint", ""), *(f"log: {log}" for log in logs)]
    return Group(text, *(_indented(Text(visible(line))) for line in lines if line))


def _why(cell: Cell) -> str:
    reason, message = cell.record["reason"], first_line(cell.record["message"])
    return ": ".join(part for part in (reason, message) if part)


def _notes(evidence: Evidence) -> list[str]:
    notes = cautions(evidence) + session_notes(evidence)
    known = [(flag, FLAGS.get(flag, "see the record")) for flag in flags_used(evidence)]
    return notes + [f"flag {flag}: {meaning}." for flag, meaning in known]


def _status_style(cell: Cell) -> str:
    if cell.status in FAILURES:
        return "bold red"
    return "yellow" if cell.status != "ok" else ""


_HEADS = ("model", "compiler", "status")


@dataclass(frozen=True, slots=True)
class _Widths:
    """Columns that give way to the width at hand; the rest have a fixed need."""

    model: int
    compiler: int
    status: int
    wide: bool
    narrow: bool
    tiny: bool
    """No room for the interval and the status: names give way, numbers do not."""

    @property
    def versus(self) -> int:
        return 22 if self.wide else 8

    @property
    def fixed(self) -> int:
        """What the other columns and the gaps between all of them need."""
        if self.tiny:
            return 3 + 6 + self.versus + 2 * 4 + 1
        batch_rate_spread = 3 + 6 + 5 if self.narrow else 5 + 7 + 6
        return batch_rate_spread + self.versus + 2 * 6 + 1

    @classmethod
    def fit(cls, evidence: Evidence, width: int) -> _Widths:
        bare = cls(0, 0, 0, wide=width >= 110, narrow=width < 72, tiny=width < 53)
        flexible = max(8 if bare.tiny else 18, width - bare.fixed)
        needs = [
            max((len(visible(group.title)) for group in evidence.groups), default=0),
            max((len(visible(cell.label)) for cell in evidence.cells), default=0),
            max((len(visible(_status(cell))) for cell in evidence.cells), default=0),
        ]
        needs = [max(need, len(head)) for need, head in zip(needs, _HEADS, strict=True)]
        if bare.tiny:
            needs[2] = 0
        shares = [min(need, flexible // 3) for need in needs]
        for i, need in enumerate(needs):
            spare = flexible - sum(shares)
            shares[i] += max(0, min(need - shares[i], spare))
        model, compiler, status = shares
        return cls(model, compiler, status, bare.wide, bare.narrow, bare.tiny)


class _ResultTable:
    """Lays itself out for the width it is given."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        evidence = self._evidence
        widths = _Widths.fit(evidence, options.max_width)
        models = shorten((visible(group.title) for group in evidence.groups), widths.model)
        labels = shorten((visible(cell.label) for cell in evidence.cells), widths.compiler)
        table = _empty_table(widths, {group.baseline for group in evidence.groups})
        last = ""
        for group in evidence.groups:
            table.add_section()
            model = models[visible(group.title)]
            _add_rows(table, group, widths, models=model if model != last else "", labels=labels)
            last = model
        legend = {short: full for full, short in {**models, **labels}.items() if short != full}
        yield table
        yield _key()
        for short, full in legend.items():
            yield Text(f"{short} = {full}", style="dim")


def _empty_table(widths: _Widths, baselines: set[str]) -> Table:
    only = visible(baselines.pop()) if len(baselines) == 1 else ""
    versus = f"vs {only}" if 0 < len(only) <= widths.versus - 3 else "vs base"
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    narrow = widths.narrow
    table.add_column("model", width=widths.model, no_wrap=True)
    table.add_column("b" if narrow else "batch", justify="right", width=3 if narrow else 5)
    table.add_column("compiler", width=widths.compiler, no_wrap=True)
    table.add_column("/s" if narrow else "items/s", justify="right", width=6 if narrow else 7)
    if not widths.tiny:
        table.add_column("±", justify="right", width=5 if narrow else 6, no_wrap=True)
    table.add_column(versus, justify="right", width=widths.versus, no_wrap=True)
    if not widths.tiny:
        table.add_column("status", width=widths.status, no_wrap=True)
    return table


def _add_rows(
    table: Table, group: CellGroup, widths: _Widths, *, models: str, labels: dict[str, str]
) -> None:
    for i, cell in enumerate(group.cells):
        throughput = cell.throughput
        label = Text(labels[visible(cell.label)])
        if cell.status == "wrong" or cell.partly_compiled:
            label.stylize("strike")
        if cell.dropped:
            label.stylize("dim")
        spread = [] if widths.tiny else [plus_minus(throughput) if throughput else ""]
        table.add_row(
            Text(models if i == 0 else "", style="bold"),
            str(group.batch) if i == 0 else "",
            label,
            figure(throughput.estimate) if throughput else "–",
            *spread,
            _versus(group, cell, widths.wide),
            *([] if widths.tiny else [_status_text(cell, widths.status)]),
        )


def _versus(group: CellGroup, cell: Cell, wide: bool) -> Text:
    if cell.label == group.baseline:
        return Text("baseline", style="dim")
    speedup = cell.speedup
    if speedup is None:
        return Text(MARKS.get(cell.mark, "–"), style=MARK_STYLES.get(cell.mark, ""))
    spelled = f"{speedup.times} ({speedup.range})" if wide else speedup.times
    return Text(f"{spelled} {MARKS.get(cell.mark, '')}", style=MARK_STYLES.get(cell.mark, ""))


def _status(cell: Cell) -> str:
    parts = (cell.status, cell.record["reason"], *cell.flags)
    return " ".join(part for part in parts if part)


def _status_text(cell: Cell, width: int) -> Text:
    text = visible(_status(cell))
    return Text(text if len(text) <= width else text[: width - 1] + "…", style=_status_style(cell))


def _key() -> Text:
    return Text("   ".join(f"{sign} {name}" for name, sign in MARKS.items()), style="dim")
