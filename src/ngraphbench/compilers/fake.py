"""A complete compiler without a vendor, for tests: ``y = 2 x + 1``, and faults on request.

It is not among the entry points; name it by its target,
``ngraphbench.compilers.fake:FakeCompiler``.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from ngraphbench import __version__
from ngraphbench.compilers.checks import check_inputs, check_open, check_ran, check_request
from ngraphbench.errors import CompileFailed, RunFailed, Unsupported
from ngraphbench.plugin import PRESET, Compiler, Program
from ngraphbench.types import Array, Arrays, Device, Json, Option, OptionValue, Support, TensorSpec
from ngraphbench.workload import Workload

__all__ = ["FAULTS", "FakeCompiler", "FakeProgram"]

COMPILE_FAULTS = ("compile-error", "compile-hang", "compile-crash", "unsupported")
RUN_FAULTS = ("crash", "exit", "hang", "oom", "flood", "sleep", "orphan", "run-error")
OUTPUT_FAULTS = ("wrong", "nan", "constant", "drop-output")
FAULTS = (
    "none",
    *COMPILE_FAULTS,
    *RUN_FAULTS,
    *OUTPUT_FAULTS,
    "bad-artifact",
    "fallback",
    "dirty",
    "kill-agent",
)
ARTIFACT = "program.json"

EXIT_CODE = 3
FALLBACK_SHARE = 0.4
FLOOD_CHARS = 200_000
OOM_STEP_BYTES = 64 * 1024**2
ORPHAN_S = 600
_UNIT = bytes(16 * 1024)


class FakeProgram(Program):
    """``2 x + 1`` of the inputs in turn, cut or repeated to each output's shape."""

    def __init__(
        self,
        workload: Workload,
        *,
        work_ns: int,
        units: int,
        fault: str,
        found: str = "",
        tuning_s: float | None = None,
    ) -> None:
        self._found = found
        self._tuning_s = tuning_s
        self._workload = workload
        self._inputs = workload.inputs
        self._outputs = workload.outputs
        self._work_ns = work_ns
        self._units = units
        self._fault = fault
        self._loaded: Arrays | None = None
        self._result: Arrays | None = None
        self._open: object | None = object()
        self.held = bytearray()

    def load(self, inputs: Arrays) -> None:
        check_open(self._open, name="fake")
        check_inputs(self._inputs, inputs)
        self._loaded = {spec.name: np.array(inputs[spec.name]) for spec in self._inputs}
        self._result = None

    def run(self) -> None:
        check_open(self._open, name="fake")
        if self._loaded is None:
            raise RunFailed("There are no inputs; load some first.", reason="no-input")
        if self._fault == "sleep":
            time.sleep(self._work_ns / 1e9)
        else:
            _spin(self._work_ns)
            _work(self._units)
        if self._fault in _RUN:
            _RUN[self._fault]()
        sources = list(self._loaded.values())
        self._result = {
            spec.name: _evaluated(sources[i % len(sources)], spec=spec)
            for i, spec in enumerate(self._outputs)
        }

    def outputs(self) -> Arrays:
        check_open(self._open, name="fake")
        arrays = {name: np.array(value) for name, value in check_ran(self._result).items()}
        if self._fault == "drop-output":
            arrays.popitem()
        if self._fault == "constant":
            return {name: np.zeros_like(value) for name, value in arrays.items()}
        if self._fault in ("wrong", "nan"):
            for value in arrays.values():
                floating = np.issubdtype(value.dtype, np.floating)
                value.flat[0] = np.nan if self._fault == "nan" and floating else value.flat[0] + 1
        return arrays

    def close(self) -> None:
        self._open = self._loaded = self._result = None

    lanes_note: ClassVar[str] = "threads of one interpreter: only units of work overlap"

    def lanes(self, count: int) -> list[Program]:
        """Return ``count`` programs that do the same work."""
        check_open(self._open, name="fake")
        same = partial(FakeProgram, self._workload, work_ns=self._work_ns, units=self._units)
        return [same(fault=self._fault) for _ in range(count)]

    def save(self, folder: Path) -> None:
        check_open(self._open, name="fake")
        built = [self._work_ns, self._units, self._fault, self._found]
        (folder / ARTIFACT).write_text(json.dumps(built))
        if self._fault == "bad-artifact":
            (folder / ARTIFACT).write_text("cut off")

    def coverage(self) -> Json:
        share = FALLBACK_SHARE if self._fault == "fallback" else 1.0
        found = {"found": self._found} if self._found else {}
        return {"share": share, "unit": "nodes", "fault": self._fault, **found}

    def tuning_s(self) -> float | None:
        """Return how long the search took, None without a database to search for."""
        return self._tuning_s


class FakeCompiler(Compiler):
    """Pretends to compile any model; what it runs is ``2 x + 1``."""

    name: ClassVar[str] = "fake"
    accepts: ClassVar[tuple[str, ...]] = ("onnx", "torch")
    packages: ClassVar[tuple[str, ...]] = ()
    default: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="work_us",
            type="int",
            default=0,
            minimum=0,
            help="CPU time to spend in each run, in microseconds",
        ),
        Option(
            name="row_us",
            type="int",
            default=0,
            minimum=0,
            help="more of it for each row of the batch",
        ),
        Option(
            name="units",
            type="int",
            default=0,
            minimum=0,
            help="fixed pieces of work in each run, about 10 us each: a known truth to rank",
        ),
        Option(
            name="compile_ms",
            type="int",
            default=0,
            minimum=0,
            help="time to spend in compiling, in milliseconds",
        ),
        Option(
            name="row_mib",
            type="int",
            default=0,
            minimum=0,
            help="memory to hold for each row of the batch, in MiB",
        ),
        Option(name="fault", type="str", default="none", choices=FAULTS, help="what goes wrong"),
        Option(
            name="database",
            type="str",
            default="",
            help="absolute path of a folder that keeps what a search found; else none is made",
            database=True,
        ),
    )

    def probe(self, device: Device) -> Support:
        return Support(ok=True, version=__version__)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> FakeProgram:
        check_request(self, workload, device)
        time.sleep(int(options.get("compile_ms", 0)) / 1e3)
        fault = str(options.get("fault", "none"))
        if fault == "unsupported":
            raise Unsupported("fake was asked not to support this.", reason="operator")
        if fault == "compile-error":
            raise CompileFailed("fake was asked to fail.", reason="compile")
        if fault == "compile-hang":
            _hang()
        if fault == "compile-crash":
            _crash()
        if fault == "dirty":
            _litter()
        if fault == "kill-agent":
            os.kill(os.getppid(), signal.SIGKILL)
        work_us = int(options.get("work_us", 0)) + workload.batch * int(options.get("row_us", 0))
        units = int(options.get("units", 0))
        start = time.monotonic()
        database = str(options.get("database", ""))
        found = _found(Path(database), workload) if database else ""
        program = FakeProgram(
            workload,
            work_ns=work_us * 1000,
            units=units,
            fault=fault,
            found=found,
            tuning_s=time.monotonic() - start if database else None,
        )
        program.held = bytearray(b"\1") * (workload.batch * int(options.get("row_mib", 0)) << 20)
        return program

    def load_artifact(
        self,
        folder: Path,
        workload: Workload,
        device: Device,
        options: Mapping[str, OptionValue],
    ) -> FakeProgram:
        try:
            work_ns, units, fault, found = json.loads((folder / ARTIFACT).read_text())
        except (OSError, ValueError) as error:
            raise CompileFailed(f"fake cannot load it: {error}", reason="artefact") from error
        return FakeProgram(workload, work_ns=work_ns, units=units, fault=fault, found=found)


def _found(database: Path, workload: Workload) -> str:
    """Return what a search finds, which is never the same, or found for this workload before."""
    kept = database / hashlib.sha256(workload.onnx_path.read_bytes()).hexdigest()[:16] / "found.txt"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(secrets.token_hex(8))
    return kept.read_text()


def _evaluated(source: Array, *, spec: TensorSpec) -> Array:
    shape = tuple(int(dim) for dim in spec.shape)
    with np.errstate(all="ignore"):
        result = source * 2 + 1 if source.dtype != np.bool_ else ~source
    return np.array(np.resize(result, shape).astype(spec.dtype, copy=False))


def _spin(work_ns: int) -> None:
    if work_ns <= 0:
        return
    end_ns = time.thread_time_ns() + work_ns
    while time.thread_time_ns() < end_ns:
        pass


def _work(units: int) -> None:
    for _ in range(units):
        hashlib.sha256(_UNIT).digest()


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _exit() -> None:
    os._exit(EXIT_CODE)


def _hang() -> None:
    while True:
        time.sleep(3600)


def _litter() -> None:
    """Leave files where compilers do, and a daemon in a session of its own."""
    for place in (Path.home(), Path("/tmp"), Path("/dev/shm")):
        (place / f"ngb-dirt-{os.getpid()}").write_text("left")
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execv(sys.executable, [sys.executable, "-c", f"import time; time.sleep({ORPHAN_S})"])


def _exhaust() -> None:
    held = []
    while True:
        held.append(bytearray(b"\1") * OOM_STEP_BYTES)


def _flood() -> None:
    sys.stdout.write("y" * FLOOD_CHARS + "\n")
    sys.stdout.flush()


def _orphan() -> None:
    # The child inherits the environment, by which a sweep must find it.
    subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({ORPHAN_S})"])
    os._exit(EXIT_CODE)


def _raise() -> None:
    raise RunFailed("fake was asked to fail in run.", reason="run")


_RUN: dict[str, Callable[[], None]] = {
    "crash": _crash,
    "exit": _exit,
    "hang": _hang,
    "oom": _exhaust,
    "flood": _flood,
    "orphan": _orphan,
    "run-error": _raise,
}
