"""tinygrad: its ONNX runner, captured once as kernels that clang compiles."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ngraphbench.compilers.checks import (
    cause,
    check_inputs,
    check_open,
    check_ran,
    check_request,
    probe_vendor,
)
from ngraphbench.errors import CompileFailed, NGraphBenchError, RunFailed, Unavailable, Unsupported
from ngraphbench.plugin import PRESET, Compiler, Program
from ngraphbench.types import (
    BFLOAT16,
    VENDOR_DEFAULT,
    Arrays,
    Device,
    Json,
    Option,
    OptionValue,
    Support,
)
from ngraphbench.workload import Workload

__all__ = ["Tinygrad"]

INSTALL = "Run `ngb env create tinygrad`, or pip install tinygrad numpy."
NO_CLANG = "tinygrad compiles with clang: install it (apt install clang) or set CC to one."
CPU = "CPU"
THREADS_VARIABLE = "NUM_CPU_THREADS"

# The runner takes one branch, or so many turns, and what is captured then has no other.
DECIDED_ONCE = {"If", "Loop", "Scan"}

# It runs the first call as it is, captures the second, and replays from the third on.
CALLS_TO_CAPTURE = 3


class TinygradProgram(Program):
    """A captured list of kernels. Outputs live in its buffers until the next run."""

    def __init__(self, call: Any, *, workload: Workload) -> None:
        self._call = call
        self._workload = workload
        self._tensors: dict[str, Any] = {}
        self._results: tuple[Any, ...] | None = None
        self._synchronize = importlib.import_module("tinygrad").Device[CPU].synchronize

    def load(self, inputs: Arrays) -> None:
        check_open(self._call, name="tinygrad")
        check_inputs(self._workload.inputs, inputs)
        tensor = importlib.import_module("tinygrad").Tensor
        self._tensors = {
            spec.name: tensor(np.array(inputs[spec.name], copy=True), device=CPU).realize()
            for spec in self._workload.inputs
        }
        self._results = None

    def run(self) -> None:
        if self._call is None:
            check_open(None, name="tinygrad")
        try:
            self._results = self._call(**self._tensors)
        except Exception as error:
            raise RunFailed(f"tinygrad: {cause(error)}", reason="run") from error

    def sync(self) -> None:
        self._synchronize()

    def outputs(self) -> Arrays:
        check_open(self._call, name="tinygrad")
        results = check_ran(self._results)
        return {
            spec.name: np.array(result.numpy(), copy=True, order="C")
            for spec, result in zip(self._workload.outputs, results, strict=True)
        }

    def close(self) -> None:
        self._call = self._results = None
        self._tensors = {}

    def coverage(self) -> Json:
        check_open(self._call, name="tinygrad")
        # What the runner lacks is refused: there is no other engine to fall back to.
        return {
            "share": 1.0,
            "unit": "nodes",
            "parts": {"kernels": len(self._call.captured.linear.src)},
        }


class Tinygrad(Compiler):
    """tinygrad on the CPU, where it computes in the calling thread."""

    name: ClassVar[str] = "tinygrad"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    packages: ClassVar[tuple[str, ...]] = ("tinygrad",)
    threads_env: ClassVar[tuple[str, ...]] = (THREADS_VARIABLE,)
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="beam",
            type="int",
            default=0,
            minimum=0,
            help="width of tinygrad's search among schedules of each kernel; 0: its heuristics",
        ),
    )

    def probe(self, device: Device) -> Support:
        return probe_vendor(self, device, look=_version, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> TinygradProgram:
        check_request(self, workload, device)
        _check(workload, device)
        tinygrad = importlib.import_module("tinygrad")
        helpers = importlib.import_module("tinygrad.helpers")
        settings = {"BEAM": int(options.get("beam", 0)), "PARALLEL": 0}
        if device.threads != VENDOR_DEFAULT:
            settings[THREADS_VARIABLE] = device.threads
        try:
            with helpers.Context(**settings):
                runner = _runner(workload)
                call = tinygrad.TinyJit(_function(runner, workload))
                program = TinygradProgram(call, workload=workload)
                for _ in range(CALLS_TO_CAPTURE):
                    program.load(workload.input_arrays("a"))
                    program.run()
                    program.sync()
        except RunFailed as error:
            raise _translated(error.__cause__ or error) from error
        except NGraphBenchError:
            raise
        except Exception as error:
            raise _translated(error) from error
        return program


def _version() -> str:
    importlib.import_module("tinygrad")
    if not _has_clang():
        raise Unavailable(NO_CLANG)
    return ""


def _has_clang() -> bool:
    """Return whether what tinygrad would call is clang: gcc does not take its arguments."""
    found = shutil.which(os.environ.get("CC", "clang"))
    if found is None:
        return False
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    return "clang" in told.stdout


def _check(workload: Workload, device: Device) -> None:
    if device.threads > 1:
        raise Unsupported(
            f"tinygrad runs its kernels in one thread on the CPU, not in {device.threads}.",
            reason="threads",
            hint="Ask for --threads 1.",
        )
    for spec in (*workload.inputs, *workload.outputs):
        if spec.dtype == BFLOAT16:
            raise Unsupported(f"{spec.name!r} is bfloat16, which numpy lacks.", reason="dtype")


def _runner(workload: Workload) -> Any:
    """Return tinygrad's ONNX runner with the weights in memory. Raises Unsupported."""
    module = importlib.import_module("tinygrad.nn.onnx")
    tensor = importlib.import_module("tinygrad").Tensor
    runner = module.OnnxRunner(workload.onnx_path).to(CPU)
    if found := DECIDED_ONCE & {node.op for node in runner.graph_nodes}:
        raise Unsupported(
            f"tinygrad would decide {', '.join(sorted(found))} while it captures, for all inputs.",
            reason="operator",
        )
    held = [*runner.graph_values.values()]
    held += [value for node in runner.graph_nodes for value in node.opts.values()]
    for value in held:
        # They lie in the file until then, and would be read from it.
        if isinstance(value, tensor):
            value.realize()
    return runner


def _function(runner: Any, workload: Workload) -> Any:
    names = [spec.name for spec in workload.outputs]
    taken = set(runner.graph_inputs)

    def function(**tensors: Any) -> tuple[Any, ...]:
        found = runner({name: value for name, value in tensors.items() if name in taken})
        return tuple(found[name].contiguous().realize() for name in names)

    return function


def _translated(error: BaseException) -> Unsupported | CompileFailed:
    text = f"tinygrad: {cause(error)}"
    if isinstance(error, NotImplementedError):
        return Unsupported(text, reason="operator")
    return CompileFailed(text, reason="compile")
