"""``deploy``: the command of the deployment study."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from ngraphbench.cli import options
from ngraphbench.errors import SpecError

if TYPE_CHECKING:
    from ngraphbench.studies.constraints import Constraints
    from ngraphbench.studies.deploy import Deployment
    from ngraphbench.studies.deploying import Deployed

__all__ = ["EXIT_UNSATISFIED", "deploy"]

EXIT_UNSATISFIED = 5
"""Nothing surely satisfies the constraints: everybody misses one, or it is undecided."""

Value = TypeVar("Value")


def deploy(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="As for bench.")] = None,
    compiler: Annotated[
        list[str] | None,
        typer.Option(
            "--compiler",
            "-c",
            metavar="NAME[:opt=val,...]",
            help="Candidates with their flags; default: all that work here.",
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", metavar="NAME:OPTION=A,B", help="Try each value of a flag."),
    ] = None,
    batch: Annotated[str, typer.Option("--batch", "-b", metavar="1,4", help="Sizes.")] = "1",
    precision: Annotated[
        str, typer.Option(metavar="fp32,int8", help="Precisions to choose among.")
    ] = "fp32",
    calib: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Calibration of int8, as of bench.")
    ] = None,
    p99: Annotated[
        str | None, typer.Option(metavar="33ms", help="Limit of the p99 of responses.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="HZ", help="Calls per second that it must keep up with.")
    ] = None,
    min_throughput: Annotated[
        float | None, typer.Option(metavar="N", help="Items per second at least, back to back.")
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option(metavar="1GiB", help="Limit of a program's peak memory.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(metavar="1e-3", help="Limit of the outputs' relative error.")
    ] = None,
    eval_: Annotated[
        Path | None, typer.Option("--eval", metavar="FILE.npz", help="A labelled set, as of bench.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="top1|MODULE:FN", help="What is computed on it.")
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(
            metavar="0.01",
            help="How far the metric may be from the uncompiled one.",
            show_default="0.01",
        ),
    ] = None,
    beside: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Another model that is kept busy meanwhile.")
    ] = None,
    prefer: Annotated[
        str | None,
        typer.Option(
            metavar="throughput|latency",
            help="Which is best of those that satisfy all.",
            show_default="throughput",
        ),
    ] = None,
    profile: Annotated[str, typer.Option("--profile", "-p", help="As of bench.")] = "default",
    device: Annotated[str, typer.Option(help="Where it will run.")] = "local",
    threads: Annotated[
        str | None, typer.Option(metavar="N|vendor-default", help="As of bench.")
    ] = None,
    pretrained: Annotated[bool, typer.Option("--pretrained", help="As of bench.")] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Weights to load into the model.")
    ] = None,
    input_: Annotated[
        list[str] | None, typer.Option("--input", metavar="NAME=SHAPE...", help="As of bench.")
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option("--inputs", metavar="FILE.npz", help="Your own input arrays.")
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option("--shape", metavar="NAME=SHAPE", help="As of bench.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=VALUE", help="One limit of a cell, as of bench."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="As of bench: what is uncompiled.")
    ] = None,
    environments: Annotated[str, typer.Option(help="current or managed, as of bench.")] = "current",
    of: Annotated[
        Path | None,
        typer.Option("--of", metavar="DIR", help="Measure nothing: decide anew on this study."),
    ] = None,
    out: options.Out = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Choose compiler, flags, precision and batch size for one model, under constraints.

    Exit code 5: nothing surely satisfies them. A constraint that its interval does not decide
    is undecided, never satisfied. The same command with the same --out goes on.
    """
    from ngraphbench.studies.deploying import deploy as study

    if of is None and model is None:
        raise SpecError("There is no model to deploy.", reason="models", hint="Name one, or --of.")
    if prefer not in (None, "throughput", "latency"):
        hint = "Write throughput or latency."
        raise SpecError(f"{prefer!r} cannot be preferred.", key="--prefer", hint=hint)
    settings = options.bench_settings(
        shapes=shape or [],
        precision=precision,
        threads=threads,
        timeout=None,
        memory=None,
        limits=limit or [],
        method={"beside": beside},
        seed=0,
    )
    settings |= {"environments": environments, "devices": [device]}
    settings["precision"] = [part.strip() for part in precision.split(",")]
    if baseline is not None:
        settings["baseline"] = baseline
    wanted = _constraints(
        p99=p99,
        rate_per_s=rate,
        min_throughput_per_s=min_throughput,
        max_memory=max_memory,
        tolerance=tolerance,
        max_drop=max_drop,
    )
    entry: Any = ""
    if model is not None:
        (entry,) = options.model_entries(
            [model],
            input_ or [],
            inputs,
            checkpoint=checkpoint,
            pretrained=pretrained,
            sets={"eval": str(eval_ or ""), "metric": metric or "", "calib": str(calib or "")},
        )
    with options.watched() as feed:
        found = study(
            entry,
            wanted,
            compilers=compiler or [],
            sweep=_sweep(sweep or []),
            batch_sizes=options.batch_list(batch),
            prefer=cast(Any, prefer),
            profile=profile,
            out=out,
            of=of,
            settings=settings,
            observe=feed,
        )
    if json_:
        sys.stdout.write(json.dumps(_answer(found), indent=1) + "\n")
    else:
        _print(found)
    return _exit_code(found)


def _exit_code(study: Deployed) -> int:
    runs = [run.exit_code() for run in (study.race, study.confirm) if run is not None]
    if 2 in runs:
        return 2
    return EXIT_UNSATISFIED if study.found.choice is None else max(runs)


def _constraints(*, p99: str | None, max_memory: str | None, **plain: Any) -> Constraints | None:
    """Return the constraints that were given, None where there was none."""
    from ngraphbench.spec_values import parse_bytes, parse_seconds
    from ngraphbench.studies.constraints import Constraints

    seconds = _quantity(p99, parse_seconds, "--p99")
    found = Constraints(
        p99_ms=None if seconds is None else seconds * 1e3,
        max_memory_bytes=_quantity(max_memory, parse_bytes, "--max-memory"),
        **plain,
    )
    for name, value in found.to_json().items():
        if value is not None and not value >= 0:
            raise SpecError(f"{value} is no limit.", key=name, hint="Give a number above zero.")
    return found if found != Constraints() else None


def _quantity(text: str | None, parse: Callable[[object], Value], key: str) -> Value | None:
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise SpecError(f"It {error}.", key=key, reason="quantity") from error


def _sweep(texts: list[str]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for text in texts:
        name, colon, rest = text.partition(":")
        option, equals, values = rest.partition("=")
        if not colon or not equals or not values:
            hint = "Write openvino:num_streams=1,2."
            raise SpecError(f"{text!r} is not a flag to sweep.", key="--sweep", hint=hint)
        found.setdefault(name, {})[option] = values.split(",")
    return found


def _answer(study: Deployed) -> dict[str, Any]:
    delivered = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in asdict(study.delivered).items()
    }
    answer = {**study.found.to_json(), "delivered": delivered, "path": str(study.path)}
    return {**answer, "next": str(study.next_file) if study.next_file else None}


def _print(study: Deployed) -> None:
    from ngraphbench.cli.printing import print_lines, print_table

    found = study.found
    print_lines([found.decision, ""])
    print_table(
        ("candidate", "", "items/s", "ms", "what is missed or open"),
        [
            (
                one.name + (" (baseline)" if one.baseline else ""),
                one.state,
                f"{one.throughput_per_s.estimate:.4g}" if one.throughput_per_s else "–",
                f"{one.latency_ms.estimate:.3g}" if one.latency_ms else "–",
                "; ".join(one.problems),
            )
            for one in found.candidates
        ],
    )
    print_lines(["", *_break_even(found), *_delivered(study), f"Study: {study.path}"])
    if study.next_file is not None:
        print_lines([f"Next: {study.next_file} holds the cells that would settle what is open."])


def _break_even(found: Deployment) -> list[str]:
    told = []
    for one in found.break_even:
        if one.calls is None:
            text = "never" if one.never else f"not known: {one.reason}"
        elif one.calls.high == 0.0:
            text = "at once"
        else:
            text = (
                f"{one.calls.estimate:,.0f} calls ({one.calls.low:,.0f} to {one.calls.high:,.0f})"
            )
        told.append(f"Break-even with {one.baseline}, {one.start} start: {text}.")
    return told


def _delivered(study: Deployed) -> list[str]:
    made = study.delivered
    lines = []
    if made.artefact is not None:
        size = f"{made.artefact_bytes / 2**20:.1f} MiB" if made.artefact_bytes else "size not known"
        load = f", loads in {made.load_s:.3g} s" if made.load_s is not None else ""
        lines.append(f"Artefact: {made.artefact} ({size}{load}).")
    if made.lack:
        lines.append(f"Of the artefact: {made.lack}.")
    if made.script is not None:
        lines.append(f"Measure exactly this cell again: {made.script}")
    return lines
