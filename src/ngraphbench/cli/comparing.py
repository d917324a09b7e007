"""``compare``: what got slower or stopped working from one run to another."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ngraphbench.errors import SpecError

__all__ = ["EXIT_REGRESSION", "compare"]

EXIT_REGRESSION = 4


def compare(
    before: Annotated[
        Path, typer.Argument(metavar="BEFORE", help="A run directory, or a stored run's file.")
    ],
    after: Annotated[
        Path | None,
        typer.Argument(metavar="AFTER", help="The same, of what is to be judged."),
    ] = None,
    threshold: Annotated[
        float,
        typer.Option(
            metavar="PERCENT", help="A cell is a regression when surely slower, and by more."
        ),
    ] = 3.0,
    reference: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What each cell is set against in its own run.",
            show_default="the run's baseline",
        ),
    ] = "",
    force: Annotated[
        bool,
        typer.Option("--force", help="Compare runs that are not alike; says what differs."),
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="FILE", help="Store run BEFORE as one small file to compare with."
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print markdown, as for a pull request.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Compare two runs: exit code 4 when a cell got slower for sure, or stopped working.

    Example: ngb compare runs/main runs/branch --threshold 5
    """
    from ngraphbench import comparing

    if save is not None:
        if after is not None:
            raise SpecError(
                "--save stores one run.", key="--save", hint="ngb compare --save FILE RUN"
            )
        typer.echo(str(comparing.save_snapshot(before, save)))
        return 0
    if after is None:
        raise SpecError(
            "There is one run, and nothing to compare it with.",
            hint="ngb compare BEFORE AFTER, each a run directory or a file of --save.",
        )
    sides = comparing.open_side(before), comparing.open_side(after)
    found = comparing.compare_sides(
        *sides, threshold=threshold / 100.0, reference=reference, force=force
    )
    paired = comparing.paired_commands(*sides)
    if json_:
        sys.stdout.write(json.dumps({**found.to_json(), "paired": paired}, indent=1) + "\n")
    elif markdown:
        from ngraphbench.report.comparison import markdown as written

        sys.stdout.write(written(found, paired))
    else:
        from rich.console import Console

        from ngraphbench.report.comparison import print_comparison

        print_comparison(Console(), found, paired)
    return EXIT_REGRESSION if found.regressions else 0
