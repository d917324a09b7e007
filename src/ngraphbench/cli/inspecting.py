"""``show``, ``report``, ``list`` and ``doctor``: the commands that only look."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ngraphbench.cli import options
from ngraphbench.errors import NGraphBenchError, SpecError, Unavailable

if TYPE_CHECKING:
    from ngraphbench.plugin import Compiler
    from ngraphbench.runs import Run
    from ngraphbench.session.availability import Availability
    from ngraphbench.session.launches import Learned

__all__ = ["doctor", "list_things", "report", "show"]

JsonObject = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def show(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    metrics: Annotated[
        bool,
        typer.Option(
            "--metrics",
            help="Show how speed scales with batch, depth and model: RTR, ASE, BSR, friction,"
            " break-even, orders. With --json: one JSON object.",
        ),
    ] = False,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="DIR", help="Write cells.csv and slots.csv there."),
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option("--parquet", metavar="DIR", help="Write the same as Parquet (polars)."),
    ] = None,
    json_: options.Json = False,
) -> int:
    """Show the verdict and the table of a run, also while it goes on."""
    from rich.console import Console

    from ngraphbench.report.terminal import print_run
    from ngraphbench.runs import Run
    from ngraphbench.store.rundir import RunDir

    for option, place in (("--csv", csv), ("--parquet", parquet)):
        if place is not None and place.suffix == f".{option[2:]}":
            raise SpecError(
                f"{place} is named as a file, and two tables are written, into a folder.",
                key=option,
                hint=f"Give a folder: {option} {place.with_suffix('')}.",
            )
    run = Run.open(directory)
    if csv is not None or parquet is not None:
        for folder, form in ((csv, "csv"), (parquet, "parquet")):
            for path in run.export(folder, form=form) if folder is not None else ():
                typer.echo(str(path))
        return run.exit_code()
    if metrics:
        return _show_metrics(run, json_=json_)
    if json_:
        sys.stdout.write(json.dumps(run.records(), indent=1) + "\n")
    else:
        print_run(Console(), run.history(), run.sessions(), run.samples)
        if missing := RunDir.open(directory).unrecorded():
            typer.echo(
                f"\n{missing} cell{'s' if missing > 1 else ''} still to come: the run goes on,"
                " or it was stopped\nand the same command goes on from there."
            )
    return run.exit_code()


def _show_metrics(run: Run, *, json_: bool) -> int:
    from rich.console import Console

    from ngraphbench.report.metrics import print_metrics

    found = run.metrics()
    if json_:
        sys.stdout.write(json.dumps(found.to_json(), indent=1) + "\n")
    else:
        print_metrics(Console(), found)
    return run.exit_code()


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Where to write it.", show_default="DIR/report.html"
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures",
            metavar="OUT",
            help="Write the charts there, sized for a column of a paper, each with its values"
            " as CSV; the page only with --html.",
        ),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="svg|pdf|png", help="What figures are written as.")
    ] = "svg",
) -> int:
    """Write the one-file HTML report of a run, or its figures, from its records alone."""
    from ngraphbench.runs import Run

    run = Run.open(directory)
    for path in run.figures(figures, form=form) if figures is not None else ():
        typer.echo(str(path))
    if html is not None or figures is None:
        typer.echo(str(run.report(html)))
    return 0


def list_things(
    what: Annotated[str, typer.Argument(metavar="compilers|models|blocks|devices")] = "compilers",
    options_: Annotated[bool, typer.Option("--options", help="Show compilers' options.")] = False,
    json_: JsonObject = False,
) -> int:
    """List the compilers, the forms a model can take, families of blocks, or the devices."""
    listings = {
        "compilers": _compilers,
        "models": _models,
        "blocks": _blocks,
        "devices": _devices,
    }
    if what not in listings:
        raise SpecError(
            f"There is no list of {what!r}.", hint=f"Choose from {', '.join(listings)}."
        )
    if what == "compilers":
        return _compilers(json_=json_, with_options=options_)
    return listings[what](json_=json_)


def _survey() -> list[Availability]:
    from ngraphbench.environments.topology import default_threads
    from ngraphbench.plugin import discover
    from ngraphbench.session.availability import survey

    return survey(discover(), threads=default_threads())


def _listing(found: list[Availability]) -> dict[str, Any]:
    return {one.name: {**one.to_json(), **_declared(one.compiler)} for one in found}


def _declared(compiler: Compiler | None) -> dict[str, Any]:
    return {
        "accepts": list(compiler.accepts) if compiler else [],
        "options": [
            {
                "name": option.name,
                "type": option.type,
                "default": option.default,
                "choices": list(option.choices),
                "presets": dict(option.presets),
                "help": option.help,
            }
            for option in (compiler.options if compiler else ())
        ],
    }


def _compilers(*, json_: bool, with_options: bool = False) -> int:
    from ngraphbench.cli.printing import print_availability, print_options
    from ngraphbench.plugin import discover, load_compiler

    if with_options and not json_:
        plugins: list[Compiler] = []
        for target in discover().values():
            with suppress(NGraphBenchError):
                plugins.append(load_compiler(target))
        print_options(plugins)
        return 0
    found = _survey()
    if json_:
        sys.stdout.write(json.dumps({"compilers": _listing(found)}, indent=1) + "\n")
    else:
        print_availability(found)
    return 0


MODEL_FORMS = {
    "file.onnx": "an ONNX file, external data beside it",
    "file.pt2": "a program of torch.export",
    "file.torchscript": "TorchScript (also .ts, .pt); needs --input",
    "timm:NAME": "a timm model; arguments as timm:NAME?key=value",
    "torchvision:NAME": "a torchvision model",
    "block:FAMILY": "one block repeated: block:vit?depth=4&width=64&resolution=56",
    "transformers:TYPE": "a model type of transformers, as transformers:bert?hidden_size=128",
    "transformers:FOLDER": "a folder with config.json, and its weights where it has any",
    "file.py:factory": "a function that returns a torch Module, or (Module, example_inputs)",
    "package.module:factory": "the same, importable",
}


def _models(*, json_: bool) -> int:
    from ngraphbench.cli.printing import print_terms

    if json_:
        sys.stdout.write(json.dumps({"models": MODEL_FORMS}, indent=1) + "\n")
        return 0
    print_terms(MODEL_FORMS)
    return 0


def _blocks(*, json_: bool) -> int:
    from ngraphbench.cli.printing import print_blocks
    from ngraphbench.models.blocks import DEFAULTS, FAMILIES, count_block

    try:
        counts = {family: count_block(family, {}) for family in FAMILIES}
    except Unavailable as error:
        counts = {family: {} for family in FAMILIES}
        typer.echo(f"ngb: {error}", err=True)
    if json_:
        listing = {name: {"what": FAMILIES[name], **found} for name, found in counts.items()}
        answer = {"blocks": listing, "sizes": DEFAULTS}
        sys.stdout.write(json.dumps(answer, indent=1) + "\n")
        return 0
    print_blocks(FAMILIES, counts, DEFAULTS)
    return 0


def _devices(*, json_: bool) -> int:
    from ngraphbench.engines.local import LocalEngine
    from ngraphbench.environments.host import host_facts

    devices = LocalEngine().devices()
    if json_:
        sys.stdout.write(json.dumps({"devices": devices, "host": host_facts()}, indent=1) + "\n")
        return 0
    for name, facts in devices.items():
        typer.echo(f"{name:<12} {facts['threads']} threads, Python {facts['python']}")
    return 0


def doctor(json_: JsonObject = False) -> int:
    """Say what works here, what does not and how to cure it, and what disturbs measurement."""
    from ngraphbench.cli.printing import print_availability, print_lines, print_pairs
    from ngraphbench.environments.doctor import examine
    from ngraphbench.session.launches import believed

    known, once = (believed("artefact", launches=launches) for launches in (2, 1))
    found, seen = _survey(), examine(accelerator="cuda")
    if json_:
        listing = _listing(found)
        told = {key: value for key, value in seen.items() if key != "lines"}
        launches = {**asdict(known), "once": asdict(once)}
        answer = {"compilers": listing, **told, "launches": launches}
        sys.stdout.write(json.dumps(answer, indent=1) + "\n")
        return 0
    print_availability(found, forms=False)
    print_lines([""])
    print_pairs(seen["lines"] | {"launches": _launch_line(known, once)})
    quiet = "Nothing seen now that would disturb measurement."
    print_lines(["", *(seen["disturbances"] or [quiet])])
    return 0


def _launch_line(known: Learned, once: Learned) -> str:
    """Return what was learned of how this host's launches differ, by sessions of several or one."""
    if known.sessions:
        return f"those of one program differ by {known.sd:.1%} on this host ({_sessions(known)})"
    alone = f"{once.sd:.1%} where there is one alone"
    if once.sessions:
        return f"those of one program differ by {alone} ({_sessions(once)} of one launch)"
    return f"nothing was learned here yet; believed of one program: {known.sd:.1%}, {alone}"


def _sessions(known: Learned) -> str:
    return "1 session" if known.sessions == 1 else f"{known.sessions} sessions"
