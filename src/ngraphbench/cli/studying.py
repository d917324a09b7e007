"""``develop``: the command of the development study."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ngraphbench.cli import options

if TYPE_CHECKING:
    from ngraphbench.studies.composition import Material, Point
    from ngraphbench.studies.develop import Development
    from ngraphbench.studies.verbs import Studied

__all__ = ["develop"]

HYBRID_WORDS = {
    "less": "surely less than",
    "more": "surely more than",
    "alike": "as much as",
    "unresolved": "it is unresolved whether more or less than",
}


def develop(
    block: Annotated[
        list[str] | None,
        typer.Option("--block", metavar="FAMILY", help="Several may be given: `ngb list blocks`."),
    ] = None,
    depth: Annotated[str, typer.Option("--depth", metavar="1,2,4,8", help="Depths.")] = "1,2,4,8",
    width: Annotated[
        str, typer.Option("--width", metavar="64,128", help="Channels, multiples of 32.")
    ] = "64",
    resolution: Annotated[int, typer.Option("--resolution", help="Side of the image.")] = 56,
    compiler: Annotated[
        list[str] | None,
        typer.Option("--compiler", "-c", metavar="NAME", help="Default: all that work here."),
    ] = None,
    batch: Annotated[str, typer.Option("--batch", "-b", metavar="1,8", help="Sizes.")] = "1",
    limit_ms: Annotated[
        float | None,
        typer.Option("--limit-ms", help="Latency of a call that a model must stay within."),
    ] = None,
    profile: Annotated[str, typer.Option("--profile", "-p", help="As of bench.")] = "default",
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="As of bench: what is uncompiled.")
    ] = None,
    of: Annotated[
        Path | None,
        typer.Option("--of", metavar="DIR", help="Measure nothing: study this run of blocks."),
    ] = None,
    environments: Annotated[str, typer.Option(help="current or managed, as of bench.")] = "current",
    out: options.Out = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Study blocks: which to build with, what does repetition gain, how deep fits a limit?"""
    from ngraphbench.studies import verbs

    settings = {"environments": environments}
    if baseline is not None:
        settings["baseline"] = baseline
    with options.watched() as feed:
        study = verbs.develop(
            block or [],
            depths=options.whole_numbers(depth, key="--depth", what="depths"),
            widths=options.whole_numbers(width, key="--width", what="widths"),
            resolution=resolution,
            limit_ms=limit_ms,
            compilers=compiler or [],
            batch_sizes=options.batch_list(batch),
            profile=profile,
            out=out,
            of=of,
            settings=settings,
            observe=feed,
        )
    if json_:
        answer = {**study.found.to_json(), "run": str(study.run.path)}
        sys.stdout.write(json.dumps(answer, indent=1) + "\n")
    else:
        _print(study)
    return study.run.exit_code()


def _print(study: Studied[Development]) -> None:
    from ngraphbench.cli.printing import print_lines, print_table

    found = study.found
    print_lines([found.decision, ""])
    if found.materials:
        print_table(
            ("one more block", "batch", "compiler", "ms", "GFLOP/s", "against the best", ""),
            [_material(one) for one in found.materials],
        )
        print_lines([""])
    front = [one for one in found.points if one.flops_front or one.parameters_front]
    if front:
        print_lines(["Not surely beaten at its capacity (F: in FLOPs, P: in parameters)"])
        print_table(
            ("blocks", "depth", "batch", "compiler", "MFLOPs", "parameters", "items/s", "front"),
            [_point(one) for one in front],
        )
        print_lines([""])
    findings = [f"{one.sentence}." for one in found.findings]
    print_lines(findings or ["No compiler has results at two depths."])
    print_lines(_hybrids(found))
    if found.viable:
        viable = [f"{one.sentence}." for one in found.viable]
        print_lines(["", f"Surely within {found.limit_ms:g} ms:", *viable])
    print_lines(
        [
            "",
            "FLOPs stand for what a model can compute; what it can learn is not measured.",
            f"Run: {study.run.path} (`ngb show --metrics` has the fits)",
        ]
    )
    if study.next_file is not None:
        print_lines([f"Next: {study.next_file} holds the cells that would settle what is open."])


def _material(one: Material) -> tuple[str, ...]:
    cost, rate, ratio = one.marginal_ms, one.gflops_per_s, one.versus_best
    return (
        one.title.removeprefix("block:"),
        str(one.batch),
        one.label,
        f"{cost.estimate:.3g} ({cost.low:.3g}-{cost.high:.3g})",
        f"{rate.estimate:.3g}",
        f"{ratio.times} ({ratio.range})" if ratio else "",
        one.standing,
    )


def _point(one: Point) -> tuple[str, ...]:
    rate = one.throughput_per_s
    return (
        one.title.removeprefix("block:"),
        str(one.depth),
        str(one.batch),
        one.label,
        f"{one.flops / 1e6:,.0f}",
        f"{one.parameters:,}",
        f"{rate.estimate:.4g} ({rate.low:.4g}-{rate.high:.4g})",
        ("F" if one.flops_front else "") + ("P" if one.parameters_front else ""),
    )


def _hybrids(found: Development) -> list[str]:
    """Return how compilers do on hybrid blocks beside simple ones, a line per compiler."""
    from ngraphbench.analysis.tables import join

    lines = []
    for key in dict.fromkeys((one.hybrid, one.label, one.batch) for one in found.hybrids):
        here = [one for one in found.hybrids if (one.hybrid, one.label, one.batch) == key]
        parts = []
        for verdict, words in HYBRID_WORDS.items():
            names = [f"{one.simple} ({one.ratio.times})" for one in here if one.verdict == verdict]
            parts += [f"{words} {join(names)}"] if names else []
        head = f"{key[0]}, a hybrid, under {key[1]}, batch {key[2]}, gains"
        lines.append(f"{head} {'; '.join(parts)}.")
    return lines
