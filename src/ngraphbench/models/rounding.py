"""How far rounding alone moves a model's outputs, told without running it in fp64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ngraphbench.types import Array, Arrays

if TYPE_CHECKING:
    from ngraphbench.models.reference import Outputs, Runner

__all__ = ["ROUNDING_FACTOR", "own_rounding"]

ROUNDING_FACTOR = 10.0
"""How much further than one unit in the last place of the inputs rounding inside may go."""


def own_rounding(run: Runner, inputs: Arrays, outputs: Outputs) -> float:
    """Return the relative error in ``outputs`` when every float input moves by one unit.

    The unit is that of the last place, up or down at random. A compiler that rounds in
    another order errs about as much from the first layer on. Zero where it cannot be told:
    without float inputs, where the moved ones fail, or where NaN and Inf come and go.
    """
    from ngraphbench.models.reference import relative_error

    random = np.random.default_rng(0)
    moved = {name: _moved(array, random) for name, array in inputs.items()}
    if all(moved[name] is inputs[name] for name in inputs):
        return 0.0
    try:
        far = relative_error(run(moved), outputs)
    except Exception:  # an estimate in passing: the model may refuse what lies out of its range
        return 0.0
    return far if np.isfinite(far) else 0.0


def _moved(array: Array, random: np.random.Generator) -> Array:
    if array.dtype.kind != "f":
        return array
    towards = random.choice([-np.inf, np.inf], array.shape).astype(array.dtype)
    # Zero stays: its neighbours are denormal numbers, which take their own path.
    return np.asarray(np.where(array == 0, array, np.nextafter(array, towards)))
