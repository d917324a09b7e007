"""A labelled set through the uncompiled model, and the metric of what programs made of it."""

from __future__ import annotations

import json
from pathlib import Path

from ngraphbench.models.labelled import read_labelled
from ngraphbench.models.metrics import decoded, score
from ngraphbench.models.origins import Source
from ngraphbench.types import Array, Arrays, Json, TensorSpec
from ngraphbench.worker.evaluation import count_items, predict
from ngraphbench.workload import read_arrays, write_arrays

__all__ = ["evaluate_source", "score_outputs"]

INPUTS, LABELS = "inputs.npz", "labels.npz"


def evaluate_source(source: Source, bound: Path, folder: Path, evaluation: Json) -> Json:
    """Return ``value``, ``items`` and ``axes`` of the set; its arrays go to ``folder``.

    ``bound`` is the folder of a batch size that was exported. Raises SpecError, Unsupported
    or CompileFailed.
    """
    about = json.loads((bound / "batch.json").read_text())
    specs = tuple(TensorSpec.from_json(spec) for spec in about["inputs"])
    batch = int(bound.name.removeprefix("b"))
    axes = _axes(about["axes"], specs, batch)
    labelled = read_labelled(Path(evaluation["file"]), specs, axes=axes)
    run = source.bound(specs, bound)
    outputs = predict(lambda inputs: run(inputs).arrays, labelled.inputs, axes=axes, batch=batch)
    value = _scored(outputs, labelled.labels, evaluation, about)
    folder.mkdir(parents=True, exist_ok=True)
    write_arrays(folder / INPUTS, labelled.inputs)
    write_arrays(folder / LABELS, {"y": labelled.labels})
    return {"value": value, "items": count_items(labelled.inputs, axes), "axes": axes}


def score_outputs(request: Json) -> Json:
    """Return the metric of a program's outputs as ``value``.

    Request: ``folder`` of the set, ``path`` of the outputs, ``evaluation``. Raises SpecError.
    """
    folder = Path(request["folder"])
    about = json.loads((folder.parent / "batch.json").read_text())
    labels = read_arrays(folder / LABELS)["y"]
    outputs = read_arrays(Path(request["path"]))
    return {"value": _scored(outputs, labels, request["evaluation"], about)}


def _scored(outputs: Arrays, labels: Array, evaluation: Json, about: Json) -> float:
    dtypes = {spec["name"]: spec["dtype"] for spec in about["outputs"]}
    ordered = {name: outputs[name] for name in dtypes if name in outputs}
    numbers = decoded(ordered, dtypes)
    return score(numbers, labels, evaluation["metric"], folder=Path(evaluation["folder"]))


def _axes(
    axes: dict[str, int | None], specs: tuple[TensorSpec, ...], batch: int
) -> dict[str, int | None]:
    """Return the batch axes; of a model that fixes its batch, the first axes of that size."""
    if any(axis is not None for axis in axes.values()):
        return axes
    return {s.name: 0 if s.shape and s.shape[0] == batch else None for s in specs}
