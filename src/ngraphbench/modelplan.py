"""Which models an experiment has: each found, checked against what is asked of it, and named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ngraphbench.case import ModelRef, canonical
from ngraphbench.errors import SpecError
from ngraphbench.models.calibration import calibration_problem
from ngraphbench.models.inputs import merge_overrides
from ngraphbench.models.sources import check_inputs, resolve_model
from ngraphbench.spec import Experiment, ModelEntry, shape_combinations

__all__ = ["plan_models"]


def plan_models(experiment: Experiment, *, base: Path, errors: list[SpecError]) -> list[ModelRef]:
    """Return the models that are there, with labels that differ; ``errors`` gets the others.

    Relative paths start at ``base``.
    """
    models: list[ModelRef] = []
    known: dict[str, str] = {}
    for i, entry in enumerate(experiment.models):
        try:
            model = _found(entry, base)
        except SpecError as error:
            errors.append(
                experiment.error(error.message, ("models", i), reason=error.reason, hint=error.hint)
            )
            continue
        errors += _shape_errors(experiment, model)
        if (problem := calibration_problem(model, experiment.precision)) is not None:
            message, hint = problem
            keys = ("models", i)
            errors.append(experiment.error(message, keys, reason="calibration", hint=hint))
        identity = canonical([model.content, model.inputs])
        if identity in known:
            message = f"{entry.model!r} is the same model as {known[identity]!r}."
            hint = "List a model once; to check the noise, list a compiler twice."
            errors.append(experiment.error(message, ("models", i), reason="duplicate", hint=hint))
        known.setdefault(identity, entry.model)
        models.append(model)
    return _told_apart(models)


def _found(entry: ModelEntry, base: Path) -> ModelRef:
    return resolve_model(
        entry.model,
        base=base,
        label=entry.label,
        seed=entry.seed,
        args=entry.args,
        checkpoint=entry.checkpoint,
        pretrained=entry.pretrained,
        inputs={name: given.model_dump(exclude_none=True) for name, given in entry.inputs.items()},
        inputs_file=entry.inputs_file,
        eval_file=entry.eval,
        metric=entry.metric,
        calib_file=entry.calib,
    )


def _shape_errors(experiment: Experiment, model: ModelRef) -> list[SpecError]:
    """Return what is wrong with the experiment's shapes for its one model, an ONNX file.

    Of several models, one that does not have the shapes' inputs becomes a record.
    """
    if model.kind != "onnx" or len(experiment.models) > 1 or not experiment.shapes:
        return []
    for shapes in shape_combinations(experiment):
        try:
            check_inputs(Path(model.path), merge_overrides(model.inputs, shapes))
        except SpecError as error:
            return [
                experiment.error(error.message, ("shapes",), reason=error.reason, hint=error.hint)
            ]
    return []


def _told_apart(models: Sequence[ModelRef]) -> list[ModelRef]:
    """Return the models with labels that differ: by source first, then by number."""
    by_label = [model.label for model in models]
    labels = [m.source if by_label.count(m.label) > 1 else m.label for m in models]
    numbers = [labels[:i].count(label) + 1 for i, label in enumerate(labels)]
    return [
        replace(model, label=f"{label} #{number}" if number > 1 else label)
        for model, label, number in zip(models, labels, numbers, strict=True)
    ]
