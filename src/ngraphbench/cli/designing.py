"""``design``: the command of the design study."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ngraphbench.cli import options
from ngraphbench.errors import SpecError

if TYPE_CHECKING:
    from ngraphbench.studies.design import Design, Order, Place
    from ngraphbench.studies.verbs import Studied

__all__ = ["design"]

ORDERS_SHOWN = 20


def design(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL...", help="Architectures to choose among, as for bench."),
    ] = None,
    compiler: Annotated[
        list[str] | None,
        typer.Option("--compiler", "-c", metavar="NAME", help="Default: all that work here."),
    ] = None,
    batch: Annotated[
        str, typer.Option("--batch", "-b", metavar="1,4,16", help="Batch sizes.")
    ] = "1,4,16",
    device: Annotated[
        list[str] | None, typer.Option("--device", help="Several may be given; default: local.")
    ] = None,
    profile: Annotated[str, typer.Option("--profile", "-p", help="As of bench.")] = "default",
    precision: Annotated[str, typer.Option(help="fp32, fp16 or bf16.")] = "fp32",
    threads: Annotated[
        str | None, typer.Option(metavar="N|vendor-default", help="As of bench.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="As of bench: what is uncompiled.")
    ] = None,
    control: Annotated[
        bool,
        typer.Option(
            "--control", help="Also the exported graph unoptimised: who caused a reversal?"
        ),
    ] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=VALUE", help="One limit of a cell, as of bench."),
    ] = None,
    environments: Annotated[str, typer.Option(help="current or managed, as of bench.")] = "current",
    of: Annotated[
        Path | None,
        typer.Option("--of", metavar="DIR", help="Measure nothing: study this run."),
    ] = None,
    out: options.Out = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Study archetypes: who is fast and widely supported, and stays good once compiled?

    The same command with the same --out goes on after an interruption.
    """
    from ngraphbench.studies import verbs

    if of is None and not models:
        raise SpecError(
            "There is nothing to study.",
            reason="models",
            hint="Name architectures, such as timm:resnet18, or a run with --of DIR.",
        )
    settings = options.bench_settings(
        shapes=[],
        precision=precision,
        threads=threads,
        timeout=None,
        memory=None,
        limits=limit or [],
        method={},
        seed=0,
    )
    settings["environments"] = environments
    if baseline is not None:
        settings["baseline"] = baseline
    if control:
        settings["control"] = "same-graph"
    with options.watched() as feed:
        found = verbs.design(
            models or [],
            compilers=compiler or [],
            batch_sizes=options.batch_list(batch),
            devices=device or ["local"],
            profile=profile,
            settings=settings,
            out=out,
            of=of,
            observe=feed,
        )
    if json_:
        answer = {**found.found.to_json(), "run": str(found.run.path)}
        sys.stdout.write(json.dumps(answer, indent=1) + "\n")
    else:
        _print(found)
    return found.run.exit_code()


def _print(study: Studied[Design]) -> None:
    from ngraphbench.cli.printing import print_lines, print_table
    from ngraphbench.studies.design import ACCURACY

    found = study.found
    print_lines([*found.decision.splitlines(), ""])
    for place in found.places:
        print_lines([f"{place.title}: who works where"])
        print_table(*_matrix(place))
        print_lines([""])
        print_table(
            ("archetype", "once compiled", "works under", "best compiler by batch"),
            [_row(place, i) for i in range(len(place.archetypes))],
        )
        reasons = [f"{one.name}, {reason}." for one in place.archetypes for reason in one.reasons]
        print_lines(["", *reasons])
    print_lines([*_orders(found), ACCURACY, f"Run: {study.run.path}"])
    if study.next_file is not None:
        print_lines([f"Next: {study.next_file} holds the cells that would settle what is open."])


def _matrix(place: Place) -> tuple[list[str], list[list[str]]]:
    compilers = list(dict.fromkeys(one.compiler for one in place.support))
    told = {(one.archetype, one.compiler): one.text for one in place.support}
    names = list(dict.fromkeys(one.archetype for one in place.support))
    rows = [[name, *(told.get((name, label), "–") for label in compilers)] for name in names]
    return ["archetype", *compilers], rows


def _row(place: Place, number: int) -> list[str]:
    one = place.archetypes[number]
    gains = [
        f"{gain.batch}: {gain.compiler} {gain.speedup.times if gain.speedup else '?'}"
        for gain in one.gains
    ]
    return [one.name, one.standing, f"{one.works_under} of {one.compilers}", ", ".join(gains)]


def _orders(found: Design) -> list[str]:
    counts = {
        verdict: sum(one.order.verdict == verdict for one in found.orders)
        for verdict in ("reversed", "kept", "tie", "unresolved")
    }
    if not found.orders:
        return []
    counted = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    lines = [f"Orders of two archetypes under one compiler: {counted}."]
    shown = found.reversed[:ORDERS_SHOWN]
    lines += [f"- {one.order.sentence}{_cause(one)}." for one in shown]
    if len(found.reversed) > len(shown):
        lines.append(f"... and {len(found.reversed) - len(shown)} more, with --json.")
    lines += [
        f"- {flip.model_a} and {flip.model_b} under {flip.compiler}: {flip.before} at batch"
        f" {flip.before_batch}, {flip.after} at batch {flip.after_batch}."
        for flip in found.flips
    ]
    return [*lines, ""]


def _cause(one: Order) -> str:
    if one.origin is None or one.origin.cause == "no control":
        return ""
    return f"; by the {one.origin.cause}"
