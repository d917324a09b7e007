"""``selftest``: the command that proves the kernel on this machine."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ngraphbench.selftest import SelfTest

__all__ = ["selftest"]


def selftest(
    seconds: Annotated[float, typer.Option(help="Measuring time of all programs.")] = 20.0,
    hog: Annotated[
        bool, typer.Option("--hog", help="Keep every CPU busy beside them: it must be seen.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the order of slots.")] = 0,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Prove the kernel here: rank programs of known work, and a program against itself.

    Exit code 0 when nothing was ranked wrongly (unresolved is not wrong), else 1.
    """
    from ngraphbench.report.progress import RunProgress
    from ngraphbench.selftest import run_selftest

    with RunProgress() as progress:
        found = run_selftest(seconds=seconds, hog=hog, seed=seed, observe=progress.feed)
    if json_:
        sys.stdout.write(json.dumps(found.to_json(), indent=1) + "\n")
    else:
        _print(found)
    return 0 if found.passed else 1


def _print(found: SelfTest) -> None:
    from rich.console import Console
    from rich.table import Table

    from ngraphbench.selftest import UNITS

    console = Console()
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("work", "truth", "measured", "95 % interval", f"{UNITS[0]} units is", ""):
        table.add_column(column)
    for finding in found.findings:
        ratio = finding.ratio
        table.add_row(
            f"{finding.units} units",
            f"{finding.truth:.2f}",
            f"{ratio.estimate:.3f}",
            f"{ratio.low:.3f} to {ratio.high:.3f}",
            finding.verdict,
            "[bold red]wrong[/bold red]" if finding.wrong else "right or open",
        )
    console.print(table)
    console.print(f"Flags: {', '.join(found.flags) or 'none'}")
    console.print("Passed." if found.passed else "[bold red]Failed.[/bold red]")
