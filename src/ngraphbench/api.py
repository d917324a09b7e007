"""The Python interface: the same verbs as the command line.

>>> import ngraphbench as ngb
>>> run = ngb.bench("resnet18.onnx", compilers=["onnxruntime"])  # doctest: +SKIP
>>> run.headline()  # doctest: +SKIP
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ngraphbench.campaign import Campaign
from ngraphbench.case import BENCH_LIMITS
from ngraphbench.engines.fleet import FleetEngine
from ngraphbench.engines.local import LocalEngine
from ngraphbench.errors import NGraphBenchError, SpecError
from ngraphbench.models.sources import resolve_model
from ngraphbench.muster import Fleet, muster
from ngraphbench.plan import Plan, joined_plans
from ngraphbench.plugin import Compiler, discover, load_compiler
from ngraphbench.runs import Run
from ngraphbench.spec import Experiment, build_experiment, load_experiment
from ngraphbench.store.checking import explained
from ngraphbench.store.rundir import RunDir, check_statuses
from ngraphbench.types import Device, Json

__all__ = ["Run", "available", "bench", "execute", "plan_of", "run"]

Observe = Callable[[Json], None]
RUNS = Path("runs")


def _quiet(event: Json) -> None:
    """Watch a run by doing nothing."""


def available(device: Device | None = None) -> dict[str, str]:
    """Return the compilers that work here: name to ``module:attribute``."""
    from ngraphbench.session.probing import probe_all

    targets = discover()
    found = probe_all(targets, device or Device())
    return {name: targets[name] for name, support in found.items() if support.ok}


def bench(
    models: str | Sequence[str],
    *,
    compilers: str | Sequence[str] = (),
    batch_sizes: int | Sequence[int] = (1, 8),
    profile: str = "default",
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    eval_file: str | Path = "",
    metric: str = "",
    observe: Observe = _quiet,
) -> Run:
    """Return the run of some models over some compilers (all that work here when none named).

    ``settings`` are further keys of an experiment file, laid out as there. ``eval_file`` is a
    labelled set, and ``metric`` what is computed on it. Raises SpecError for input that
    cannot be understood.
    """
    names = [models] if isinstance(models, str) else list(models)
    labelled = {"eval": str(eval_file), "metric": metric}
    experiment = bench_experiment(
        [{"model": name, **labelled} for name in names] if any(labelled.values()) else names,
        compilers=[compilers] if isinstance(compilers, str) else compilers,
        batch_sizes=[batch_sizes] if isinstance(batch_sizes, int) else batch_sizes,
        profile=profile,
        settings=settings,
    )
    folder = Path(out) if out is not None else default_folder("bench")
    return execute(experiment, out=folder, observe=observe)


def bench_experiment(
    models: Sequence[Any],
    *,
    compilers: Sequence[str] = (),
    batch_sizes: Sequence[int] = (1, 8),
    profile: str = "default",
    settings: Mapping[str, Any] | None = None,
) -> Experiment:
    """Return the experiment that ``bench`` stands for: models interleaved, short limits."""
    if not compilers:
        # A wrong path should not wait for every compiler to be probed.
        for model in models:
            resolve_model(model if isinstance(model, str) else model["model"], base=Path.cwd())
    data: dict[str, Any] = {
        "name": "bench",
        "models": list(models),
        "compilers": list(compilers) or _worth_running((settings or {}).get("environments")),
        "batch_sizes": list(batch_sizes),
        "interleave": ["compiler", "batch", "model"],
        "measure": {"profile": profile},
        "limits": {
            "first_call": BENCH_LIMITS.first_call_s,
            "compile": BENCH_LIMITS.compile_s,
            "cell": BENCH_LIMITS.cell_s,
        },
    }
    for key, value in (settings or {}).items():
        both = isinstance(value, Mapping) and isinstance(data.get(key), Mapping)
        data[key] = {**data[key], **value} if both else value
    return build_experiment(data)


def _worth_running(environments: str | None) -> list[str]:
    """Return every compiler that works here and belongs to the default set.

    Where environments are managed, "here" is an environment that was made for it.
    """
    message = "No compiler works in this environment."
    if environments == "managed":
        from ngraphbench.environments.managed import environments as made

        message = "There is no managed environment yet."
        names = {one.about["name"] for one in made() if one.state == "ready"}
        found = [
            name
            for name, target in discover().items()
            if (plugin := _plugin(target))
            and plugin.default
            and (plugin.environment or plugin.name) in names
        ]
        hint = "Name compilers with -c, or make environments first: `ngb env create NAME`."
    else:
        found = [name for name, target in available().items() if load_compiler(target).default]
        hint = (
            "Run: pip install 'ngraphbench[all]', or measure those of `ngb env` with"
            " --environments managed; `ngb doctor` says of each why not."
        )
    if not found:
        raise SpecError(message, reason="no-compiler", hint=hint)
    return found


def run(
    experiment: str | Path | Experiment,
    *,
    out: str | Path | None = None,
    retry: Collection[str] = (),
    overrides: Sequence[str] = (),
    observe: Observe = _quiet,
    fleet: Fleet | None = None,
) -> Run:
    """Return the run of an experiment (a file or an object); again in one folder is a resume.

    ``retry`` names statuses whose cells are measured again.
    """
    base = Path.cwd()
    if not isinstance(experiment, Experiment):
        path = Path(experiment)
        experiment = load_experiment(path, overrides=overrides)
        base = path.resolve().parent
    folder = Path(out) if out is not None else RUNS / experiment.name
    return execute(experiment, out=folder, base=base, retry=retry, observe=observe, fleet=fleet)


def default_folder(name: str) -> Path:
    """Return a new run directory's path, named by the time."""
    return RUNS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def plan_of(
    experiment: Experiment, *, base: Path | None = None, fleet: Fleet | None = None
) -> tuple[Plan, LocalEngine | FleetEngine]:
    """Return the plan of an experiment on the devices there are, and the engine to run it."""
    with muster(experiment, base=base or Path.cwd(), fleet=fleet) as found:
        return found.plan, found.engine


def _plugin(target: str) -> Compiler | None:
    try:
        return load_compiler(target)
    except NGraphBenchError:
        # A plugin that cannot be imported is told of by doctor, and in its cells' records.
        return None


def experiment_text(experiment: Experiment) -> str:
    """Return the experiment as YAML, every default written out."""
    import io

    from ruamel.yaml import YAML

    writer, text = YAML(typ="safe", pure=True), io.StringIO()
    writer.default_flow_style = False
    writer.dump(experiment.model_dump(mode="json"), text)
    return text.getvalue()


def execute(
    experiment: Experiment,
    *,
    out: Path,
    base: Path | None = None,
    retry: Collection[str] = (),
    observe: Observe = _quiet,
    remove_environments: bool = False,
    fleet: Fleet | None = None,
    arrange: Callable[[Plan], Plan] | None = None,
) -> Run:
    """Return the finished run of ``experiment`` in folder ``out``.

    ``remove_environments``: those that this run made are gone at its end. ``fleet`` says where
    devices are found that are neither this machine nor behind ssh. ``arrange`` may leave out
    cells of the plan, or say what its sessions keep.
    Raises SpecError before anything is written, Interrupted when the user stops it; running
    again goes on.
    """
    check_statuses(retry)
    with muster(experiment, base=base or Path.cwd(), fleet=fleet) as found:
        plan = arrange(found.plan) if arrange else found.plan
        out = out.resolve()
        directory = RunDir.open(out, create=True)
        with directory.lock():
            directory.write_experiment(experiment_text(experiment))
            directory.write_plan(plan.to_json())
            made: list[str] = []

            def watch(event: Json) -> None:
                if event["event"] == "environment":
                    made.append(event["id"])
                observe(event)

            campaign = Campaign(
                plan, directory, found.engine, watch, retry, arrivals=found.arrivals
            )
            with explained([out]):
                campaign.run()
            plan = joined_plans([plan, *found.late])
            directory.write_plan(plan.to_json())
            if remove_environments:
                found.engine.remove_environments(made)
            for name in campaign.missing:
                observe({"event": "note", "text": f"{name} was not there: run again to resume."})
    observe({"event": "kept", "cells": campaign.kept})
    left_out = [skip.case for skip in plan.skipped]
    return Run(out, tuple(case.case_id for case in [*plan.cases(), *left_out]))
