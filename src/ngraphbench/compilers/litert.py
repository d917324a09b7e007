"""LiteRT: a graph of torch.export converted to ``.tflite``, run through XNNPACK."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
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
)
from ngraphbench.compilers.exported import load_exported, shared
from ngraphbench.errors import CompileFailed, RunFailed, Unavailable, Unsupported
from ngraphbench.plugin import PRESET, Compiler, Program, package_version
from ngraphbench.types import (
    VENDOR_DEFAULT,
    Arrays,
    Device,
    Json,
    Option,
    OptionValue,
    Support,
    TensorSpec,
    storage_dtype,
)
from ngraphbench.workload import Workload

__all__ = ["LiteRt"]

INSTALL = "pip install litert-torch ai-edge-litert, or `ngb env create litert`"
RUNTIME = "ai_edge_litert.interpreter"
ARTIFACT = "model.tflite"
XNNPACK = "XNNPACK"
DELEGATE = "DELEGATE"


class LiteRtProgram(Program):
    """An interpreter over a ``.tflite``, with its tensors in the workload's order."""

    def __init__(self, model: bytes, *, workload: Workload, interpreter: Any) -> None:
        self.notes: list[str] | None = None
        self._model = model
        self._workload = workload
        self._interpreter = interpreter
        runner = interpreter.get_signature_runner()
        self._inputs = _by_place(runner.get_input_details())
        self._outputs = _by_place(runner.get_output_details())
        self._ran = False
        for specs, details in (
            (workload.inputs, self._inputs),
            (workload.outputs, self._outputs),
        ):
            for place, spec in enumerate(specs):
                # An input that the graph does not use is not one of the file's.
                if place in details or specs is workload.outputs:
                    _check_tensor(spec, details.get(place))

    def load(self, inputs: Arrays) -> None:
        check_open(self._interpreter, name="litert")
        check_inputs(self._workload.inputs, inputs)
        for place, detail in self._inputs.items():
            name = self._workload.inputs[place].name
            self._interpreter.set_tensor(detail["index"], np.ascontiguousarray(inputs[name]))
        self._ran = False

    def run(self) -> None:
        interpreter = self._interpreter
        if interpreter is None:
            check_open(None, name="litert")
            return
        try:
            interpreter.invoke()
        except Exception as error:
            raise RunFailed(f"litert: {cause(error)}", reason="run") from error
        self._ran = True

    def outputs(self) -> Arrays:
        check_open(self._interpreter, name="litert")
        check_ran(self._ran or None)
        return {
            spec.name: np.array(
                self._interpreter.get_tensor(self._outputs[place]["index"]), copy=True
            )
            for place, spec in enumerate(self._workload.outputs)
        }

    def close(self) -> None:
        self._interpreter = None
        self._model = b""

    def save(self, folder: Path) -> None:
        check_open(self._interpreter, name="litert")
        (folder / ARTIFACT).write_bytes(self._model)

    def coverage(self) -> Json:
        check_open(self._interpreter, name="litert")
        found = _coverage(self._interpreter)
        return found if self.notes is None else found | {"notes": self.notes}


class LiteRt(Compiler):
    """LiteRT on the CPU; what XNNPACK does not take runs in the interpreter's own kernels."""

    name: ClassVar[str] = "litert"
    accepts: ClassVar[tuple[str, ...]] = ("pt2",)
    packages: ClassVar[tuple[str, ...]] = ("ai-edge-litert", "litert-torch", "torch")
    threads_env: ClassVar[tuple[str, ...]] = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    prebuilt: ClassVar[Mapping[str, tuple[str, ...]]] = {".tflite": ()}
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="delegate",
            type="str",
            default="xnnpack",
            choices=("xnnpack", "none"),
            help="who runs what it can take; none: the interpreter's own kernels alone",
        ),
    )

    def probe(self, device: Device) -> Support:
        return probe_vendor(self, device, look=_version, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> LiteRtProgram:
        check_request(self, workload, device)
        model = _converted(load_exported(workload), workload=workload)
        return _loaded(model, workload=workload, device=device, options=options)

    def load_artifact(
        self,
        folder: Path,
        workload: Workload,
        device: Device,
        options: Mapping[str, OptionValue],
    ) -> LiteRtProgram:
        check_request(self, workload, device)
        model = (folder / ARTIFACT).read_bytes()
        return _loaded(model, workload=workload, device=device, options=options)

    def signature(
        self, path: Path, given: Sequence[TensorSpec]
    ) -> tuple[list[TensorSpec], list[TensorSpec]]:
        try:
            library = importlib.import_module(RUNTIME)
            runner = library.Interpreter(str(path)).get_signature_runner()
        except Exception as error:
            raise CompileFailed(f"litert: {cause(error)}", reason="load-model") from error
        both = (runner.get_input_details(), runner.get_output_details())
        inputs, outputs = ([_detail_spec(n, d) for n, d in _ordered(each)] for each in both)
        return inputs, outputs

    def open_prebuilt(
        self, path: Path, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> LiteRtProgram:
        program = _loaded(path.read_bytes(), workload=workload, device=device, options=options)
        program.notes = []
        return program


def _version() -> str:
    importlib.import_module(RUNTIME)
    if not package_version("litert-torch"):
        raise Unavailable("There is no litert-torch, which converts models.", hint=INSTALL)
    return ""


def _converted(exported: Any, *, workload: Workload) -> bytes:
    """Return the ``.tflite`` of an exported program."""
    torch = importlib.import_module("torch")
    arrays = workload.input_arrays("a")
    tensors = tuple(torch.from_numpy(arrays[spec.name]) for spec in workload.inputs)
    try:
        library = importlib.import_module("litert_torch")
        # Without the flag 64-bit integers would silently become 32-bit ones.
        made = library.convert(exported.module(), tensors, enable_x64=True)
        return bytes(made.model_content())
    except Exception as error:
        raise _translated(error) from error


def _translated(error: Exception) -> Unsupported | CompileFailed:
    text = f"litert: {cause(error)}"
    if "Lowering not found" in str(error):
        return Unsupported(text, reason="operator")
    return CompileFailed(text, reason="convert")


def _loaded(
    model: bytes, *, workload: Workload, device: Device, options: Mapping[str, OptionValue]
) -> LiteRtProgram:
    library = importlib.import_module(RUNTIME)
    kinds = library.OpResolverType
    plain = options.get("delegate", "xnnpack") == "none"
    try:
        interpreter = library.Interpreter(
            model_content=model,
            num_threads=None if device.threads == VENDOR_DEFAULT else device.threads,
            experimental_op_resolver_type=kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES
            if plain
            else kinds.AUTO,
        )
        # The delegate takes its part, and packs its weights, here.
        interpreter.allocate_tensors()
        program = LiteRtProgram(model, workload=workload, interpreter=interpreter)
    except Unsupported:
        raise
    except Exception as error:
        raise CompileFailed(f"litert: {cause(error)}", reason="load-model") from error
    return program


def _by_place(details: Mapping[str, Any]) -> dict[int, Any]:
    """Return the details of ``args_0``, ``output_1``... by the number in their names.

    Files made elsewhere may have other names: those are in their order.
    """
    return {
        int(number) if (number := name.rpartition("_")[2]).isdecimal() else place: detail
        for place, (name, detail) in enumerate(_ordered(details))
    }


def _ordered(details: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(details.items(), key=lambda item: (len(item[0]), item[0]))


def _detail_spec(name: str, detail: Any) -> TensorSpec:
    """Return an input or output of a file; the interpreter keeps free dims as -1."""
    dims = enumerate(detail.get("shape_signature", detail["shape"]))
    shape = tuple(int(n) if n >= 0 else f"?{name}.{axis}" for axis, n in dims)
    return TensorSpec(name, np.dtype(detail["dtype"]).name, shape)


def _check_tensor(spec: TensorSpec, detail: Any) -> None:
    """Raise Unsupported unless the file's tensor is the workload's."""
    wanted = f"{spec.dtype} {[*spec.shape]}"
    if detail is None:
        raise Unsupported(f"litert left out {spec.name!r}, a {wanted}.", reason="layout")
    found = np.dtype(detail["dtype"])
    shape = tuple(int(dim) for dim in detail["shape"])
    same = len(shape) == len(spec.shape) and all(
        isinstance(have, str) or have == dim for have, dim in zip(spec.shape, shape, strict=True)
    )
    if found != storage_dtype(spec.dtype) or not same:
        raise Unsupported(
            f"litert made {spec.name!r} a {found} {[*shape]}; it is a {wanted}.", reason="layout"
        )


def _coverage(interpreter: Any) -> Json:
    """Return what the delegate took: the nodes between its calls' inputs and their outputs."""
    nodes = interpreter._get_ops_details()
    calls = [node for node in nodes if node["op_name"] == DELEGATE]
    plain = [node for node in nodes if node["op_name"] != DELEGATE]
    made_by = {int(out): node["index"] for node in plain for out in node["outputs"]}
    inputs_of = {node["index"]: [int(tensor) for tensor in node["inputs"]] for node in plain}
    taken: set[int] = set()
    for call in calls:
        edge = {int(tensor) for tensor in call["inputs"]}
        waiting = [int(tensor) for tensor in call["outputs"]]
        while waiting:
            node = made_by.get(waiting.pop())
            if node is not None and node not in taken:
                taken.add(node)
                waiting += [tensor for tensor in inputs_of[node] if tensor not in edge]
    shapes = {d["index"]: [int(n) for n in d["shape"]] for d in interpreter.get_tensor_details()}
    flops = {node["index"]: _flops(node, shapes) for node in plain}
    left = [node for node in plain if node["index"] not in taken]
    return shared(
        flops=(sum(flops[index] for index in taken), sum(flops[n["index"]] for n in left)),
        nodes=(len(taken), len(left)),
        fallback_operators=[node["op_name"] for node in left],
        name=XNNPACK,
    ) | {"partitions": len(calls)}


def _flops(node: Json, shapes: Mapping[int, Sequence[int]]) -> int:
    """Return two for each multiply-add of a product or a convolution, else 0."""
    operands = [shapes.get(int(tensor), []) for tensor in node["inputs"]]
    made = shapes.get(int(node["outputs"][0]), []) if len(node["outputs"]) else []
    kind = node["op_name"]
    if kind == "CONV_2D":
        return 2 * math.prod(made) * math.prod(operands[1][1:])
    if kind == "DEPTHWISE_CONV_2D":
        return 2 * math.prod(made) * math.prod(operands[1][1:3])
    if kind == "CONV_3D":
        return 2 * math.prod(made) * math.prod(operands[1][:4])
    if kind == "TRANSPOSE_CONV":
        return 2 * math.prod(operands[2]) * math.prod(operands[1][:3])
    if kind == "FULLY_CONNECTED":
        return 2 * math.prod(made) * operands[1][-1]
    if kind == "BATCH_MATMUL":
        return 2 * math.prod(operands[0]) * made[-1]
    return 0
