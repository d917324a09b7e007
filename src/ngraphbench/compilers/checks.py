"""What every compiler checks alike: the inputs it is given, and what a vendor's error says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ngraphbench.errors import CompileFailed, NGraphBenchError, RunFailed, Unsupported
from ngraphbench.plugin import Compiler, Program, package_version
from ngraphbench.types import INT8, Arrays, Device, Support, TensorSpec, storage_dtype
from ngraphbench.workload import Workload

__all__ = [
    "cause",
    "check_accelerator",
    "check_inputs",
    "check_open",
    "check_precision",
    "check_ran",
    "check_request",
    "probe_vendor",
    "ran_once",
]

Ran = TypeVar("Ran", bound=Program)
Results = TypeVar("Results")


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


def probe_vendor(
    compiler: Compiler,
    device: Device,
    *,
    look: Callable[[], str],
    install: str,
    distributions: Sequence[str] = (),
) -> Support:
    """Return whether the vendor is here and works for ``device``; never raises.

    ``look`` imports it and returns its version, or ``""`` where its distribution tells that:
    the first of ``distributions`` that is there, else the first of ``compiler.packages``. What
    ``look`` raises becomes the hint. ``install`` is the cure where something is not installed.
    """
    version = package_version(*(distributions or compiler.packages[:1]))
    try:
        check_accelerator(compiler, device)
        return Support(ok=True, version=look() or version)
    except NGraphBenchError as error:
        return Support(ok=False, version=version, hint=str(error))
    except ImportError as error:
        # With its distribution there, something beside it may be missing or broken.
        hint = f"{cause(error)}. {install}" if version else install
        return Support(ok=False, version=version, hint=hint)
    except Exception as error:
        return Support(ok=False, version=version, hint=cause(error))


def check_request(
    compiler: Compiler,
    workload: Workload,
    device: Device,
    *,
    precisions: Iterable[str] = ("fp32",),
) -> None:
    """Return None if form, accelerator and precision are the compiler's, else raise Unsupported."""
    if not set(compiler.accepts) & set(workload.forms):
        raise Unsupported(
            f"{compiler.name} takes {' or '.join(compiler.accepts)}; this model comes as"
            f" {', '.join(workload.forms)}.",
            reason="form",
        )
    check_accelerator(compiler, device)
    if workload.precision == INT8 and workload.quantised:
        # The model says itself where it is quantised, at whatever precision it is asked for.
        return
    check_precision(workload.precision, name=compiler.name, known=precisions)


def check_precision(precision: str, *, name: str, known: Iterable[str] = ("fp32",)) -> None:
    """Return None if ``precision`` is one of ``known``, else raise Unsupported."""
    wanted = tuple(known)
    if precision not in wanted and precision == "tf32":
        raise Unsupported(
            f"{name} has no tf32 here: TF32 is how GPUs by NVIDIA may multiply float32.",
            reason="precision",
            hint="Ask for it on such a device (local/cuda), with a compiler that has a switch.",
        )
    if precision not in wanted:
        raise Unsupported(
            f"{name} is not set up for precision {precision!r} here.",
            reason="precision",
            hint=f"It runs {', '.join(wanted)}; a model may be exported in another one.",
        )


def check_accelerator(compiler: Compiler, device: Device) -> None:
    """Return None if the compiler takes the device's accelerator, else raise Unsupported."""
    if device.accelerator not in compiler.accelerators:
        raise Unsupported(
            f"{compiler.name} does not run on {device.accelerator!r} here.",
            reason="accelerator",
            hint=f"It runs on {', '.join(compiler.accelerators)}.",
        )


def check_open(program: object | None, *, name: str) -> None:
    """Return None unless the program is closed (None); raises RunFailed then."""
    if program is None:
        raise RunFailed(f"This {name} program is closed.", reason="closed")


def check_ran(results: Results | None) -> Results:
    """Return what the last run left; raises RunFailed for None: there was none."""
    if results is None:
        raise RunFailed("There are no outputs before the first run.", reason="no-run")
    return results


def ran_once(program: Ran, workload: Workload) -> Ran:
    """Return the program after a first run: shapes, memory and kernels are settled there.

    Raises CompileFailed, with the program closed, where it fails.
    """
    try:
        program.load(workload.input_arrays("a"))
        program.run()
        program.sync()
        program.outputs()
    except RunFailed as error:
        program.close()
        raise CompileFailed(f"The first run failed. {error}", reason=error.reason) from error
    return program
