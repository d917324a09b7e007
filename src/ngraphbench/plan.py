"""From an experiment to sessions: which cells there are, and what is measured side by side."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ngraphbench.blockplan import blocks_s
from ngraphbench.candidates import Candidate, Candidates, choose_candidates, runtime_for
from ngraphbench.case import Case, CompilerRef, Method, ModelRef, Session, canonical
from ngraphbench.environmentplan import Environments
from ngraphbench.errors import SpecError, nearest
from ngraphbench.modelplan import plan_models
from ngraphbench.models.sources import resolve_model
from ngraphbench.plugin import load_compiler, resolve_options
from ngraphbench.profiles import PROFILES, claim_of
from ngraphbench.spec import Experiment, shape_combinations
from ngraphbench.spec_file import join_errors
from ngraphbench.spec_values import split_device
from ngraphbench.types import VENDOR_DEFAULT, VENDOR_THREADS, Device, Json

__all__ = ["Plan", "Skipped", "estimate_s", "joined_plans", "make_plan"]

START_S = 4.0
COMPILE_S = 8.0
EXPORT_S = 10.0
"""Guesses for one process, one compile and one export, for the estimate alone."""

CONTROLS_PER_ROUND = 3
"""Two canaries and the sentinel take a slot each."""


class Skipped(NamedTuple):
    """A cell that is not measured; it becomes a record of stage ``plan``."""

    case: Case
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Every session of an experiment, and the cells that were left out."""

    name: str
    sessions: tuple[Session, ...]
    skipped: tuple[Skipped, ...] = ()

    def cases(self) -> tuple[Case, ...]:
        """Return the cases that will be measured, in the order of the sessions."""
        return tuple(case for session in self.sessions for case in session.cases)

    def narrowed(self, case_ids: Collection[str]) -> Plan:
        """Return the plan of these cases alone, each with the baseline that it has."""
        narrowed = []
        for session in self.sessions:
            wanted = {case.case_id for case in session.cases if case.case_id in case_ids}
            bases = [session.baseline_case(c) for c in session.cases if c.case_id in wanted]
            wanted |= {case.case_id for case in bases if case is not None}
            kept = tuple(case for case in session.cases if case.case_id in wanted)
            if kept:
                narrowed.append(replace(session, cases=kept))
        return Plan(self.name, tuple(narrowed))

    def to_json(self) -> Json:
        return {
            "name": self.name,
            "sessions": [
                {"session_id": session.session_id, **session.to_json()} for session in self.sessions
            ],
            "skipped": [{**s._asdict(), "case": s.case.to_json()} for s in self.skipped],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        return cls(
            name=data["name"],
            sessions=tuple(Session.from_json(item) for item in data["sessions"]),
            skipped=tuple(
                Skipped(**{**item, "case": Case.from_json(item["case"])})
                for item in data["skipped"]
            ),
        )


def make_plan(
    experiment: Experiment, *, base: Path, compilers: Mapping[str, str], facts: Json
) -> Plan:
    """Return the sessions that ``experiment`` asks for.

    ``base`` is where relative paths start, ``compilers`` maps the names of plugins to
    their targets, and ``facts`` holds threads, CPUs (best first), packages and host of each
    device by name.

    Raises SpecError, a line for each fault, for models, compilers, options and devices
    that do not exist.
    """
    errors: list[SpecError] = []
    devices = _devices(experiment, facts, errors)
    models = plan_models(experiment, base=base, errors=errors)
    candidates = choose_candidates(experiment, compilers=compilers, models=models, errors=errors)
    if errors:
        raise join_errors(errors)
    methods = {
        device: _method(experiment, device, base=base, compilers=compilers) for device in devices
    }
    managed = experiment.environments == "managed"
    places = {device.name: Environments(managed, facts[device.name]) for device in devices}
    groups: dict[tuple[Any, ...], list[_Cell]] = {}
    skipped: list[Skipped] = []
    for cell in _cells(experiment, devices=devices, models=models, candidates=candidates):
        found = _skip(cell, places[cell.case.device.name])
        if found:
            skipped.extend([found] if cell.candidate.listed else [])
        else:
            groups.setdefault(_group(experiment, cell.case), []).append(cell)
    sessions = tuple(
        _session(
            experiment,
            cells,
            baseline=candidates.baseline.ref.text,
            places=places[cells[0].case.device.name],
            method=methods[cells[0].case.device],
        )
        for cells in groups.values()
        if any(cell.candidate.listed for cell in cells)
    )
    return Plan(experiment.name, sessions, tuple(skipped))


def joined_plans(plans: Sequence[Plan]) -> Plan:
    """Return one plan of all sessions; it has the name of the first."""
    return Plan(
        plans[0].name,
        tuple(session for plan in plans for session in plan.sessions),
        tuple(skip for plan in plans for skip in plan.skipped),
    )


def estimate_s(plan: Plan) -> float:
    """Return a rough guess of how long the plan takes, in seconds.

    Measuring time comes from the profile; processes, compiles and exports are guessed.
    """
    total = 0.0
    for session in plan.sessions:
        profile = session.profile
        rounds = profile.epochs * profile.rounds_max
        slot_s = profile.slot_ns / 1e9
        each_s = min(rounds * slot_s, profile.budget_ns / 1e9)
        each_s += blocks_s(session.method, profile)
        total += len(session.cases) * (each_s + profile.epochs * (START_S + COMPILE_S))
        total += rounds * CONTROLS_PER_ROUND * slot_s
    workloads = {
        (case.model.content, canonical([case.model.inputs, case.shapes]), case.batch)
        for case in plan.cases()
    }
    return total + len(workloads) * EXPORT_S


class _Cell(NamedTuple):
    case: Case
    candidate: Candidate


def _devices(experiment: Experiment, facts: Json, errors: list[SpecError]) -> list[Device]:
    devices: list[Device] = []
    for i, text in enumerate(experiment.devices):
        host, accelerator = split_device(text)
        if host not in facts:
            hint = f"{nearest(host, sorted(facts))} `ngb list devices` shows what is there."
            message = f"There is no device {host!r}."
            errors.append(
                experiment.error(message, ("devices", i), reason="unknown-device", hint=hint)
            )
            continue
        device = _device(host, accelerator, facts[host], experiment.measure.threads)
        if device in devices:
            message = f"{text!r} is the same device as one before."
            errors.append(experiment.error(message, ("devices", i), reason="duplicate"))
        devices.append(device)
    return devices


def _device(host: str, accelerator: str, found: Json, asked: int | str) -> Device:
    """Return the device with its CPU set: the best CPUs, as many as there are threads.

    Where the vendor decides on threads, the set is that of the default, for the same reason:
    everybody gets the same.
    """
    threads = asked if isinstance(asked, int) else int(found["threads"])
    return Device(
        name=host,
        accelerator=accelerator or "cpu",
        threads=VENDOR_DEFAULT if asked == VENDOR_THREADS else threads,
        cpus=tuple(sorted(found.get("cpus", ())[:threads])),
    )


def _cells(
    experiment: Experiment,
    *,
    devices: Sequence[Device],
    models: Sequence[ModelRef],
    candidates: Candidates,
) -> Iterator[_Cell]:
    for device in devices:
        for precision in experiment.precision:
            for shapes in shape_combinations(experiment):
                for model in models:
                    for batch in experiment.batch_sizes:
                        for candidate in candidates.of(model, precision):
                            case = Case(
                                model=model,
                                compiler=candidate.ref,
                                device=device,
                                batch=batch,
                                precision=precision,
                                shapes=shapes,
                                replica=candidate.replica,
                                label=candidate.label,
                            )
                            yield _Cell(case, candidate)


def _skip(cell: _Cell, places: Environments) -> Skipped | None:
    case, candidate = cell
    name = case.compiler.name
    if candidate.problem:
        return Skipped(case, "unavailable", "plugin-import", candidate.problem)
    if refusal := candidate.refusal(case.model):
        return Skipped(case, "unsupported", "form", refusal)
    if case.calibrated and not candidate.quantises:
        message = (
            f"{name} offers no quantisation after training here; a file with Q/DQ nodes is"
            " measured as it is."
        )
        return Skipped(case, "unsupported", "precision", message)
    choice = places.of(candidate)
    if choice.problem:
        return Skipped(case, "unavailable", choice.reason, choice.problem)
    here = choice.request is None
    if candidate.implicit and here and not candidate.installed(places.facts.get("packages", {})):
        return Skipped(case, "unavailable", "not-installed", f"{name} is not installed.")
    return None


def _group(experiment: Experiment, case: Case) -> tuple[Any, ...]:
    """Return what the cases of one session have in common."""
    model = "" if "model" in experiment.interleave else canonical(case.model.to_json())
    batch = 0 if "batch" in experiment.interleave else case.batch
    precision = "" if "precision" in experiment.interleave else case.precision
    return (case.device, precision, canonical(case.shapes), model, batch)


def _method(
    experiment: Experiment, device: Device, *, base: Path, compilers: Mapping[str, str]
) -> Method:
    """Return how the sessions on ``device`` measure. Raises SpecError for a wrong ``beside``."""
    measure = experiment.measure
    return Method(
        mode=measure.mode,
        claim=claim_of(measure.claim, PROFILES[measure.profile]),
        best=measure.best,
        tails_s=measure.tails,
        rate_per_s=measure.rate,
        in_flight=tuple(measure.in_flight or ()),
        sustained_s=measure.sustained or 0.0,
        beside=_beside(experiment, device, base=base, compilers=compilers),
    )


def _beside(
    experiment: Experiment, device: Device, *, base: Path, compilers: Mapping[str, str]
) -> Case | None:
    """Return the co-runner as a case of batch 1, under the first compiler that takes it."""
    text, keys = experiment.measure.beside, ("measure", "beside")
    if text is None:
        return None
    try:
        model = resolve_model(text, base=base)
    except SpecError as error:
        raise experiment.error(error.message, keys, reason=error.reason, hint=error.hint) from error
    name = runtime_for(model)
    if name not in compilers:
        raise experiment.error(
            f"{text!r} would run beside under {name}, which is not there.", keys, reason="beside"
        )
    plugin = load_compiler(compilers[name])
    ref = CompilerRef(name, compilers[name], resolve_options(plugin, {}))
    return Case(model=model, compiler=ref, device=device, batch=1, label=f"beside {model.label}")


def _session(
    experiment: Experiment,
    cells: Sequence[_Cell],
    *,
    baseline: str,
    places: Environments,
    method: Method,
) -> Session:
    found = places.facts
    packages: dict[str, str] = {}
    for cell in cells:
        if places.of(cell.candidate).request is None:
            packages |= cell.candidate.versions(found.get("packages", {}))
    candidates = [cell.candidate for cell in cells] + _beside_candidates(method)
    own = {c.ref.head: choice for c in candidates if (choice := places.of(c)).request}
    ids = {head: choice.id for head, choice in sorted(own.items())}
    return Session(
        cases=tuple(cell.case for cell in cells),
        baseline=baseline,
        profile=PROFILES[experiment.measure.profile],
        limits=experiment.limits,
        seed=experiment.seed,
        method=method,
        fingerprint={
            "host": found.get("host", ""),
            "cpus": list(cells[0].case.device.cpus),
            "packages": dict(sorted(packages.items())),
            "python": found.get("python") or platform.python_version(),
            **({"environments": ids} if ids else {}),
            **({"power_mode": mode} if (mode := found.get("power_mode")) else {}),
        },
        environments={h: c.request.to_json() for h, c in own.items() if c.request is not None},
    )


def _beside_candidates(method: Method) -> list[Candidate]:
    """Return the co-runner's candidate, where there is one: it too has an environment."""
    if method.beside is None:
        return []
    ref = method.beside.compiler
    plugin = load_compiler(ref.target)
    return [Candidate(ref, plugin.accepts, plugin.packages, plugin.environment or plugin.name)]
