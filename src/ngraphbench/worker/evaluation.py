"""A labelled set through a program, batch by batch. Never within a timed slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ngraphbench.errors import RunFailed
from ngraphbench.types import Arrays

__all__ = ["count_items", "predict"]


def predict(
    run: Callable[[Arrays], Arrays],
    inputs: Arrays,
    *,
    axes: Mapping[str, int | None],
    batch: int,
) -> Arrays:
    """Return the outputs of ``run`` for every item of ``inputs``, items along the first axis.

    ``axes`` holds the axis of the items of each input; those without are the same in every
    batch. The last batch is filled up with its last item, and what comes of that is dropped.
    Outputs without an axis of the batch's size are left out. Raises RunFailed when none is
    left, and what ``run`` raises.
    """
    items = count_items(inputs, axes)
    parts: dict[str, list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]] = {}
    for start in range(0, items, batch):
        real = min(batch, items - start)
        rows = [min(row, items - 1) for row in range(start, start + batch)]
        for name, array in run(_taken(inputs, axes, rows)).items():
            if batch in array.shape:
                # The first axis of that size: a batch of one is then an axis of one.
                moved = np.moveaxis(array, array.shape.index(batch), 0)
                parts.setdefault(name, []).append(np.array(moved[:real], copy=True))
    if not parts:
        raise RunFailed(
            f"No output has an axis of the batch's size, {batch}: items cannot be told apart.",
            reason="outputs",
        )
    return {name: np.concatenate(found) for name, found in parts.items()}


def count_items(inputs: Arrays, axes: Mapping[str, int | None]) -> int:
    """Return how many items there are: the size of the axes, which is the same for all."""
    sizes = (inputs[name].shape[axis] for name, axis in axes.items() if axis is not None)
    return next(sizes, 0)


def _taken(inputs: Arrays, axes: Mapping[str, int | None], rows: Sequence[int]) -> Arrays:
    return {
        name: array if (axis := axes.get(name)) is None else np.take(array, rows, axis=axis)
        for name, array in inputs.items()
    }
