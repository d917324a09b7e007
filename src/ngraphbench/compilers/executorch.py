"""ExecuTorch: a graph of torch.export lowered to XNNPACK, and run by its portable runtime."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ngraphbench.compilers.checks import (
    cause,
    check_inputs,
    check_open,
    check_ran,
    check_request,
    probe_vendor,
    ran_once,
)
from ngraphbench.compilers.exported import delegated, load_exported
from ngraphbench.errors import CompileFailed, RunFailed, Unavailable, Unsupported
from ngraphbench.plugin import PRESET, Compiler, Program
from ngraphbench.types import (
    BFLOAT16,
    VENDOR_DEFAULT,
    Array,
    Arrays,
    Device,
    Json,
    Option,
    OptionValue,
    Support,
    TensorSpec,
)
from ngraphbench.workload import Workload

__all__ = ["ExecuTorch"]

INSTALL = "pip install executorch, or `ngb env create executorch`"
LIBRARY = "executorch.extension.pybindings.portable_lib"
BACKEND = "XnnpackBackend"
XNNPACK = "XNNPACK"
ARTIFACT = "model.pte"
COVERAGE = "coverage.json"


class ExecuTorchProgram(Program):
    """A program in the runtime, which reads its weights out of ``buffer``."""

    def __init__(self, buffer: bytes, *, workload: Workload, coverage: Json) -> None:
        self._buffer = buffer
        self._workload = workload
        self._coverage = coverage
        self._torch = importlib.import_module("torch")
        library = importlib.import_module(LIBRARY)
        self._module: Any = library._load_for_executorch_from_buffer(buffer)
        self._inputs: tuple[Any, ...] = ()
        self._results: list[Any] | None = None

    def load(self, inputs: Arrays) -> None:
        check_open(self._module, name="executorch")
        check_inputs(self._workload.inputs, inputs)
        specs = self._workload.inputs
        self._inputs = tuple(self._tensor(inputs[spec.name], spec) for spec in specs)
        self._results = None

    def run(self) -> None:
        module = self._module
        if module is None:
            check_open(None, name="executorch")
            return
        try:
            self._results = module.forward(self._inputs, clone_outputs=False)
        except Exception as error:
            raise RunFailed(f"executorch: {cause(error)}", reason="run") from error

    def outputs(self) -> Arrays:
        check_open(self._module, name="executorch")
        results, specs = check_ran(self._results), self._workload.outputs
        if len(results) != len(specs):
            raise RunFailed(
                f"executorch gave {len(results)} outputs, not {len(specs)}.", reason="outputs"
            )
        pairs = zip(specs, results, strict=True)
        return {spec.name: self._array(tensor) for spec, tensor in pairs}

    def close(self) -> None:
        # The results lie in the module's memory, and the module reads the buffer.
        self._results = None
        self._module = None
        self._inputs, self._buffer = (), b""

    def save(self, folder: Path) -> None:
        check_open(self._module, name="executorch")
        (folder / ARTIFACT).write_bytes(self._buffer)
        (folder / COVERAGE).write_text(json.dumps(self._coverage))

    def coverage(self) -> Json:
        return self._coverage

    def _tensor(self, array: Array, spec: TensorSpec) -> Any:
        tensor = self._torch.from_numpy(np.array(array, copy=True, order="C"))
        return tensor.view(self._torch.bfloat16) if spec.dtype == BFLOAT16 else tensor

    def _array(self, tensor: Any) -> Array:
        owned = tensor.detach().contiguous()
        if owned.dtype == self._torch.bfloat16:
            owned = owned.view(self._torch.uint16)
        return np.array(owned.numpy(), copy=True, order="C")


class ExecuTorch(Compiler):
    """ExecuTorch on the CPU; what XNNPACK does not take runs in the runtime's own kernels."""

    name: ClassVar[str] = "executorch"
    accepts: ClassVar[tuple[str, ...]] = ("pt2",)
    packages: ClassVar[tuple[str, ...]] = ("executorch", "torch")
    # It counts processors and never reads a variable; torch, which lowers the graph, does.
    threads_env: ClassVar[tuple[str, ...]] = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="delegate",
            type="str",
            default="xnnpack",
            choices=("xnnpack", "none"),
            help="who runs what it can take; none: the runtime's own kernels alone",
        ),
    )

    def probe(self, device: Device) -> Support:
        return probe_vendor(self, device, look=_version, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> ExecuTorchProgram:
        check_request(self, workload, device)
        _set_threads(device.threads)
        exported = load_exported(workload)
        delegate = str(options.get("delegate", "xnnpack"))
        buffer, coverage = _lowered(exported, delegate=delegate)
        return _loaded(buffer, workload=workload, coverage=coverage)

    def load_artifact(
        self,
        folder: Path,
        workload: Workload,
        device: Device,
        options: Mapping[str, OptionValue],
    ) -> ExecuTorchProgram:
        check_request(self, workload, device)
        _set_threads(device.threads)
        coverage: Json = json.loads((folder / COVERAGE).read_text())
        return _loaded((folder / ARTIFACT).read_bytes(), workload=workload, coverage=coverage)


def _version() -> str:
    found = importlib.import_module(LIBRARY)._get_registered_backend_names()
    if BACKEND not in found:
        raise Unavailable(
            f"This build has no {BACKEND}, only {found}.", hint="Install a wheel that has it."
        )
    return ""


def _set_threads(threads: int) -> None:
    if threads == VENDOR_DEFAULT:
        return
    library = importlib.import_module(LIBRARY)
    library._unsafe_reset_threadpool(threads)
    found = int(library._threadpool_get_thread_count())
    if found != threads:
        raise CompileFailed(
            f"executorch was to use {threads} threads and has {found}.", reason="threads"
        )


def _lowered(exported: Any, *, delegate: str) -> tuple[bytes, Json]:
    """Return the program's bytes, and what its delegate took."""
    exir = importlib.import_module("executorch.exir")
    partitioners = []
    if delegate == "xnnpack":
        place = "executorch.backends.xnnpack.partition.xnnpack_partitioner"
        partitioners.append(importlib.import_module(place).XnnpackPartitioner())
    try:
        edge = exir.to_edge_transform_and_lower(exported, partitioner=partitioners)
        coverage = _coverage(edge.exported_program().graph_module)
        return bytes(edge.to_executorch().buffer), coverage
    except Exception as error:
        raise _translated(error) from error


def _coverage(graph_module: Any) -> Json:
    """Return what XNNPACK took of the lowered graph, whose calls of it hold what they replaced."""
    taken: list[Any] = []
    partitions = 0
    for node in graph_module.graph.nodes:
        named = node.op == "get_attr"
        lowered: Any = getattr(graph_module, str(node.target), None) if named else None
        if hasattr(lowered, "original_module"):
            partitions += 1
            taken.extend(lowered.original_module.graph.nodes)
    found = delegated(taken=taken, left=graph_module.graph.nodes, name=XNNPACK)
    return found | {"partitions": partitions}


def _translated(error: Exception) -> Unsupported | CompileFailed:
    text = f"executorch: {cause(error)}"
    if "is not Aten Canonical" in str(error) or "Missing out variants" in str(error):
        return Unsupported(text, reason="operator")
    return CompileFailed(text, reason="lower")


def _loaded(buffer: bytes, *, workload: Workload, coverage: Json) -> ExecuTorchProgram:
    try:
        program = ExecuTorchProgram(buffer, workload=workload, coverage=coverage)
    except Exception as error:
        raise CompileFailed(f"executorch: {cause(error)}", reason="load-model") from error
    # The runtime loads a method, and XNNPACK packs its weights, at the first.
    return ran_once(program, workload)
