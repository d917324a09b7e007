"""The deployment study as a verb: race, confirm the finalists, decide, hand over.

>>> import ngraphbench as ngb
>>> wanted = ngb.Constraints(p99_ms=33.0, rate_per_s=30.0)  # doctest: +SKIP
>>> print(ngb.deploy("detector.onnx", wanted).decision)  # doctest: +SKIP
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ngraphbench import api
from ngraphbench.analysis.tables import Evidence
from ngraphbench.errors import SpecError
from ngraphbench.plan import Plan
from ngraphbench.profiles import PROFILES
from ngraphbench.spec import Experiment
from ngraphbench.studies.constraints import Constraints
from ngraphbench.studies.contenders import Contenders, Prefer
from ngraphbench.studies.delivery import Asked, Delivered, deliver
from ngraphbench.studies.deploy import Deployment, Parts, finalists
from ngraphbench.studies.deploy import deploy as decide
from ngraphbench.studies.refinement import run_limits, write_refinement
from ngraphbench.studies.verbs import limited
from ngraphbench.types import Json

__all__ = ["Deployed", "deploy"]

RACE, CONFIRM = "race", "confirm"
TAIL_CALLS = 760
"""A p99 needs 662 calls; some more, since calls alone may be slower than side by side."""
TAIL_LONGEST_S = 600.0


@dataclass(frozen=True, slots=True)
class Deployed:
    """A deployment study: its two runs, the answer, what was handed over, the next cells.

    ``confirm`` is None where there were no finalists.
    """

    path: Path
    race: api.Run
    confirm: api.Run | None
    found: Deployment
    delivered: Delivered
    next_file: Path | None

    @property
    def decision(self) -> str:
        """The decision in words."""
        return self.found.decision


def deploy(
    model: str | Mapping[str, Any] = "",
    constraints: Constraints | None = None,
    *,
    compilers: Sequence[str] = (),
    sweep: Mapping[str, Any] | None = None,
    batch_sizes: Sequence[int] = (1,),
    precisions: Sequence[str] = ("fp32",),
    prefer: Prefer | None = None,
    profile: str = "default",
    out: str | Path | None = None,
    of: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    observe: api.Observe = lambda event: None,
) -> Deployed:
    """Return which candidate to deploy for one model under constraints, and write what it needs.

    ``model`` is a name, or a mapping as in an experiment file (with ``eval`` and ``metric``).
    ``prefer``: ``throughput`` (items/s, what is meant where nothing is said) or ``latency``.
    ``of`` decides anew on a study's folder; constraints and preference are those it had unless
    given. Raises SpecError and StoreError as ``bench`` does.
    """
    if of is not None:
        folder, asked = Path(of), Asked.read(Path(of))
        asked = replace(
            asked, constraints=constraints or asked.constraints, prefer=prefer or asked.prefer
        )
    else:
        folder = Path(out) if out is not None else api.default_folder("deploy")
        asked = Asked(constraints or Constraints(), prefer or "throughput", str(Path.cwd()))
        experiment = _experiment(
            model,
            compilers=compilers,
            batch_sizes=batch_sizes,
            profile=profile,
            settings={
                "sweep": dict(sweep or {}),
                "precision": list(precisions),
                **(settings or {}),
            },
        )
        _measure(experiment, folder, asked, observe)
    return _decide(folder, asked)


def _experiment(
    model: str | Mapping[str, Any],
    *,
    compilers: Sequence[str],
    batch_sizes: Sequence[int],
    profile: str,
    settings: Mapping[str, Any],
) -> Experiment:
    if not model:
        raise SpecError("There is no model to deploy.", reason="models", hint="Name one.")
    measure = {"claim": "artefact", **settings.get("measure", {})}
    return api.bench_experiment(
        [model if isinstance(model, str) else dict(model)],
        compilers=compilers,
        batch_sizes=batch_sizes,
        profile=profile,
        settings={
            "name": "deploy",
            "interleave": ["compiler", "batch", "precision"],
            **limited(settings),
            "measure": measure,
        },
    )


def _measure(experiment: Experiment, folder: Path, asked: Asked, observe: api.Observe) -> None:
    race = experiment.model_copy(
        update={"measure": experiment.measure.model_copy(update={"best": True})}
    )
    run = api.execute(race, out=folder / RACE, observe=observe)
    asked.write(folder)
    wanted, prefer = asked.constraints, asked.prefer
    kept = finalists(_parts(run), wanted, prefer=prefer)
    tried: list[str] = []
    while kept:
        confirmed = _confirm(experiment, run, kept, folder=folder, wanted=wanted, observe=observe)
        tried += kept
        kept = finalists(
            _parts(run), wanted, prefer=prefer, confirmed=_parts(confirmed), tried=tried
        )


def _confirm(
    experiment: Experiment,
    race: api.Run,
    kept: Sequence[str],
    *,
    folder: Path,
    wanted: Constraints,
    observe: api.Observe,
) -> api.Run:
    """Return the run of finalists, these among them, without racing and alone at the rate."""
    update: Json = {"best": False, "rate": wanted.rate_per_s}
    update["tails"] = _tails_s(race, kept, experiment, wanted)
    measure = experiment.measure.model_copy(update=update)

    def arrange(plan: Plan) -> Plan:
        narrowed = plan.narrowed(kept)
        sessions = (replace(session, keep_artifacts=True) for session in narrowed.sessions)
        return replace(narrowed, sessions=tuple(sessions))

    confirm = experiment.model_copy(update={"measure": measure})
    api.execute(confirm, out=folder / CONFIRM, observe=observe, arrange=arrange)
    return api.Run.open(folder / CONFIRM)


def _tails_s(
    run: api.Run, kept: Sequence[str], experiment: Experiment, wanted: Constraints
) -> float | None:
    """Return the seconds of calls alone that a p99 of the slowest finalist takes.

    None, as the profile says, where no p99 of calls back to back is asked for.
    """
    if wanted.p99_ms is None or wanted.rate_per_s is not None:
        return experiment.measure.tails
    calls_ms = [
        float(record["summary"]["latency_ms"]["high"])
        for record in run.records()
        if record["case_id"] in kept
    ]
    needed_s = TAIL_CALLS * max(calls_ms) / 1e3
    usual_s = experiment.measure.tails or PROFILES[experiment.measure.profile].tails_s
    return math.ceil(min(TAIL_LONGEST_S, max(needed_s, usual_s)))


def _parts(run: api.Run | None) -> Parts:
    return (run.history(), run.sessions(), run.samples) if run else ([], [], _nothing)


def _nothing(path: str) -> Any:
    raise FileNotFoundError(path)


def _decide(folder: Path, asked: Asked) -> Deployed:
    folder = folder.resolve()
    race = api.Run.open(folder / RACE)
    confirm = api.Run.open(folder / CONFIRM) if (folder / CONFIRM).is_dir() else None
    found = decide(
        _parts(race),
        _parts(confirm),
        asked.constraints,
        prefer=asked.prefer,
        limits=run_limits(folder / RACE),
    )
    record = _chosen(confirm, found)
    baseline = str(race.sessions()[0]["baseline"]) if race.sessions() else ""
    delivered = deliver(folder, record, base=asked.base, baseline=baseline)
    following = write_refinement(folder, found.refinement, run=folder / CONFIRM)
    return Deployed(folder, race, confirm, found, delivered, following)


def _chosen(confirm: api.Run | None, found: Deployment) -> Json | None:
    """Return the record that the decision is of, the newest of its cell."""
    if found.choice is None or confirm is None:
        return None
    cells = Contenders(Evidence(*_parts(confirm)), found.prefer).cells
    return cells[found.choice.case_id].record
