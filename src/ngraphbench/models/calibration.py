"""The items by which int8 is calibrated: an ``.npz`` file of arrays by input name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ngraphbench.case import ModelRef
from ngraphbench.errors import SpecError
from ngraphbench.models.double import is_quantised
from ngraphbench.models.feeds import Feed
from ngraphbench.models.onnxfile import open_onnx
from ngraphbench.models.values import load_user_inputs
from ngraphbench.types import INT8
from ngraphbench.workload import item_axes, write_arrays

__all__ = ["calibration_problem", "write_calibration"]

HOW = (
    "Give --calib FILE.npz (calib: in an experiment file): some hundred typical items,"
    " saved with numpy.savez(FILE, **{input_name: array})."
)


def calibration_problem(model: ModelRef, precisions: Sequence[str]) -> tuple[str, str] | None:
    """Return why the model cannot be measured at these precisions, and what to do; else None.

    A file that is quantised already is measured as it is.
    """
    int8 = INT8 in precisions
    if not int8 and not model.calibration:
        return None
    if not int8:
        message = f"{model.source}: there is a calibration set, and int8 was not asked for."
        return message, "Add --precision int8, or leave out --calib."
    quantised = model.kind == "onnx" and is_quantised(open_onnx(Path(model.path)).model)
    if quantised and model.calibration:
        return f"{model.source} is quantised already.", "Leave out --calib."
    if quantised or model.calibration:
        return None
    return f"int8 was asked for, and there is no calibration set for {model.source}.", HOW


def write_calibration(path: Path, feed: Feed, *, batch: int, target: Path) -> None:
    """Write the items in the file at ``path`` to ``target``, for a model bound to a batch size.

    The last batch is filled up from the first items. Raises SpecError for a file that lacks
    an input or has unequal numbers of items, Unsupported for other shapes or dtypes.
    """
    held = item_axes(feed.specs, feed.axes, batch=batch)
    wanted = [
        replace(spec, shape=tuple("items" if i == axis else n for i, n in enumerate(spec.shape)))
        for spec in feed.specs
        for axis in (held.get(spec.name),)
    ]
    arrays = load_user_inputs(path, wanted, batch)
    counts = {name: arrays[name].shape[axis] for name, axis in held.items()}
    if len(set(counts.values())) > 1 or not all(counts.values()):
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise SpecError(
            f"{path.name} must hold as many items of each input: {listed}.",
            key="calib",
            reason="calibration",
            hint=HOW,
        )
    for name, axis in held.items():
        rows = np.arange(-(-counts[name] // batch) * batch) % counts[name]
        arrays[name] = np.take(arrays[name], rows, axis=axis)
    write_arrays(target, arrays)
