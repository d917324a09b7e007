"""``develop``: the command of the development study."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ngraphbench.cli import options
from ngraphbench.errors import NGraphBenchError

if TYPE_CHECKING:
    from ngraphbench.api import Run
    from ngraphbench.studies.develop import Development

__all__ = ["develop"]


def develop(
    block: Annotated[
        list[str] | None,
        typer.Option("--block", metavar="FAMILY", help="Several may be given: `ngb list blocks`."),
    ] = None,
    depth: Annotated[str, typer.Option("--depth", metavar="1,2,4,8", help="Depths.")] = "1,2,4,8",
    width: Annotated[int, typer.Option("--width", help="Channels, a multiple of 32.")] = 64,
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
    of: Annotated[
        Path | None,
        typer.Option("--of", metavar="DIR", help="Measure nothing: study this run of blocks."),
    ] = None,
    out: options.Out = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Study blocks: do compilers gain from repetition, and how deep fits a limit of latency?"""
    from ngraphbench.api import Run
    from ngraphbench.models.blocks import FAMILIES
    from ngraphbench.studies.develop import develop as study
    from ngraphbench.studies.develop import models_of

    if of is not None:
        run = Run.open(of)
    else:
        depths = options.whole_numbers(depth, key="--depth", what="depths")
        models = models_of(block or list(FAMILIES), depths, width=width, resolution=resolution)
        run = _measured(models, compiler or [], options.batch_list(batch), profile, out)
    found = study(run.history(), run.sessions(), run.samples, limit_ms=limit_ms, count=_count)
    if json_:
        answer = {**asdict(found), "decision": found.decision}
        sys.stdout.write(json.dumps(answer, indent=1) + "\n")
    else:
        _print(run, found)
    return run.exit_code()


def _measured(
    models: list[str], compilers: list[str], batches: list[int], profile: str, out: Path | None
) -> Run:
    from ngraphbench import api
    from ngraphbench.engines.base import Interrupted
    from ngraphbench.report.progress import RunProgress

    with RunProgress() as progress:
        try:
            return api.bench(
                models,
                compilers=compilers,
                batch_sizes=batches,
                profile=profile,
                out=out or api.default_folder("develop"),
                observe=progress.feed,
            )
        except Interrupted:
            raise KeyboardInterrupt from None


def _count(family: str, sizes: Mapping[str, int]) -> Mapping[str, int]:
    from ngraphbench.models.blocks import count_block

    try:
        return count_block(family, sizes)
    except (NGraphBenchError, ImportError):
        # A run from elsewhere may be studied where there is no torch.
        return {}


def _print(run: Run, found: Development) -> None:
    from ngraphbench.cli.printing import print_lines

    findings = [f"{one.sentence}." for one in found.findings]
    viable = [f"{one.sentence}." for one in found.viable]
    print_lines(
        [
            found.decision,
            "",
            *(findings or ["No compiler has results at two depths."]),
            *(["", f"Surely within {found.limit_ms:g} ms:", *viable] if viable else []),
            "",
            "FLOPs stand for what a model can compute; what it can learn is not measured.",
            f"Run: {run.path} (`ngb show --metrics` has the fits)",
        ]
    )
