"""``bench`` and ``run``: the commands that measure."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ngraphbench.cli import options

if TYPE_CHECKING:
    from ngraphbench.muster import Fleet
    from ngraphbench.spec import Experiment

__all__ = ["bench", "run"]


def bench(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="file.onnx, file.pt2, file.torchscript, a compiler's own file, timm:NAME,"
            " torchvision:NAME,"
            " transformers:TYPE or :FOLDER, block:FAMILY, file.py:factory or"
            " package.module:factory. Several are measured side by side.",
        ),
    ],
    compiler: Annotated[
        list[str] | None,
        typer.Option(
            "--compiler",
            "-c",
            metavar="NAME[@VERSION|@/env][:opt=val,...]",
            help="May be given several times; @VERSION and @/path/to/env run side by side.",
            show_default="every compiler that works here",
        ),
    ] = None,
    batch: Annotated[
        str, typer.Option("--batch", "-b", metavar="1,8", help="Batch sizes.")
    ] = "1,8",
    input_: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=SHAPE[:DTYPE][:LO..HI]",
            help="How to make an input, such as images=batchx3x320x320:float32:0..1.",
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option("--inputs", metavar="FILE.npz", help="Your own input arrays, by name."),
    ] = None,
    eval_: Annotated[
        Path | None,
        typer.Option(
            "--eval",
            metavar="FILE.npz",
            help="A labelled set, inputs by name and labels as y: how well is the task done?",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="top1|MODULE:FN",
            help="What is computed on it: FN takes outputs by name and labels.",
            show_default="top1",
        ),
    ] = None,
    calib: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="Typical items by input name, to calibrate int8 by."),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Weights to load into the model.")
    ] = None,
    pretrained: Annotated[
        bool, typer.Option("--pretrained", help="Weights that the model's library downloads.")
    ] = False,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="NAME=1x3x320x320", help="Fix the shape of an input."),
    ] = None,
    precision: Annotated[str, typer.Option(help="fp32, tf32, fp16, bf16 or int8.")] = "fp32",
    threads: Annotated[
        str | None,
        typer.Option(
            metavar="N|vendor-default",
            help="Threads per program: the same for all, or as each vendor ships it.",
            show_default="one per physical core of the fastest class, within the quota",
        ),
    ] = None,
    profile: Annotated[
        str, typer.Option(help="quick (>= 10 % differences), default (>= 3 %) or thorough.")
    ] = "default",
    mode: Annotated[str, typer.Option(help="sync or queued.")] = "sync",
    claim: Annotated[
        str,
        typer.Option(
            help="artefact: launches load one build; compiler: each builds anew from empty caches;"
            " auto: compiler in thorough."
        ),
    ] = "auto",
    best: Annotated[
        bool, typer.Option("--best", help="Race: drop a candidate once it is surely slower.")
    ] = False,
    tails: Annotated[
        str | None,
        typer.Option(
            metavar="10s",
            help="Time of calls back to back, alone, for p50, p90 and p99 (needs 662 calls).",
            show_default="quick none, default 3s, thorough 20s",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="HZ",
            help="Also requests at a fixed rate, alone: response percentiles, missed deadlines.",
        ),
    ] = None,
    in_flight: Annotated[
        str | None,
        typer.Option(
            "--in-flight", metavar="1,2,4", help="Also so many requests at a time: throughput."
        ),
    ] = None,
    sustained: Annotated[
        str | None,
        typer.Option(
            metavar="5min",
            help="Also calls alone for so long: does heat or power slow them down?",
        ),
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Keep another model busy on the same CPUs, under ONNX Runtime or eager.",
        ),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="120s", help="Limit of one cell in one launch.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=VALUE",
            help="One limit of a cell: first_call, compile, cell or memory, as compile=10min.",
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="8GiB", help="Memory limit of one program.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of random weights, inputs and slot order.")] = 0,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[@VERSION][:opt=val,...]",
            help="What all others are compared with.",
            show_default="eager; for ONNX files the unoptimised runtime",
        ),
    ] = None,
    environments: Annotated[
        str,
        typer.Option(help="current: this Python; managed: a locked environment per compiler."),
    ] = "current",
    remove_environments: options.RemoveEnvironments = False,
    device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[/ACCELERATOR]",
            help="local, ssh://HOST for a board, or an agent's name; several work in parallel."
            " ACCELERATOR: cpu, cuda, intel-gpu or npu.",
            show_default="local",
        ),
    ] = None,
    cluster: options.Cluster = None,
    certs: options.Certs = None,
    wait: options.Wait = "0",
    out: options.Out = None,
    strict: Annotated[bool, typer.Option(help="Exit 1 for unstable cells too.")] = False,
    json_: options.Json = False,
) -> int:
    """Measure models over compilers, side by side: zero configuration.

    Example: ngb bench timm:efficientnet_b0 timm:deit_tiny_patch16_224 -b 1,8
    """
    from ngraphbench import api

    settings = options.bench_settings(
        shapes=shape or [],
        precision=precision,
        threads=threads,
        timeout=timeout,
        memory=memory,
        limits=limit or [],
        method={
            "mode": mode,
            "claim": claim,
            "best": best,
            "tails": tails,
            "rate": rate,
            "in_flight": options.in_flight_list(in_flight),
            "sustained": sustained,
            "beside": beside,
        },
        seed=seed,
    )
    settings["environments"] = environments
    if baseline is not None:
        settings["baseline"] = baseline
    if device:
        settings["devices"] = device
    entries = options.model_entries(
        models,
        input_ or [],
        inputs,
        seed=seed,
        checkpoint=checkpoint,
        pretrained=pretrained,
        sets={"eval": str(eval_ or ""), "metric": metric or "", "calib": str(calib or "")},
    )
    batches = options.batch_list(batch)
    experiment = api.bench_experiment(
        entries,
        compilers=compiler or [],
        batch_sizes=batches,
        profile=profile,
        settings=settings,
    )
    folder = out or api.default_folder("bench")
    return _measured(
        experiment,
        folder,
        fleet=options.fleet_of(cluster, certs, wait),
        json_=json_,
        strict=strict,
        remove_environments=remove_environments,
    )


def run(
    experiment: Annotated[Path, typer.Argument(metavar="EXPERIMENT.yaml")],
    out: options.Out = None,
    profile: Annotated[
        str | None, typer.Option(help="quick, default or thorough, instead of the file's.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key, such as limits.cell=60s."),
    ] = None,
    retry: Annotated[
        str,
        typer.Option(metavar="STATUSES", help="Measure cells again: failed,crashed,timeout."),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the cells and a time estimate, run nothing.")
    ] = False,
    remove_environments: options.RemoveEnvironments = False,
    cluster: options.Cluster = None,
    certs: options.Certs = None,
    wait: options.Wait = "0",
    strict: Annotated[bool, typer.Option(help="Exit 1 for unstable cells too.")] = False,
    json_: options.Json = False,
) -> int:
    """Run an experiment file. The same command again resumes, and says what it skipped."""
    from ngraphbench import api
    from ngraphbench.spec import load_experiment

    overrides = list(set_ or [])
    if profile is not None:
        overrides.append(f"measure.profile={profile}")
    loaded = load_experiment(experiment, overrides=overrides)
    base = experiment.resolve().parent
    fleet = options.fleet_of(cluster, certs, wait)
    if dry_run:
        return _show_plan(loaded, base, fleet=fleet, json_=json_)
    folder = out or api.RUNS / loaded.name
    statuses = [part.strip() for part in retry.split(",") if part.strip()]
    return _measured(
        loaded,
        folder,
        fleet=fleet,
        base=base,
        retry=statuses,
        json_=json_,
        strict=strict,
        remove_environments=remove_environments,
    )


def _measured(
    experiment: Experiment,
    folder: Path,
    *,
    fleet: Fleet,
    base: Path | None = None,
    retry: list[str] | None = None,
    json_: bool,
    strict: bool,
    remove_environments: bool = False,
) -> int:
    """Execute, then print the table (or JSON) and where the report lies."""
    from ngraphbench import api
    from ngraphbench.cli.printing import print_outcome
    from ngraphbench.engines.base import Interrupted
    from ngraphbench.report.progress import RunProgress

    kept: list[int] = []
    with RunProgress() as progress:
        try:
            done = api.execute(
                experiment,
                out=folder,
                base=base,
                retry=retry or (),
                observe=_observer(progress.feed, kept),
                remove_environments=remove_environments,
                fleet=fleet,
            )
        except Interrupted:
            raise KeyboardInterrupt from None
    if kept and kept[0]:
        sys.stderr.write(f"{kept[0]} cells were already measured and kept.\n")
    if json_:
        sys.stdout.write(json.dumps(done.records(), indent=1) + "\n")
    else:
        print_outcome(done)
    return done.exit_code(strict=strict)


def _observer(
    feed: Callable[[dict[str, object]], None], kept: list[int]
) -> Callable[[dict[str, object]], None]:
    def observe(event: dict[str, object]) -> None:
        if event["event"] == "kept":
            kept.append(int(str(event["cells"])))
        feed(event)

    return observe


def _show_plan(experiment: Experiment, base: Path, *, fleet: Fleet, json_: bool) -> int:
    from ngraphbench import api
    from ngraphbench.cli.environments import plan_lines
    from ngraphbench.cli.printing import print_lines, print_plan

    plan, _ = api.plan_of(experiment, base=base, fleet=fleet)
    if json_:
        sys.stdout.write(json.dumps(plan.to_json(), indent=1) + "\n")
    else:
        print_plan(plan)
        print_lines(plan_lines(plan))
    return 0
