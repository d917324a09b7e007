"""A labelled set, an ``.npz`` file: arrays by input name, and what is right under ``y``.

A model with a single input may find it under ``x``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ngraphbench.errors import SpecError
from ngraphbench.models.metrics import is_metric
from ngraphbench.models.values import array_names, load_user_inputs, read_array
from ngraphbench.types import Array, Arrays, TensorSpec

__all__ = ["LABEL_KEYS", "Labelled", "check_labelled", "read_labelled"]

LABEL_KEYS = ("y", "labels")
ALIAS = "x"
HOW = "Save it with numpy.savez(file, **{input_name: array}, y=labels)."


@dataclass(frozen=True, slots=True)
class Labelled:
    """``inputs`` as the model takes them but for the number of items, and their labels."""

    inputs: Arrays
    labels: Array


def check_labelled(path: Path, metric: str, *, inputs: Sequence[str] | None) -> None:
    """Raise SpecError for a file without labels or inputs, or a metric of no known form.

    ``inputs`` are the model's, where they are known.
    """
    if not is_metric(metric):
        raise SpecError(
            f"{metric!r} is not a metric.",
            key="metric",
            reason="metric",
            hint="Write top1, or module:function or file.py:function of your own.",
        )
    names = array_names(path)
    _label_key(names, path)
    for name in inputs or ():
        if name not in names and not (len(inputs or ()) == 1 and ALIAS in names):
            raise _missing(path, f"input {name!r}", names)


def read_labelled(
    path: Path, specs: Sequence[TensorSpec], *, axes: Mapping[str, int | None]
) -> Labelled:
    """Return what is in the file, for a model with inputs ``specs`` bound to a batch size.

    ``axes`` holds the batch axis of each input. Raises SpecError for arrays that are missing
    or of unequal length, Unsupported for those of another shape or dtype than the model's.
    """
    names = array_names(path)
    labels = read_array(path, _label_key(names, path))
    alias = len(specs) == 1 and specs[0].name not in names and ALIAS in names
    wanted = [_open(replace(s, name=ALIAS) if alias else s, axes.get(s.name)) for s in specs]
    found = load_user_inputs(path, wanted, 0)
    inputs = dict(zip((spec.name for spec in specs), found.values(), strict=True))
    items = labels.shape[0] if labels.ndim else 0
    if not any(axis is not None for axis in axes.values()):
        raise SpecError(
            f"{path.name} cannot be cut into batches: the model has no input with a batch axis.",
            key="eval",
            reason="eval",
        )
    for key, (name, array) in zip(found, inputs.items(), strict=True):
        axis = axes.get(name)
        if axis is not None and array.shape[axis] != items:
            raise SpecError(
                f"{path.name} holds {array.shape[axis]} items under {key!r} and {items} labels.",
                key="eval",
                reason="eval",
                hint=HOW,
            )
    if not items:
        raise SpecError(f"{path.name} holds no labels.", key="eval", reason="eval", hint=HOW)
    return Labelled(inputs, labels)


def _label_key(names: Sequence[str], path: Path) -> str:
    found = [key for key in LABEL_KEYS if key in names]
    if not found:
        raise _missing(path, f"labels, {LABEL_KEYS[0]!r}", names)
    return found[0]


def _missing(path: Path, what: str, names: Sequence[str]) -> SpecError:
    return SpecError(
        f"{path.name} has no array for {what}; it has: {', '.join(names) or 'none'}.",
        key="eval",
        reason="eval",
        hint=HOW,
    )


def _open(spec: TensorSpec, axis: int | None) -> TensorSpec:
    """Return the input with any number of items."""
    if axis is None:
        return spec
    return replace(spec, shape=(*spec.shape[:axis], "items", *spec.shape[axis + 1 :]))
