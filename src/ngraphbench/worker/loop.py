"""What a worker does: answer requests on its socket, one at a time, until told to close.

Whatever a plugin raises becomes an error answer; only a crash of the process ends it.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ngraphbench.errors import (
    CompileFailed,
    RunFailed,
    Unavailable,
    Unsupported,
    WorkerFailed,
)
from ngraphbench.plugin import (
    Compiler,
    LoadsArtifact,
    Program,
    ReportsCoverage,
    ReportsDeviceMemory,
    ReportsTuning,
    RunsPrebuilt,
    SavesArtifact,
    load_compiler,
    package_version,
    resolve_options,
)
from ngraphbench.types import BFLOAT16, Arrays, Device, Json, TensorSpec
from ngraphbench.worker.binding import bind
from ngraphbench.worker.blocks import ROWS, lane_outputs, measure_block
from ngraphbench.worker.busy import Busy, is_asked
from ngraphbench.worker.evaluation import predict
from ngraphbench.worker.failures import error_answer
from ngraphbench.worker.protocol import ConnectionClosed, ProtocolError, receive, send
from ngraphbench.worker.timing import measure_slot, time_calls
from ngraphbench.workload import (
    ARTEFACT,
    INPUT_SETS,
    PORTABLE,
    Workload,
    read_arrays,
    write_arrays,
)

__all__ = ["Operation", "Worker", "serve"]

Operation: TypeAlias = Callable[[Json], Json]

_VARIABLES = (
    *("OMP", "MKL", "OPENBLAS", "KMP", "MALLOC_"),
    *("TORCH", "ORT", "OV_", "OPENVINO", "CUDA"),
)
_VARIABLES_LEFT_OUT = ("TORCH_HOME",)


def serve(sock: socket.socket, operations: Mapping[str, Operation] | None = None) -> None:
    """Answer requests until ``close`` or the end of the stream, then return.

    ``operations`` maps each op to a function from request to answer; without it, those of
    a ``Worker``.
    """
    worker = Worker()
    known = worker.operations() if operations is None else operations
    while True:
        while worker.busy.program is not None and not is_asked(sock):
            worker.busy.step()
        try:
            request = receive(sock)
            op = str(request.get("op", ""))
            reply = {"id": request.get("id")} | _answer(known, op, request)
            try:
                send(sock, reply)
            except (ProtocolError, ValueError, TypeError) as error:
                send(sock, {"id": request.get("id"), "ok": False, "error": error_answer(error, op)})
        except ConnectionClosed:
            return
        if op == "close":
            return


def _answer(known: Mapping[str, Operation], op: str, request: Json) -> Json:
    try:
        if op not in known and op != "close":
            raise WorkerFailed(
                f"The worker has no operation {op!r}; it has {', '.join(sorted(known))}.",
                status="failed",
                reason="protocol",
            )
        return {"ok": True} | (known[op](request) if op in known else {})
    except BaseException as error:  # SystemExit too: a plugin must not end the worker
        failure = error_answer(error, op)
        with suppress(Exception):
            print(failure["traceback"], file=sys.stderr, flush=True)
        return {"ok": False, "error": failure}


class Worker:
    """The operations on one compiler and its one program."""

    def __init__(self) -> None:
        self._target = ""
        self._device = Device()
        self._loaded: Compiler | None = None
        self._workload: Workload | None = None
        self._program: Program | None = None
        self.busy = Busy()

    def operations(self) -> dict[str, Operation]:
        """Return the function of each op, by its name in the protocol."""
        return {
            "hello": self.hello,
            "import": self.import_compiler,
            "probe": self.probe,
            "compile": self.compile,
            "signature": self.signature,
            "save_artifact": self.save_artifact,
            "load_artifact": self.load_artifact,
            "load": self.load,
            "run": self.run,
            "outputs": self.outputs,
            "slot": self.slot,
            "block": self.block,
            "predict": self.predict,
            "busy": self.keep_busy,
            "close": self.close,
        }

    def hello(self, request: Json) -> Json:
        self._target = request["plugin"]
        self._device = Device.from_json(request.get("device", {}))
        # Before the vendor is imported: it counts CPUs and starts threads then.
        bound = bind(self._device.cpus)
        sys.path += [p for p in request.get("search_path", ()) if p not in sys.path]
        return {"pid": os.getpid(), "python": platform.python_version(), "binding": bound}

    def import_compiler(self, request: Json) -> Json:
        compiler = self._compiler()
        support = compiler.probe(self._device)
        if not support.ok:
            raise Unavailable(
                f"{compiler.name} cannot be used here.", reason="probe", hint=support.hint
            )
        return {
            "version": support.version or package_version(*compiler.packages),
            "packages": _versions(compiler.packages),
            "variables": _variables(compiler),
        }

    def probe(self, request: Json) -> Json:
        return {"support": self._compiler().probe(self._device).to_json()}

    def compile(self, request: Json) -> Json:
        compiler = self._compiler()
        workload = _workload(request)
        prebuilt = f"{ARTEFACT}{compiler.name}" in workload.forms
        if not prebuilt:
            _check_forms(compiler, workload)
        options = resolve_options(compiler, request.get("options") or {})
        self._end_program()
        start = time.perf_counter_ns()
        if prebuilt and isinstance(compiler, RunsPrebuilt):
            path = workload.artefact_path
            program = compiler.open_prebuilt(path, workload, self._device, options)
        else:
            program = compiler.compile(workload, self._device, options)
        seconds = (time.perf_counter_ns() - start) / 1e9
        held = self._hold(program, workload)
        tuning_s = _told(program.tuning_s) if isinstance(program, ReportsTuning) else None
        return {"seconds": seconds - (tuning_s or 0.0), "tuning_s": tuning_s, **held}

    def signature(self, request: Json) -> Json:
        """Return the inputs and outputs of the artefact ``path``, which its compiler reads."""
        compiler = self._compiler()
        if not isinstance(compiler, RunsPrebuilt):
            raise Unsupported(f"{compiler.name} runs no prebuilt artefacts.", reason="form")
        given = [TensorSpec.from_json(spec) for spec in request.get("given", ())]
        inputs, outputs = compiler.signature(Path(request["path"]), given)
        return {
            "inputs": [spec.to_json() for spec in inputs],
            "outputs": [spec.to_json() for spec in outputs],
        }

    def save_artifact(self, request: Json) -> Json:
        """Write the program to the folder ``path``; ``bytes`` is None where it cannot."""
        program, folder = self._built(), Path(request["path"])
        if not isinstance(program, SavesArtifact) or not isinstance(
            self._compiler(), LoadsArtifact
        ):
            return {"bytes": None}
        folder.mkdir(parents=True)
        try:
            program.save(folder)
        except Unsupported:
            return {"bytes": None}
        return {"bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())}

    def load_artifact(self, request: Json) -> Json:
        compiler = self._compiler()
        assert isinstance(compiler, LoadsArtifact), "save_artifact has said so"
        workload = _workload(request)
        options = resolve_options(compiler, request.get("options") or {})
        self._end_program()
        start = time.perf_counter_ns()
        program = compiler.load_artifact(Path(request["path"]), workload, self._device, options)
        seconds = (time.perf_counter_ns() - start) / 1e9
        return {"seconds": seconds, **self._hold(program, workload)}

    def _hold(self, program: Program, workload: Workload) -> Json:
        """Keep the program, and return what it says of itself."""
        if not isinstance(program, Program):
            raise CompileFailed(
                f"{self._compiler().name} returned a {type(program).__name__}, not a Program.",
                reason="plugin-type",
                hint="It must return an ngraphbench.plugin.Program.",
            )
        self._workload, self._program = workload, program
        return {
            "coverage": _told(program.coverage) if isinstance(program, ReportsCoverage) else None,
            "device_memory_bytes": _told(program.device_memory_bytes)
            if isinstance(program, ReportsDeviceMemory)
            else None,
        }

    def load(self, request: Json) -> Json:
        program = self._built()
        if request.get("path"):
            arrays = read_arrays(Path(request["path"]))
        else:
            assert self._workload is not None
            arrays = self._workload.input_arrays(request.get("set", "a"))
        start = time.perf_counter_ns()
        program.load(arrays)
        program.sync()
        return {"seconds": (time.perf_counter_ns() - start) / 1e9}

    def run(self, request: Json) -> Json:
        return {"ns": time_calls(self._built(), int(request.get("calls", 1)))}

    def outputs(self, request: Json) -> Json:
        arrays, described = _owned(self._built().outputs())
        write_arrays(Path(request["path"]), arrays)
        return {"outputs": described}

    def slot(self, request: Json) -> Json:
        return measure_slot(self._built(), request)

    def block(self, request: Json) -> Json:
        program = self._built()
        assert self._workload is not None
        inputs = [self._workload.input_arrays(name) for name in INPUT_SETS]
        result = measure_block(program, request, inputs=inputs)
        folder = Path(request["folder"])
        write_arrays(folder / ROWS, result.columns())
        for place, outputs in enumerate(result.outputs):
            write_arrays(folder / lane_outputs(place), _owned(outputs)[0])
        return result.reply()

    def predict(self, request: Json) -> Json:
        """Write the outputs for every item of the set in the file ``inputs`` to ``path``."""
        program = self._built()

        def run(inputs: Arrays) -> Arrays:
            program.load(inputs)
            program.run()
            program.sync()
            return _owned(program.outputs())[0]

        inputs, batch = read_arrays(Path(request["inputs"])), int(request["batch"])
        found = predict(run, inputs, axes=request["axes"], batch=batch)
        write_arrays(Path(request["path"]), found)
        return {}

    def keep_busy(self, request: Json) -> Json:
        if not request.get("on"):
            return self.busy.stop()
        self.busy.start(self._built())
        return {}

    def close(self, request: Json) -> Json:
        self._end_program()
        return {}

    def _compiler(self) -> Compiler:
        if self._loaded is None:
            if not self._target:
                raise WorkerFailed("No hello came first.", status="failed", reason="protocol")
            self._loaded = load_compiler(self._target)
        return self._loaded

    def _built(self) -> Program:
        if self._program is None:
            raise RunFailed("There is no program: compile one first.", reason="no-program")
        return self._program

    def _end_program(self) -> None:
        self.busy.stop()
        program, self._program = self._program, None
        if program is not None:
            program.close()


def _workload(request: Json) -> Workload:
    try:
        return Workload.open(
            Path(request["root"]),
            batch=int(request["batch"]),
            precision=request.get("precision", "fp32"),
            build=_build_module,
        )
    except (OSError, ValueError, KeyError) as error:
        raise WorkerFailed(
            f"The workload {request.get('root')} at batch {request.get('batch')} cannot be"
            f" read: {error!r}.",
            status="failed",
            reason="workload",
        ) from error


def _build_module(workload: Workload) -> Any:
    from ngraphbench.models.modules import build_module

    return build_module(workload)


def _check_forms(compiler: Compiler, workload: Workload) -> None:
    if set(compiler.accepts) & set(workload.forms):
        return
    why = f" Export to ONNX failed: {workload.export_error}" if workload.export_error else ""
    if workload.pt2_error and PORTABLE in compiler.accepts:
        why = f" Export failed: {workload.pt2_error}"
    raise Unsupported(
        f"{compiler.name} takes {' or '.join(compiler.accepts)}; this model at batch"
        f" {workload.batch} is there as {' and '.join(workload.forms) or 'nothing'}.{why}",
        reason="form",
    )


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    versions = {}
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _variables(compiler: Compiler) -> dict[str, str]:
    # Cache folders differ from run to run and decide nothing.
    left_out = {*_VARIABLES_LEFT_OUT, *compiler.cache_env}
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name not in left_out
        and (
            name.startswith(_VARIABLES) or name in compiler.threads_env or name == "LD_LIBRARY_PATH"
        )
    }


def _told(ask: Callable[[], Any]) -> Any:
    # What a program says of itself is extra: failing to say it must not fail the cell.
    try:
        return ask()
    except Exception:
        traceback.print_exc()
        return None


def _owned(outputs: Any) -> tuple[Arrays, list[Json]]:
    if not isinstance(outputs, Mapping):
        raise RunFailed(
            f"outputs() returned a {type(outputs).__name__}, not a mapping of name to array.",
            reason="outputs",
        )
    arrays: Arrays = {}
    described: list[Json] = []
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            raise RunFailed(
                f"Output {name!r} is a {type(value).__name__}, not a numpy array of numbers.",
                reason="outputs",
            )
        dtype = value.dtype.name
        if dtype == BFLOAT16:
            value = value.view(np.uint16)  # noqa: PLW2901
        arrays[str(name)] = np.array(value, copy=True)
        described.append({"name": str(name), "dtype": dtype, "shape": list(value.shape)})
    return arrays, described
