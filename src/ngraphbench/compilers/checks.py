"""What every compiler checks alike: the inputs it is given, and what a vendor's error says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ngraphbench.errors import RunFailed, Unsupported
from ngraphbench.types import Arrays, Device, TensorSpec, storage_dtype

__all__ = ["cause", "check_accelerator", "check_form", "check_inputs", "check_open"]


def cause(error: BaseException, *, lines: int = 6) -> str:
    """Return the type and the first ``lines`` lines of an error's text.

    >>> cause(ValueError("bad axis"))
    'ValueError: bad axis'
    """
    text = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    kept = "\n".join(text[:lines])
    return f"{type(error).__name__}: {kept}" if kept else type(error).__name__


def check_inputs(specs: Sequence[TensorSpec], inputs: Arrays) -> None:
    """Return None if ``inputs`` fit ``specs`` in name, shape and dtype; raises RunFailed."""
    for spec in specs:
        found = inputs.get(spec.name)
        if found is None:
            raise RunFailed(
                f"Input {spec.name!r} is missing; there are {sorted(inputs)}.", reason="input"
            )
        wanted = storage_dtype(spec.dtype)
        if found.shape != spec.shape or found.dtype != wanted:
            raise RunFailed(
                f"Input {spec.name!r} must be {wanted} {list(spec.shape)},"
                f" not {found.dtype} {list(found.shape)}.",
                reason="input",
                hint="A program is compiled for one batch size and one set of shapes.",
            )


def check_form(accepts: Iterable[str], forms: Sequence[str], *, name: str) -> None:
    """Return None if a form is accepted, else raise Unsupported."""
    wanted = tuple(accepts)
    if not set(wanted) & set(forms):
        raise Unsupported(
            f"{name} takes {' or '.join(wanted)}; this model comes as {', '.join(forms)}.",
            reason="form",
        )


def check_accelerator(device: Device, *, name: str, known: Sequence[str] = ("cpu",)) -> None:
    """Return None if the device's accelerator is one of ``known``, else raise Unsupported."""
    if device.accelerator not in known:
        raise Unsupported(
            f"{name} does not run on {device.accelerator!r} here.",
            reason="accelerator",
            hint=f"It runs on {', '.join(known)}.",
        )


def check_open(program: object | None, *, name: str) -> None:
    """Return None unless the program is closed (None); raises RunFailed then."""
    if program is None:
        raise RunFailed(f"This {name} program is closed.", reason="closed")
