"""``reversals``: which architectures swap places under compilers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ngraphbench.errors import SpecError

__all__ = ["reversals"]


def reversals(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|FILE.csv",
            help="A run directory, or a table of other people's figures with the columns model,"
            " batch, baseline, compiled (throughputs), and compiler, device where they differ.",
        ),
    ],
    devices: Annotated[
        bool, typer.Option("--devices", help="Instead: what swaps places between devices.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> int:
    """Show which models swap places under a compiler, or what does between devices.

    Figures of a table were not measured side by side: its orders are `unpaired`.
    """
    if source.is_dir():
        return (_between_devices if devices else _of_run)(source, json_=json_)
    from ngraphbench.analysis.published import read_figures, unpaired_orders

    try:
        text = source.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"{source} cannot be read: {error}.",
            reason="missing",
            hint="Give a run directory, or a CSV file.",
        ) from error
    orders = unpaired_orders(read_figures(text, name=source.name))
    if json_:
        sys.stdout.write(json.dumps([order.to_json() for order in orders], indent=1) + "\n")
        return 0
    from ngraphbench.cli.printing import print_lines

    swapped = sum(order.swapped for order in orders)
    print_lines(
        [
            *(f"{order.sentence}." for order in orders),
            f"{swapped} of {len(orders)} pairs would swap places. None of it is paired: measure"
            " them in one session to know.",
        ]
    )
    return 0


def _of_run(directory: Path, *, json_: bool) -> int:
    from ngraphbench.cli.printing import print_lines
    from ngraphbench.runs import Run

    found = Run.open(directory).metrics()
    if json_:
        sys.stdout.write(json.dumps(found.to_json()["orders"], indent=1) + "\n")
        return 0
    lines = [f"{one.order.verdict}: {one.order.sentence}." for one in found.orders]
    print_lines(lines or ["There is no pair of models in this run."])
    return 0


def _between_devices(directory: Path, *, json_: bool) -> int:
    from dataclasses import asdict

    from ngraphbench.analysis.devices import crossings
    from ngraphbench.analysis.metrics import finite
    from ngraphbench.cli.printing import print_lines
    from ngraphbench.runs import Run

    run = Run.open(directory)
    found = crossings(run.history(), run.sessions(), run.samples)
    if json_:
        sys.stdout.write(json.dumps(finite([asdict(one) for one in found]), indent=1) + "\n")
        return 0
    lines = [f"{one.verdict}: {one.sentence}." for one in found]
    print_lines(lines or ["No two devices of this run measured the same pair side by side."])
    return 0
