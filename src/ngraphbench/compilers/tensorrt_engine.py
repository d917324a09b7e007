"""A TensorRT engine that is ready to run, and what it says of itself. Not yet run on hardware."""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ngraphbench.compilers.checks import check_inputs, check_open, check_ran
from ngraphbench.compilers.cuda import Cuda
from ngraphbench.errors import CompileFailed, RunFailed
from ngraphbench.plugin import Program
from ngraphbench.types import Arrays, Json
from ngraphbench.workload import Workload

__all__ = ["DLA_SHARE", "ENGINE", "TensorRtProgram"]

ENGINE, DLA_SHARE = "model.plan", "dla.json"


class TensorRtProgram(Program):
    """An execution context with a stream, and device memory for each input and output."""

    def __init__(self, engine: Any, *, workload: Workload, cuda: Cuda, dla: Json | None) -> None:
        self._engine = engine
        self._workload = workload
        self._cuda = cuda
        self._dla = dla
        self._context = engine.create_execution_context()
        if self._context is None:
            raise CompileFailed("TensorRT gave no execution context.", reason="memory")
        self._stream = cuda.call("cudaStreamCreate")
        self._hosts: Arrays = {}
        self._memory: dict[str, int] = {}
        self._ran = False
        self.alive: tuple[Any, ...] = ()
        for spec in (*workload.inputs, *workload.outputs):
            host = np.zeros(tuple(int(n) for n in spec.shape), dtype=spec.dtype)
            self._hosts[spec.name] = host
            self._memory[spec.name] = int(cuda.call("cudaMalloc", max(host.nbytes, 1)))
            self._context.set_tensor_address(spec.name, self._memory[spec.name])

    def load(self, inputs: Arrays) -> None:
        check_open(self._context, name="tensorrt")
        check_inputs(self._workload.inputs, inputs)
        for spec in self._workload.inputs:
            host = self._hosts[spec.name]
            host[...] = inputs[spec.name]
            self._copy(self._memory[spec.name], host.ctypes.data, host.nbytes, "HostToDevice")
        self._cuda.call("cudaStreamSynchronize", self._stream)
        self._ran = False

    def run(self) -> None:
        if self._context is None:
            check_open(None, name="tensorrt")
        if not self._context.execute_async_v3(int(self._stream)):
            raise RunFailed("TensorRT could not start the engine; see the log.", reason="run")
        self._ran = True

    def sync(self) -> None:
        if self._context is not None:
            self._cuda.call("cudaStreamSynchronize", self._stream)

    def outputs(self) -> Arrays:
        check_open(self._context, name="tensorrt")
        check_ran(self._ran or None)
        for spec in self._workload.outputs:
            host = self._hosts[spec.name]
            self._copy(host.ctypes.data, self._memory[spec.name], host.nbytes, "DeviceToHost")
        self.sync()
        return {spec.name: self._hosts[spec.name].copy() for spec in self._workload.outputs}

    def close(self) -> None:
        if self._context is None:
            return
        # A kernel may still be running in that memory.
        with suppress(RunFailed):
            self.sync()
        self._context = self._engine = None
        for address in self._memory.values():
            self._cuda.call("cudaFree", address)
        self._memory = {}
        self._cuda.call("cudaStreamDestroy", self._stream)

    def save(self, folder: Path) -> None:
        check_open(self._context, name="tensorrt")
        (folder / ENGINE).write_bytes(bytes(memoryview(self._engine.serialize())))
        (folder / DLA_SHARE).write_text(json.dumps(self._dla))

    def device_memory_bytes(self) -> int:
        """Return what the context and the tensors take; weights are not known to the API."""
        check_open(self._context, name="tensorrt")
        engine = self._engine
        newer = getattr(engine, "device_memory_size_v2", None)
        context = newer if newer is not None else engine.device_memory_size
        return int(context) + sum(host.nbytes for host in self._hosts.values())

    def coverage(self) -> Json:
        """Return the engine's layers by type and precision, and what a DLA could take."""
        check_open(self._context, name="tensorrt")
        layers = _layers(self._engine)
        kinds = Counter(str(layer.get("LayerType", "unknown")) for layer in layers)
        found: Json = {
            "share": 1.0,
            "unit": "nodes",
            "parts": {"TensorRT": len(layers)},
            "layers": dict(sorted(kinds.items())),
            "precisions": _precisions(layers),
            "notes": ["not yet run on hardware"],
        }
        return found | (self._dla or {})

    def _copy(self, target: int, source: int, size: int, way: str) -> None:
        kind = getattr(self._cuda.runtime.cudaMemcpyKind, f"cudaMemcpy{way}")
        self._cuda.call("cudaMemcpyAsync", target, source, size, kind, self._stream)


def _layers(engine: Any) -> list[Json]:
    trt = importlib.import_module("tensorrt")
    inspector = engine.create_engine_inspector()
    told = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
    # Without details a layer is its name.
    return [one if isinstance(one, dict) else {"Name": one} for one in told.get("Layers", [])]


def _precisions(layers: Sequence[Json]) -> dict[str, int]:
    """Return how many layers give each type, by the words of their outputs' formats."""
    found: Counter[str] = Counter()
    for layer in layers:
        words = " ".join(str(output) for output in layer.get("Outputs", []))
        found.update(set(re.findall(r"\b(FP32|FP16|BF16|INT8|FP8|Int8|Half|Float)\b", words)))
    return dict(sorted(found.items()))
