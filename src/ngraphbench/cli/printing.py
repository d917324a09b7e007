"""What commands print for people: results, plans, what is available."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ngraphbench.errors import NGraphBenchError
from ngraphbench.report.terminal import clean, print_run
from ngraphbench.report.wording import visible

if TYPE_CHECKING:
    from ngraphbench.plan import Plan
    from ngraphbench.plugin import Compiler
    from ngraphbench.runs import Run
    from ngraphbench.session.availability import Availability
    from ngraphbench.types import OptionValue

__all__ = [
    "print_availability",
    "print_blocks",
    "print_lines",
    "print_options",
    "print_outcome",
    "print_pairs",
    "print_plan",
    "print_table",
    "print_terms",
]


def print_outcome(run: Run) -> None:
    """Print verdict, table and notes, write the report, and say where it lies."""
    console = Console()
    print_run(console, run.history(), run.sessions(), run.samples)
    try:
        report = run.report()
    except NGraphBenchError as error:
        console.print(f"\nNo report: {clean(error)}")
        return
    console.print(f"\nReport: {clean(report)}", soft_wrap=True)


def print_plan(plan: Plan) -> None:
    """Print the cells of every session and how long it may take."""
    from ngraphbench.plan import estimate_s

    console = Console()
    for session in plan.sessions:
        models = ", ".join(dict.fromkeys(case.model.label for case in session.cases))
        console.print(
            f"session {session.session_id}  {clean(models)}"
            f"  ({len(session.cases)} cells, {session.profile.name} profile)"
        )
        table = Table(box=None, padding=(0, 2, 0, 2))
        for column in ("model", "batch", "compiler"):
            table.add_column(column, justify="right" if column == "batch" else "left")
        for case in session.cases:
            table.add_row(clean(case.model.label), str(case.batch), clean(case.label))
        console.print(table)
    for skipped in plan.skipped:
        console.print(
            f"left out: {clean(skipped.case.model.label)} {clean(skipped.case.label)}:"
            f" {clean(skipped.message)}"
        )
    cells = len(plan.cases())
    console.print(f"{cells} cells, about {minutes(estimate_s(plan))} (a guess; budgets cap it).")


def minutes(seconds: float) -> str:
    """Return a duration for people, such as ``12 min``.

    >>> minutes(75), minutes(7200)
    ('1 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


_COLUMNS = ("compiler", "works", "version", "device", "takes", "reason and cure")


def print_availability(found: Iterable[Availability], *, forms: bool = True) -> None:
    """Print one line per compiler: where it works, which version, on what, else why and a cure.

    ``forms``: and what it takes.
    """
    console = Console()
    table = Table(box=None, padding=(0, 2, 0, 0))
    shown = [*_COLUMNS[:4], *([_COLUMNS[4]] if forms else []), _COLUMNS[5]]
    for column in shown:
        table.add_column(column, no_wrap=column == "compiler")
    for one in found:
        takes = [", ".join(one.compiler.accepts) if one.compiler else ""] if forms else []
        notes = [one.reason] if one.reason else []
        if one.cure:
            # Many a probe names the command itself.
            notes.append(one.size if one.command in one.reason else one.cure)
        notes += [f"{accelerator}: {why}" for accelerator, why in one.left_out.items()]
        if one.environment and one.environment.state != "ready":
            notes.append(f"its environment is {one.environment.state}")
        if one.compiler is not None and one.compiler.not_yet_run_on_hardware:
            notes.append("not yet run on hardware")
        elif one.compiler is not None and (unseen := one.compiler.accelerators_not_yet_run):
            notes.append(f"{', '.join(unseen)}: not yet run on hardware")
        works = f"[green]{', '.join(one.places)}[/green]" if one.places else "[red]no[/red]"
        told = clean("; ".join(note.rstrip(".") for note in notes if note))
        devices = ", ".join(one.devices)
        table.add_row(clean(one.name), works, clean(one.version), devices, *takes, told)
    console.print(table)


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print rows below the names of their columns; a name that is too long goes on below."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(clean, row))
    Console().print(table, highlight=False)


def print_options(compilers: Iterable[Compiler]) -> None:
    """Print the declared options of every compiler."""
    console = Console()
    for compiler in compilers:
        console.print(f"[bold]{clean(compiler.name)}[/bold]")
        for option in compiler.options:
            choices = " | ".join(map(str, option.choices)) or option.type
            default = _plain(option.default)
            kind = f"{option.type}, " if option.choices else ""
            presets = "".join(
                f"; {name}: {_plain(value)}" for name, value in option.presets.items()
            )
            told = f"{option.name} = {choices}   ({kind}default {default}{presets})"
            _print_term(console, told, option.help)
        if not compiler.options:
            console.print("  no options")


def _plain(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def print_terms(terms: Mapping[str, str]) -> None:
    """Print what each term means, one below the other."""
    console = Console()
    for term, meaning in terms.items():
        _print_term(console, term, meaning)


def print_pairs(pairs: Mapping[str, str]) -> None:
    """Print words and what is said of each, in two columns."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for word, text in pairs.items():
        table.add_row(clean(word), clean(text))
    Console().print(table, highlight=False)


def print_blocks(
    families: Mapping[str, str],
    counts: Mapping[str, Mapping[str, int]],
    sizes: Mapping[str, int],
) -> None:
    """Print the families of blocks with their parameters and FLOPs at ``sizes``."""
    console = Console()
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("block:", no_wrap=True)
    heads = ("parameters", "MFLOPs", "+ per block", "+ MFLOPs")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("what is repeated")
    for family, what in families.items():
        table.add_row(clean(family), *_counts(counts[family]), clean(what))
    console.print(table)
    query = "&".join(f"{key}={value}" for key, value in sizes.items())
    console.print(
        f"\nAt ?{query}, for one image; 2 FLOPs are a multiplication and an addition.",
        highlight=False,
    )


def _counts(found: Mapping[str, int]) -> tuple[str, ...]:
    if not found:
        return ("–",) * 4
    return (
        f"{found['parameters']:,}",
        f"{found['flops'] / 1e6:.1f}",
        f"{found['block_parameters']:,}",
        f"{found['block_flops'] / 1e6:.1f}",
    )


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, wrapped at the width of the terminal."""
    console = Console()
    for line in lines:
        console.print(clean(line), highlight=False)


def _print_term(console: Console, term: str, meaning: str) -> None:
    console.print(Padding(Text(visible(term)), (0, 0, 0, 2), expand=False))
    console.print(Padding(Text(visible(meaning), style="dim"), (0, 0, 0, 6), expand=False))
