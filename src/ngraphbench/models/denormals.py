"""Denormal numbers: so close to zero that some processors compute with them many times slower."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ngraphbench.types import BFLOAT16, Array

__all__ = ["WEIGHTS", "count_denormals", "describe_denormals", "without_denormals"]

WEIGHTS = "weights"

_LAYOUTS = {
    "float32": (np.uint32, 0x7F800000, 0x007FFFFF),
    "float64": (np.uint64, 0x7FF0000000000000, 0x000FFFFFFFFFFFFF),
    BFLOAT16: (np.uint16, 0x7F80, 0x007F),
}
"""Unsigned type of the same size, bits of the exponent, bits of the fraction.

float16 is left out: its denormals are ordinary small weights, and processors widen them.
"""


def count_denormals(values: Array, dtype: str) -> int:
    """Return how many of ``values`` are denormal in ``dtype``; bfloat16 is uint16 bits.

    Bits are looked at, not numbers: a library may have told the processor to take them
    for zero.
    """
    if dtype not in _LAYOUTS or not values.size:
        return 0
    return int(np.count_nonzero(_are_denormal(values, dtype)))


def without_denormals(values: Array) -> Array:
    """Return a copy of float32 or float64 ``values`` with zeros in place of denormals."""
    found = np.array(values, copy=True, order="C")
    found[_are_denormal(found, found.dtype.name).reshape(found.shape)] = 0
    return found


def _are_denormal(values: Array, dtype: str) -> Array:
    kind, exponent, fraction = _LAYOUTS[dtype]
    bits = np.ascontiguousarray(values).view(kind)
    return np.asarray(((bits & kind(exponent)) == 0) & ((bits & kind(fraction)) != 0))


def describe_denormals(arrays: Iterable[tuple[Array, str]], *, what: str) -> str:
    """Return a phrase on how many there are in ``arrays`` (values, dtype); empty for none."""
    found = total = 0
    for values, dtype in arrays:
        found += count_denormals(values, dtype)
        total += values.size
    return f"{found:,} of {total:,} {what} are denormal numbers" if found else ""
