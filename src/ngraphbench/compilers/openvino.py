"""OpenVINO: pinned precision, streams and threads; input tensors set once."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ngraphbench.compilers.checks import (
    cause,
    check_accelerator,
    check_inputs,
    check_open,
    check_precision,
    check_ran,
    check_request,
    probe_vendor,
)
from ngraphbench.compilers.nncf_int8 import count_products, quantised_model
from ngraphbench.compilers.openvino_devices import (
    CACHE_VARIABLE,
    DEVICES,
    PRECISIONS,
    check_executed,
    check_shapes,
    device_facts,
    layer_types,
    places_for,
    planned_parts,
    settings_for,
    target_of,
)
from ngraphbench.compilers.openvino_ports import port_spec
from ngraphbench.errors import CompileFailed, NGraphBenchError, RunFailed, Unsupported
from ngraphbench.plugin import PRESET, Compiler, Program
from ngraphbench.types import (
    BFLOAT16,
    INT8,
    Array,
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

__all__ = ["OpenVino"]

INSTALL = "pip install 'ngraphbench[openvino]'"


class OpenVinoProgram(Program):
    """One inference request of a compiled model; ``facts`` are what its devices made of it."""

    def __init__(self, compiled: Any, *, workload: Workload, facts: Json) -> None:
        self._compiled = compiled
        self._facts = facts
        self._workload = workload
        self._request = compiled.create_infer_request()
        self._specs = workload.inputs
        self._inputs = [
            (spec, port)
            for spec in workload.inputs
            if (port := _port(compiled.inputs, spec.name)) is not None
        ]
        self._outputs = _output_ports(compiled, workload)
        self._ran = False

    def load(self, inputs: Arrays) -> None:
        check_open(self._request, name="openvino")
        check_inputs(self._specs, inputs)
        for spec, port in self._inputs:
            self._request.set_tensor(port, _tensor(inputs[spec.name], spec=spec))
        self._ran = False

    def run(self) -> None:
        if self._request is None:
            check_open(None, name="openvino")
        try:
            self._infer()
        except Exception as error:
            raise RunFailed(f"openvino: {cause(error)}", reason="run") from error
        self._ran = True

    def _infer(self) -> None:
        self._request.infer(share_inputs=True, share_outputs=True)

    def outputs(self) -> Arrays:
        check_open(self._request, name="openvino")
        check_ran(self._ran or None)
        arrays: Arrays = {}
        for spec, port in self._outputs:
            tensor = self._request.get_tensor(port)
            # It may hand out empty or stale outputs without an error.
            if not _fits(tuple(tensor.shape), spec.shape):
                raise RunFailed(
                    f"openvino gave {spec.name!r} as {list(tensor.shape)}, not {list(spec.shape)}.",
                    reason="shape",
                )
            arrays[spec.name] = _array(tensor)
        return arrays

    def close(self) -> None:
        self._request = self._compiled = None
        self._inputs, self._outputs = [], []

    def lanes(self, count: int) -> list[Program]:
        """Return ``count`` infer requests of the compiled model.

        They share its streams: with one stream, the default, they run one after another.
        """
        check_open(self._compiled, name="openvino")
        return [
            OpenVinoLane(self._compiled, workload=self._workload, facts=self._facts)
            for _ in range(count)
        ]

    def coverage(self) -> Json:
        check_open(self._compiled, name="openvino")
        layers = layer_types(self._compiled)
        types = Counter(precision for _, precision in layers if precision)
        if not types:
            return self._facts | {"notes": ["this device does not tell what its layers are"]}
        told: Json = {"nodes": len(layers), "precisions": dict(sorted(types.items()))}
        if self._workload.quantised or self._workload.precision == INT8:
            told["products"] = count_products(layers)
        return self._facts | told


class OpenVinoLane(OpenVinoProgram):
    """One of several requests in flight, run by the compiled model's own streams."""

    def _infer(self) -> None:
        # A synchronous call computes in the calling thread, beside the streams and not in them.
        self._request.start_async(share_inputs=True)
        self._request.wait()


class OpenVino(Compiler):
    """OpenVINO on its CPU device, and on Intel's GPUs and NPUs: not yet run on hardware.

    It loads no artefacts: an imported model has the same layers, primitives and layouts, but
    took 1.8 % less CPU time a call than a compiled one (0.7 to 3.0 %, 14 pairs of processes,
    on a busy machine). Until that is understood, each launch compiles.
    """

    name: ClassVar[str] = "openvino"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    accelerators: ClassVar[tuple[str, ...]] = tuple(DEVICES)
    accelerators_not_yet_run: ClassVar[tuple[str, ...]] = tuple(DEVICES)[1:]
    packages: ClassVar[tuple[str, ...]] = ("openvino", "nncf")
    quantises: ClassVar[bool] = True
    prebuilt: ClassVar[Mapping[str, tuple[str, ...]]] = {".xml": (".bin",)}
    cache_env: ClassVar[tuple[str, ...]] = (CACHE_VARIABLE,)
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="hint",
            type="str",
            default="latency",
            choices=("latency", "throughput"),
            help="performance hint",
        ),
        Option(
            name="num_streams",
            type="int",
            default=1,
            minimum=0,
            help="streams that share the threads; 0 leaves it to the hint",
        ),
        Option(
            name="dynamic_quantization",
            type="bool",
            default=False,
            help="compute in int8 where weights are stored so, as it does unless told not to",
        ),
        Option(
            name="cache",
            type="bool",
            default=False,
            help="keep compiled models in the case's cache folder",
        ),
        Option(
            name="transformer",
            type="bool",
            default=False,
            help="at int8, quantise as NNCF does for transformers",
        ),
        Option(
            name="fallback",
            type="bool",
            default=False,
            help="let the CPU run what the accelerator does not take; off, such models fail",
        ),
        Option(
            name="device_id",
            type="int",
            default=0,
            minimum=0,
            help="which of several GPUs, as OpenVINO counts them",
        ),
    )

    def probe(self, device: Device) -> Support:
        def look() -> str:
            places_for(importlib.import_module("openvino").Core(), device, {})
            return ""

        return probe_vendor(self, device, look=look, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> OpenVinoProgram:
        import openvino

        check_request(self, workload, device, precisions=PRECISIONS)

        def read(core: Any) -> Any:
            model = core.read_model(str(workload.onnx_path))
            if workload.precision == INT8 and not workload.quantised:
                transformer = bool(options.get("transformer", False))
                model = quantised_model(model, workload, transformer=transformer)
            return model

        return _program(openvino.Core(), read, workload, device=device, options=options)

    def signature(
        self, path: Path, given: Sequence[TensorSpec]
    ) -> tuple[list[TensorSpec], list[TensorSpec]]:
        model = _read(path)
        return [port_spec(p) for p in model.inputs], [port_spec(p) for p in model.outputs]

    def open_prebuilt(
        self, path: Path, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> OpenVinoProgram:
        import openvino

        check_accelerator(self, device)
        check_precision(workload.precision, name=self.name, known=PRECISIONS)

        def read(core: Any) -> Any:
            model = core.read_model(str(path))
            if model.is_dynamic():
                model.reshape({spec.name: list(spec.shape) for spec in workload.inputs})
            return model

        return _program(openvino.Core(), read, workload, device=device, options=options)


def _read(path: Path) -> Any:
    import openvino

    try:
        return openvino.Core().read_model(str(path))
    except Exception as error:
        raise _translated(error) from error


def _program(
    core: Any,
    read: Callable[[Any], Any],
    workload: Workload,
    *,
    device: Device,
    options: Mapping[str, OptionValue],
) -> OpenVinoProgram:
    """Return the program of the model that ``read`` gives; it ran on what was asked for, as asked.

    Raises Unavailable, Unsupported or CompileFailed.
    """
    places = places_for(core, device, options)
    settings = settings_for(
        core, places, precision=workload.precision, device=device, options=options
    )
    try:
        model = read(core)
        check_shapes(model, places)
        parts = planned_parts(core, model, places, settings)
        compiled = core.compile_model(model, target_of(places), settings)
    except NGraphBenchError:
        raise
    except Exception as error:
        raise _translated(error) from error
    check_executed(compiled, places, settings)
    for spec in workload.inputs:
        _tensor(np.zeros(1, dtype=storage_dtype(spec.dtype)), spec=spec)
    facts = device_facts(core, compiled, places, parts)
    return OpenVinoProgram(compiled, workload=workload, facts=facts)


# Words in the vendor's messages for things it never promised to do.
_UNSUPPORTED = (
    ("does not support the following ONNX operations", "operator"),
    ("No conversion rule found for operations", "operator"),
    ("Model wasn't fully converted", "operator"),
    ("is not supported in opset", "operator"),
    # The GPU's: "Operation: NAME of type Einsum(opset7) is not supported".
    (") is not supported", "operator"),
    ("unsupported opset", "model-format"),
    ("IR version", "model-format"),
    ("Unsupported data type", "dtype"),
    ("unsupported element type", "dtype"),
)


def _translated(error: Exception) -> Unsupported | CompileFailed:
    text = f"openvino: {_without_places(cause(error, lines=20))}"
    for words, reason in _UNSUPPORTED:
        if words.lower() in str(error).lower():
            return Unsupported(text, reason=reason)
    return CompileFailed(text, reason="load-model")


def _without_places(text: str) -> str:
    """Return the vendor's message without the lines that name its own source files."""
    head, *lines = text.splitlines()
    places = re.compile(r"(Exception from |Check '.*' failed at |FrontEnd API failed |While )")
    kept = [line for line in lines if not places.match(line)]
    kind, _, first = head.partition(": ")
    lead = [] if places.match(first) and kept else [first]
    return f"{kind}: " + "\n".join([*lead, *kept]) if first else head


def _fits(found: tuple[int, ...], wanted: tuple[int | str, ...]) -> bool:
    """Return whether a shape is the one wanted, where dims that have names take any size."""
    if len(found) != len(wanted):
        return False
    return all(isinstance(w, str) or n == w for n, w in zip(found, wanted, strict=True))


def _port(ports: Any, name: str) -> Any:
    return next((port for port in ports if name in port.get_names()), None)


def _output_ports(compiled: Any, workload: Workload) -> list[tuple[TensorSpec, Any]]:
    found = [_port(compiled.outputs, spec.name) for spec in workload.outputs]
    if len(compiled.outputs) == len(workload.outputs):
        # Folding may lose a name, never the order.
        found = list(compiled.outputs) if None in found else found
    missing = [s.name for s, port in zip(workload.outputs, found, strict=True) if port is None]
    if missing:
        raise CompileFailed(f"OpenVINO's model lacks the outputs {missing}.", reason="output")
    return list(zip(workload.outputs, found, strict=True))


def _tensor(array: Array, *, spec: TensorSpec) -> Any:
    import openvino

    owned = np.array(array, copy=True, order="C")
    try:
        if spec.dtype == BFLOAT16:
            tensor = openvino.Tensor(openvino.Type.bf16, openvino.Shape(list(array.shape)))
            tensor.data.view(np.uint16)[...] = owned
            return tensor
        return openvino.Tensor(owned, shared_memory=False)
    except Exception as error:
        raise Unsupported(
            f"OpenVINO cannot take {spec.dtype} (input {spec.name!r}): {cause(error)}",
            reason="dtype",
        ) from error


def _array(tensor: Any) -> Array:
    data = tensor.data
    if tensor.get_element_type().get_type_name() == "bf16":
        data = data.view(np.uint16)
    return np.array(data, copy=True, order="C")
