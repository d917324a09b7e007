"""The compilers an experiment compares: options filled in, sweeps spread out, baselines added."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ngraphbench.case import ONNX_BASELINE, CompilerRef, ModelRef, canonical
from ngraphbench.errors import PluginError, SpecError, nearest
from ngraphbench.locks import plain_name
from ngraphbench.plugin import Compiler, RunsPrebuilt, load_compiler, resolve_options
from ngraphbench.spec import CompilerSpec, Experiment, parse_compiler
from ngraphbench.spec_file import Keys
from ngraphbench.types import INT8
from ngraphbench.workload import ARTEFACT

__all__ = ["Candidate", "Candidates", "choose_candidates", "runtime_for"]

EAGER = "eager"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A compiler with its options, and what the plan must know of its plugin.

    ``listed``: the user named it. ``implicit``: it was added without the user naming it
    anywhere. ``problem`` says why its plugin cannot be loaded. ``environment`` is its lock's
    name; ``quantises``: it makes int8 of a model by a calibration set.
    """

    ref: CompilerRef
    accepts: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    environment: str = ""
    quantises: bool = False
    replica: int = 0
    listed: bool = True
    implicit: bool = False
    problem: str = ""

    def takes(self, model: ModelRef) -> bool:
        """Return whether the model has a form for it, as far as its kind tells."""
        if model.kind.startswith(ARTEFACT):
            return model.kind in self.accepts
        return model.kind != "onnx" or "onnx" in self.accepts

    def refusal(self, model: ModelRef) -> str:
        """Return what to say of a model that has no form for it; empty where it has."""
        if self.takes(model):
            return ""
        forms = " or ".join(form for form in self.accepts if not form.startswith(ARTEFACT))
        what = f"an {model.kind}" if model.kind.startswith(ARTEFACT) else "an ONNX file"
        return f"{self.ref.name} takes {forms} models; {model.source} is {what}."

    @property
    def identity(self) -> str:
        return canonical([self.ref.name, self.ref.version, self.ref.options])

    @property
    def label(self) -> str:
        return f"{self.ref.text} #{self.replica + 1}" if self.replica else self.ref.text

    def versions(self, installed: Mapping[str, str]) -> dict[str, str]:
        """Return the versions of its packages that are among ``installed``."""
        known = {plain_name(name): version for name, version in installed.items()}
        named = ((name, plain_name(name)) for name in self.packages)
        return {name: known[plain] for name, plain in named if plain in known}

    def installed(self, installed: Mapping[str, str]) -> bool:
        """Return whether any of its packages is there; True where nothing is known."""
        return not installed or not self.packages or bool(self.versions(installed))


@dataclass(frozen=True, slots=True)
class Candidates:
    """The listed candidates, the baseline, and what is added for some models."""

    listed: tuple[Candidate, ...]
    baseline: Candidate
    onnx_baseline: Candidate | None = None
    control: Candidate | None = None

    def of(self, model: ModelRef, precision: str) -> list[Candidate]:
        """Return the candidates for one model: the baseline first unless it was listed."""
        found = list(self.listed)
        fits = self.baseline.takes(model)
        fits = fits and (precision != INT8 or self.baseline.quantises)
        baseline = self.baseline if fits else self.onnx_baseline
        # An artefact runs under the one compiler that made it.
        baseline = None if model.kind.startswith(ARTEFACT) else baseline
        if baseline and baseline.identity not in {c.identity for c in found}:
            found.insert(0, baseline)
        if self.control and self.control.identity not in {c.identity for c in found}:
            found.append(self.control)
        return found


class _Wanted(NamedTuple):
    spec: CompilerSpec
    keys: Keys
    swept: tuple[str, ...] = ()


def choose_candidates(
    experiment: Experiment,
    *,
    compilers: Mapping[str, str],
    models: Sequence[ModelRef],
    errors: list[SpecError],
) -> Candidates:
    """Return the candidates of an experiment; faults are added to ``errors``.

    ``compilers`` maps the names of plugins to their targets. No vendor is imported.
    """
    listed: list[Candidate] = []
    for wanted in _spread(experiment):
        candidate = _candidate(experiment, wanted, compilers=compilers, errors=errors)
        if candidate is not None:
            replica = sum(other.identity == candidate.identity for other in listed)
            listed.append(replace(candidate, replica=replica))

    def added(text: str, keys: Keys, *, implicit: bool = False) -> Candidate | None:
        wanted = _Wanted(parse_compiler(text), keys)
        found = _candidate(experiment, wanted, compilers=compilers, errors=errors)
        if found is None:
            return None
        same = (other for other in listed if other.identity == found.identity)
        return next(same, replace(found, listed=False, implicit=implicit))

    text = experiment.baseline or _default_baseline(compilers, models, listed)
    baseline = added(text, ("baseline",)) if text else None
    if baseline and baseline.problem:
        errors.append(experiment.error(baseline.problem, ("baseline",), reason="plugin-import"))
    runtime = ONNX_BASELINE.partition(":")[0]
    onnx_baseline = None
    int8 = INT8 in experiment.precision
    if runtime in compilers and (int8 or any(model.kind == "onnx" for model in models)):
        onnx_baseline = added(ONNX_BASELINE, ("baseline",), implicit=True)
    control = added(ONNX_BASELINE, ("control",)) if experiment.control else None
    placeholder = Candidate(CompilerRef(text, ""))
    return Candidates(tuple(listed), baseline or placeholder, onnx_baseline, control)


def runtime_for(model: ModelRef) -> str:
    """Return the name of the plain runtime for a model, for a co-runner that is not compared."""
    return ONNX_BASELINE.partition(":")[0] if model.kind == "onnx" else EAGER


def _spread(experiment: Experiment) -> Iterator[_Wanted]:
    """Yield each listed compiler once for every combination of its swept options."""
    for i, spec in enumerate(experiment.compilers):
        swept = {
            name: values
            for head in dict.fromkeys((spec.name, spec.head))
            for name, values in experiment.sweep.get(head, {}).items()
        }
        for values in itertools.product(*swept.values()):
            options = {**spec.options, **dict(zip(swept, values, strict=True))}
            spread = CompilerSpec(spec.name, spec.version, options)
            yield _Wanted(spread, ("compilers", i, spec.head), tuple(swept))


def _candidate(
    experiment: Experiment,
    wanted: _Wanted,
    *,
    compilers: Mapping[str, str],
    errors: list[SpecError],
) -> Candidate | None:
    spec, keys = wanted.spec, wanted.keys
    if spec.name not in compilers:
        hint = f"{nearest(spec.name, sorted(compilers))} `ngb list compilers` shows them all."
        _note(
            errors,
            experiment.error(
                f"There is no compiler {spec.name!r}.",
                keys,
                reason="unknown-compiler",
                hint=hint.strip(),
            ),
        )
        return None
    target = compilers[spec.name]
    try:
        plugin: Compiler = load_compiler(target)
    except PluginError as error:
        options = dict(spec.options)
        ref = CompilerRef(spec.name, target, options, options, spec.version)
        return Candidate(ref, problem=str(error))
    try:
        options = resolve_options(plugin, spec.options)
    except SpecError as error:
        at = (*keys, error.key)
        if error.key in wanted.swept:
            swept = experiment.sweep.get(spec.head, {})
            at = ("sweep", spec.head if error.key in swept else spec.name, error.key)
        _note(errors, experiment.error(error.message, at, reason=error.reason, hint=error.hint))
        return None
    given = {name: options[name] for name in spec.options}
    ref = CompilerRef(spec.name, target, options, given, spec.version)
    lock = plugin.environment or plugin.name
    accepts, packages = tuple(plugin.accepts), tuple(plugin.packages)
    if isinstance(plugin, RunsPrebuilt):
        accepts = (*accepts, f"{ARTEFACT}{plugin.name}")
    return Candidate(ref, accepts, packages, lock, plugin.quantises)


def _default_baseline(
    compilers: Mapping[str, str], models: Sequence[ModelRef], listed: Sequence[Candidate]
) -> str:
    """Return eager where a model has a torch form, else the runtime without optimising."""
    if EAGER in compilers and any(model.kind != "onnx" for model in models):
        return EAGER
    if ONNX_BASELINE.partition(":")[0] in compilers:
        return ONNX_BASELINE
    return listed[0].ref.text if listed else ""


def _note(errors: list[SpecError], error: SpecError) -> None:
    # A sweep meets the same fault once per combination.
    if str(error) not in map(str, errors):
        errors.append(error)
