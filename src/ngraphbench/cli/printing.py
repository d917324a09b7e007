"""What commands print for people: results, plans, what is available."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ngraphbench.errors import NGraphBenchError
from ngraphbench.report.terminal import clean, print_run

if TYPE_CHECKING:
    from ngraphbench.api import Run
    from ngraphbench.plan import Plan
    from ngraphbench.plugin import Compiler
    from ngraphbench.types import Support

__all__ = ["print_options", "print_outcome", "print_plan", "print_support"]


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


def print_support(found: Iterable[tuple[str, Compiler | None, Support]]) -> None:
    """Print one line per compiler: usable or not, version, and the cure."""
    console = Console()
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("compiler", "here", "version", "takes", "what to do"):
        table.add_column(column)
    for name, compiler, support in found:
        takes = ", ".join(compiler.accepts) if compiler else ""
        notes = [support.hint] if support.hint and not support.ok else []
        if compiler is not None and compiler.not_yet_run_on_hardware:
            notes.append("not yet run on hardware")
        here = "[green]yes[/green]" if support.ok else "[red]no[/red]"
        table.add_row(clean(name), here, clean(support.version), takes, clean("; ".join(notes)))
    console.print(table)


def print_options(compilers: Iterable[Compiler]) -> None:
    """Print the declared options of every compiler."""
    console = Console()
    for compiler in compilers:
        console.print(f"[bold]{clean(compiler.name)}[/bold]")
        table = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
        for option in compiler.options:
            choices = "|".join(map(str, option.choices)) or option.type
            default = str(option.default).lower() if option.type == "bool" else option.default
            table.add_row(
                clean(option.name), clean(choices), f"default {default}", clean(option.help)
            )
        console.print(table if compiler.options else "  no options")
