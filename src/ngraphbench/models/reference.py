"""Reference outputs: what a candidate's outputs are compared with, and how far to trust them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ngraphbench.errors import first_line
from ngraphbench.models.rounding import own_rounding
from ngraphbench.models.values import from_bfloat16
from ngraphbench.types import BFLOAT16, Array, Arrays, TensorSpec, storage_dtype

__all__ = [
    "Exact",
    "MakeExact",
    "Outputs",
    "Reference",
    "Runner",
    "make_reference",
    "relative_error",
    "same_values",
]

SAME_RTOL = 1e-6
# Beyond these the fp64 run says more about the model than about rounding.
TRUST_RTOL = 1e-2
TRUST_RTOL_HALF = 1e-1
ILL_CONDITIONED_RTOL = 1e-4
ROUNDING_RTOL = 1e-5
NUDGE_FACTOR = 100.0
"""How much more than half a unit in the last place of its values a run may be off by rounding."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Outputs by name; ``dtypes`` tells bfloat16 from the uint16 that holds its bits."""

    arrays: Arrays
    dtypes: Mapping[str, str]

    @property
    def half(self) -> bool:
        """Whether any of them is of half precision."""
        return any(dtype in ("float16", BFLOAT16) for dtype in self.dtypes.values())

    def specs(self) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(name, self.dtypes[name], tuple(array.shape))
            for name, array in self.arrays.items()
        )


Runner = Callable[[Arrays], Outputs]


@dataclass(frozen=True, slots=True)
class Exact:
    """The model in fp64: what runs it, and how."""

    name: str
    run: Runner


class MakeExact(Protocol):
    """Makes the model in fp64; ``nudged``: with weights and inputs half a float32 ulp off.

    ``seconds`` is how long a run in its own precision took.
    """

    def __call__(self, *, seconds: float, nudged: bool) -> Exact: ...


@dataclass(frozen=True, slots=True)
class Reference:
    """Reference outputs for both input sets.

    ``own`` holds the uncompiled model's own outputs for set a, in its own dtypes.
    ``baseline_rel_l2`` is their error against fp64, or what stands for it (``rounding``),
    None where neither is known; ``stateful`` names what a run changes inside the model.
    """

    name: str
    own: Outputs
    a: Arrays
    b: Arrays
    deterministic: bool
    baseline_rel_l2: float | None = None
    ill_conditioned: bool = False
    quantised: bool = False
    stateful: str = ""
    notes: tuple[str, ...] = ()


def make_reference(
    name: str, run: Runner, *, a: Arrays, b: Arrays, exact: MakeExact | None = None
) -> Reference:
    """Return the reference from ``run`` on both sets; from ``exact`` where that is better.

    ``run`` is called twice on set a, to see whether it agrees with itself. ``exact`` makes
    a runner in fp64; its values are used when they are finite and near those of ``run``, or
    far from them because the outputs are ill-conditioned. Raises what ``run`` raises.
    """
    own = run(a)
    started, used = time.monotonic(), time.process_time()
    again = run(a)
    # On a busy machine the wall waits for others; on an idle one CPU time counts each thread.
    seconds = min(time.monotonic() - started, time.process_time() - used)
    other = run(b)
    reference = Reference(
        name=name,
        own=own,
        a=own.arrays,
        b=other.arrays,
        deterministic=same_values(own, again),
        notes=_observations(own),
    )
    if exact is None or not reference.deterministic or not _has_floats(own):
        return reference
    try:
        better = exact(seconds=seconds, nudged=False)
        better_a, better_b = better.run(a), better.run(b)
    except Exception as error:  # whatever the model's code raises on doubles
        note = f"no-fp64: {type(error).__name__}: {first_line(error)}"
        reference = replace(reference, notes=(*reference.notes, note))
        if own.half:
            return reference
        return _with_estimate(
            reference, max(own_rounding(run, a, own), own_rounding(run, b, other))
        )

    def moved() -> float:
        return relative_error(exact(seconds=seconds, nudged=True).run(a), better_a)

    return _with_exact(reference, other, a=better_a, b=better_b, name=better.name, moved=moved)


def _with_estimate(reference: Reference, moved: float) -> Reference:
    """Return the reference with what a unit in the last place of its inputs does to it.

    It stands for the error against fp64 where that is not known, and only where it is large.
    """
    if moved <= ROUNDING_RTOL:
        return reference
    note = f"rounding-estimated: one unit in the last place of the inputs is {moved:.2g} in outputs"
    return replace(
        reference,
        baseline_rel_l2=moved,
        ill_conditioned=moved > ILL_CONDITIONED_RTOL,
        notes=(*reference.notes, note),
    )


def _has_floats(outputs: Outputs) -> bool:
    return any(_is_float(dtype) for dtype in outputs.dtypes.values())


def _with_exact(
    reference: Reference,
    other: Outputs,
    *,
    a: Outputs,
    b: Outputs,
    name: str,
    moved: Callable[[], float],
) -> Reference:
    own = reference.own
    if [*a.arrays] != [*own.arrays] or any(
        a.arrays[n].shape != own.arrays[n].shape for n in own.arrays
    ):
        return replace(reference, notes=(*reference.notes, "no-fp64: other outputs than in fp32"))
    error = max(relative_error(own, a), relative_error(other, b))
    notes = reference.notes
    if not error <= (TRUST_RTOL_HALF if own.half else TRUST_RTOL):
        if not _explained(error, moved):
            note = f"fp64-disagrees: the model's own outputs are {error:.2g} off its fp64 outputs"
            return replace(reference, notes=(*notes, note))
        notes = (*notes, f"ill-conditioned: rounding alone moves the outputs by {error:.2g}")
    return replace(
        reference,
        name=f"{name}-fp64",
        a=_precise(own, a),
        b=_precise(other, b),
        baseline_rel_l2=error,
        ill_conditioned=error > ILL_CONDITIONED_RTOL and not own.half,
        notes=notes,
    )


def _explained(error: float, moved: Callable[[], float]) -> bool:
    """Return whether rounding explains that fp32 and fp64 differ by ``error``.

    It does when the fp64 outputs move as much, but for a factor, once weights and inputs
    are moved by half a unit in the last place of float32. Otherwise the model means
    something else in fp64.
    """
    try:
        return bool(np.isfinite(error)) and error <= NUDGE_FACTOR * moved()
    except Exception:  # what ran once may still run out of memory
        return False


def _precise(own: Outputs, exact: Outputs) -> Arrays:
    """Return the floats of ``exact``; integers stay the model's own, since ties may flip."""
    return {
        name: exact.arrays[name] if _is_float(exact.dtypes[name]) else array
        for name, array in own.arrays.items()
    }


def _observations(outputs: Outputs) -> tuple[str, ...]:
    notes = []
    values = [_values(outputs, name) for name in outputs.arrays]
    if not any(value.size for value in values):
        notes.append("empty-output: the outputs hold no values, so there is nothing to check")
    floats = [value for value in values if value.dtype.kind in "fc" and value.size]
    if any(not np.isfinite(value).all() for value in floats):
        notes.append("not-finite: the reference has NaN or Inf; they must sit in the same places")
    return tuple(notes)


def _is_float(dtype: str) -> bool:
    return dtype == BFLOAT16 or storage_dtype(dtype).kind in "fc"


def _values(outputs: Outputs, name: str) -> Array:
    array = outputs.arrays[name]
    if outputs.dtypes[name] == BFLOAT16:
        return from_bfloat16(array)
    return array


def relative_error(found: Outputs, expected: Outputs) -> float:
    """Return the largest ``|found - expected| / |expected|`` (2-norms) over float outputs.

    Other outputs count only in ``same_values``. Infinite when shapes differ or NaN and Inf
    do not sit in the same places.
    """
    worst = 0.0
    for name in expected.arrays:
        if not _is_float(expected.dtypes[name]):
            continue
        have, want = _values(found, name), _values(expected, name)
        if have.shape != want.shape:
            return float("inf")
        worst = max(worst, _distance(have, want))
    return worst


def _distance(have: Array, want: Array) -> float:
    kind = np.complex128 if want.dtype.kind == "c" else np.float64
    have, want = have.astype(kind).ravel(), want.astype(kind).ravel()
    finite = np.isfinite(want)
    if not np.array_equal(finite, np.isfinite(have)):
        return float("inf")
    if not np.array_equal(have[~finite], want[~finite], equal_nan=True):
        return float("inf")
    difference = float(np.linalg.norm(have[finite] - want[finite]))
    scale = float(np.linalg.norm(want[finite]))
    if difference == 0.0:
        return 0.0
    return difference / scale if scale else float("inf")


def same_values(one: Outputs, other: Outputs, *, rtol: float = SAME_RTOL) -> bool:
    """Return whether both hold the same outputs: floats within ``rtol``, others exactly."""
    if [*one.arrays] != [*other.arrays]:
        return False
    for name, array in one.arrays.items():
        if not _is_float(one.dtypes[name]) and not np.array_equal(array, other.arrays[name]):
            return False
    return relative_error(one, other) <= rtol
