"""The numerical verdict on the very program that is timed. Pure functions of arrays.

Tolerances are start values on the relative L2 error; a candidate is ``wrong`` only when
its error is also more than ten times the uncompiled model's own error against fp64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ngraphbench.types import BFLOAT16, Array, Json, TensorSpec
from ngraphbench.workload import NO_REFERENCE

__all__ = ["BASELINE_FACTOR", "TOLERANCES", "Reference", "Verification", "check", "merge"]

TOLERANCES: Mapping[str, float] = {
    "fp64": 1e-10,
    "fp32": 1e-4,
    "tf32": 1e-2,
    "fp16": 1e-2,
    "bf16": 3e-2,
    "int8": 5e-2,
}
"""Largest relative L2 error by precision before a result is called wrong."""

BASELINE_FACTOR = 10.0
DISTINCT = 0.5
"""Outputs further off than half their size say nothing, whatever the tolerance: zeros are 1 off."""

_PRECISION_OF = {"float64": "fp64", "float32": "fp32", "float16": "fp16", BFLOAT16: "bf16"}
_QUANTISED = ("int8", "uint8")
_COARSENESS = ("fp64", "fp32", "tf32", "fp16", "bf16", "int8")


@dataclass(frozen=True, slots=True)
class Reference:
    """What outputs are compared with: arrays, their true dtypes, and what is known of them.

    ``spread`` is how far the outputs of the two input sets are apart, relative to their
    size; ``stateful`` names what a run changes inside the model.
    """

    name: str
    arrays: Mapping[str, Array]
    outputs: Sequence[TensorSpec]
    deterministic: bool = True
    constant: bool = False
    baseline_rel_l2: float | None = None
    ill_conditioned: bool = False
    quantised: bool = False
    stateful: str = ""
    spread: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verification:
    """Verdict ``ok | wrong | unverifiable | constant`` with its evidence, over all outputs."""

    verdict: str
    reason: str = ""
    max_abs: float | None = None
    rel_l2: float | None = None
    tolerance: float | None = None
    smallest_rtol: float | None = None
    baseline_rel_l2: float | None = None
    reference: str = ""
    outputs: tuple[Json, ...] = ()
    checks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> Json:
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "max_abs": self.max_abs,
            "rel_l2": self.rel_l2,
            "tolerance": self.tolerance,
            "smallest_rtol": self.smallest_rtol,
            "baseline_rel_l2": self.baseline_rel_l2,
            "reference": self.reference,
            "outputs": list(self.outputs),
            "checks": list(self.checks),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class _Difference:
    """One output against its reference; ``reason`` names what cannot even be compared."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    reason: str = ""
    message: str = ""
    max_abs: float = 0.0
    rel_l2: float = 0.0
    smallest_rtol: float = 0.0
    tolerance: float = 0.0
    compared: int = 0
    note: str = ""

    def to_json(self) -> Json:
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "max_abs": _finite(self.max_abs),
            "rel_l2": _finite(self.rel_l2),
        }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def check(outputs: Mapping[str, Array], reference: Reference, precision: str) -> Verification:
    """Return the verdict on one set of outputs.

    Integers and booleans must be equal, NaN and infinities sit in the same places, names
    and shapes agree. An empty comparison is not a pass. A reference that disagrees with
    itself makes the cell ``unverifiable``.
    """
    head = Verification(
        "ok",
        reference=reference.name,
        baseline_rel_l2=reference.baseline_rel_l2,
        notes=reference.notes,
    )
    missing = [spec.name for spec in reference.outputs if spec.name not in outputs]
    if missing:
        return replace(
            head,
            verdict="wrong",
            reason="outputs",
            notes=(*head.notes, f"missing outputs: {missing}"),
        )
    if reference.name == NO_REFERENCE:
        return _unreferenced(head, outputs, reference)
    found = [_difference(spec, outputs, reference, precision) for spec in reference.outputs]
    worst = max(found, key=lambda d: d.rel_l2 / d.tolerance if d.tolerance else 0, default=None)
    head = replace(
        head,
        outputs=tuple(d.to_json() for d in found),
        max_abs=_finite(max((d.max_abs for d in found), default=0.0)),
        rel_l2=_finite(worst.rel_l2) if worst else None,
        tolerance=worst.tolerance if worst else None,
        smallest_rtol=_finite(max((d.smallest_rtol for d in found), default=0.0)),
        notes=(*head.notes, *(d.note for d in found if d.note)),
    )
    return _judge(head, found, reference)


def _unreferenced(
    head: Verification, outputs: Mapping[str, Array], reference: Reference
) -> Verification:
    """Return that nothing is known of the values; shapes are as they were seen."""
    seen = [
        {"name": s.name, "dtype": str(outputs[s.name].dtype), "shape": [*outputs[s.name].shape]}
        for s in reference.outputs
    ]
    told = tuple({**one, "max_abs": None, "rel_l2": None} for one in seen)
    note = "it is a prebuilt artefact, and there is nothing to compare its outputs with"
    notes = (*head.notes, note)
    return replace(head, verdict="unverifiable", reason="prebuilt", outputs=told, notes=notes)


def _judge(head: Verification, found: Sequence[_Difference], reference: Reference) -> Verification:
    shape = next((d for d in found if d.reason in ("shape", "dtype")), None)
    if shape is not None:
        return replace(
            head, verdict="wrong", reason=shape.reason, notes=(*head.notes, shape.message)
        )
    if not reference.deterministic:
        note = "the reference differs from itself between two runs"
        reason = "non-deterministic"
        if reference.stateful:
            note, reason = f"a run changes {reference.stateful} inside the model", "stateful"
        return replace(head, verdict="unverifiable", reason=reason, notes=(*head.notes, note))
    bad = next((d for d in found if d.reason), None)
    if bad is not None:
        return replace(head, verdict="wrong", reason=bad.reason, notes=(*head.notes, bad.message))
    verdict, reason, note = _worth(found, reference)
    notes = (*head.notes, note) if note else head.notes
    return replace(head, verdict=verdict, reason=reason, notes=notes)


def _worth(found: Sequence[_Difference], reference: Reference) -> tuple[str, str, str]:
    """Return verdict, reason and note for outputs that agree: what their agreement proves."""
    if not found or all(0 in d.shape for d in found):
        note = "there was nothing to compare: an empty comparison is not a pass"
        return "unverifiable", "empty", note
    if not any(d.compared for d in found):
        return "unverifiable", "not-finite", "no output has a finite value to compare"
    far = max(d.rel_l2 for d in found)
    if reference.ill_conditioned and far > DISTINCT:
        own = reference.baseline_rel_l2 or 0.0
        note = (
            f"ill-conditioned: {far:.2g} off, where rounding alone moves the uncompiled"
            f" model by {own:.2g}"
        )
        return "unverifiable", "ill-conditioned", note
    if reference.constant:
        note = "outputs do not depend on the inputs: agreement proves nothing"
        return "constant", "constant", note
    limits = [d.tolerance for d in found if d.tolerance]
    if reference.spread is not None and limits and reference.spread <= min(limits):
        note = (
            f"outputs of different inputs are only {reference.spread:.2g} apart, within the"
            " tolerance: agreement proves nothing"
        )
        return "constant", "constant", note
    return "ok", "", ""


def _difference(
    spec: TensorSpec, outputs: Mapping[str, Array], reference: Reference, precision: str
) -> _Difference:
    expected = np.asarray(reference.arrays[spec.name])
    got = np.asarray(outputs[spec.name])
    base = _Difference(spec.name, str(got.dtype), tuple(int(n) for n in got.shape))
    if got.shape != expected.shape:
        message = f"{spec.name}: shape {list(got.shape)}, expected {list(expected.shape)}"
        return replace(base, reason="shape", message=message)
    kind = "f" if spec.dtype == BFLOAT16 else np.dtype(spec.dtype).kind
    rounded = reference.quantised and spec.dtype in _QUANTISED
    if kind in "biu" and not rounded:
        return _exact(base, got, expected, spec)
    bits = spec.dtype == BFLOAT16 and got.dtype == np.uint16
    narrow = not bits and _narrower(got, spec.dtype, precision)
    if (got.dtype.kind != kind and not bits) or narrow:
        message = f"{spec.name}: dtype {got.dtype}, expected {spec.dtype}"
        return replace(base, reason="dtype", message=message)
    if not bits and str(got.dtype) != spec.dtype:
        base = replace(base, note=f"{spec.name}: {got.dtype}, not {spec.dtype}")
    limit = TOLERANCES["int8"] if reference.quantised else _tolerance(spec.dtype, precision)
    return _approximate(base, got, expected, spec=spec, limit=limit, reference=reference)


def _narrower(got: Array, dtype: str, precision: str) -> bool:
    """Return whether ``got`` holds fewer bits than the output has and the user asked for."""
    if got.dtype.kind != "f" or dtype == BFLOAT16 or precision not in ("fp32", "fp64"):
        return False
    return got.dtype.itemsize < np.dtype(dtype).itemsize


def _tolerance(dtype: str, precision: str) -> float:
    """Return the tolerance of the coarser of the asked precision and the output's dtype."""
    own = _PRECISION_OF.get(dtype, "fp32")
    asked = precision if precision in TOLERANCES else "fp32"
    # A float64 output of an fp32 model is only as exact as fp32 was asked for.
    return TOLERANCES[max(own, asked, key=_COARSENESS.index)]


def _exact(base: _Difference, got: Array, expected: Array, spec: TensorSpec) -> _Difference:
    if got.dtype.kind not in "biu":
        message = f"{spec.name}: dtype {got.dtype}, expected {spec.dtype}"
        return replace(base, reason="dtype", message=message)
    note = "" if str(got.dtype) == spec.dtype else f"{spec.name}: {got.dtype}, not {spec.dtype}"
    base = replace(base, compared=expected.size)
    unequal = int(np.count_nonzero(got != expected))
    if not unequal:
        return replace(base, note=note)
    worst = float(np.max(np.abs(got.astype(np.float64) - expected.astype(np.float64))))
    message = f"{spec.name}: {unequal} of {got.size} {spec.dtype} values differ"
    return replace(base, reason="values", message=message, max_abs=worst, rel_l2=np.inf, note=note)


def decode(values: Array, dtype: str) -> Array:
    """Return ``values`` in double precision; bfloat16 bits in uint16 become numbers."""
    if dtype == BFLOAT16 and values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _approximate(
    base: _Difference,
    got: Array,
    expected: Array,
    *,
    spec: TensorSpec,
    limit: float,
    reference: Reference,
) -> _Difference:
    value, target = decode(got, spec.dtype), decode(expected, spec.dtype)
    finite = np.isfinite(target)
    same = np.array_equal(finite, np.isfinite(value)) and np.array_equal(
        target[~finite], value[~finite], equal_nan=True
    )
    base = replace(base, tolerance=limit, compared=int(np.count_nonzero(finite)))
    if not same:
        message = f"{spec.name}: NaN or infinity where the reference has none, or the reverse"
        return replace(base, reason="nan", message=message, max_abs=np.inf, rel_l2=np.inf)
    error = np.abs(value[finite] - target[finite])
    norm = float(np.linalg.norm(target[finite]))
    size = float(np.linalg.norm(error))
    rel_l2 = size / norm if norm else (0.0 if size == 0 else np.inf)
    nonzero = np.abs(target[finite]) > 0
    rtol = float(np.max(error[nonzero] / np.abs(target[finite][nonzero]), initial=0.0))
    base = replace(
        base,
        max_abs=float(np.max(error, initial=0.0)),
        rel_l2=rel_l2,
        smallest_rtol=rtol,
    )
    allowed = max(limit, BASELINE_FACTOR * (reference.baseline_rel_l2 or 0.0))
    if rel_l2 > allowed:
        message = f"{spec.name}: relative L2 error {rel_l2:.2g}, allowed {allowed:.2g}"
        return replace(base, reason="values", message=message)
    return base


_ORDER = ("ok", "constant", "unverifiable", "wrong")


def merge(checks: Mapping[str, Verification]) -> Verification:
    """Return one verdict for several input sets: the worst, with every check named.

    Outputs that are constant over the sets stay ``constant``. ``after`` is the check once
    timing is over: a program that was right before and wrong after has drifted.
    """
    worst = max(checks.values(), key=lambda v: _ORDER.index(v.verdict))
    name = next(key for key, value in checks.items() if value is worst)
    reason = "drifted" if name == "after" and worst.verdict == "wrong" else worst.reason
    notes = tuple(dict.fromkeys(note for v in checks.values() for note in v.notes))
    return replace(
        worst,
        reason=reason,
        checks=tuple(checks),
        notes=notes,
        max_abs=_largest(v.max_abs for v in checks.values()),
        rel_l2=_largest(v.rel_l2 for v in checks.values()),
        smallest_rtol=_largest(v.smallest_rtol for v in checks.values()),
    )


def _largest(values: Iterable[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)
