"""OpenVINO: pinned precision, streams and threads; input tensors set once."""

from __future__ import annotations

import importlib
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ngraphbench.compilers.checks import (
    cause,
    check_inputs,
    check_open,
    check_precision,
    check_ran,
    check_request,
    probe_vendor,
)
from ngraphbench.compilers.nncf_int8 import count_products, quantised_model
from ngraphbench.compilers.openvino_ports import port_spec
from ngraphbench.errors import CompileFailed, NGraphBenchError, RunFailed, Unsupported
from ngraphbench.plugin import PRESET, Compiler, Program
from ngraphbench.types import (
    BFLOAT16,
    INT8,
    VENDOR_DEFAULT,
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
CACHE_VARIABLE = "NGRAPHBENCH_OPENVINO_CACHE"

# Precision to the type of the hint, and what the device must then be capable of.
PRECISIONS = {"fp32": ("f32", "FP32"), "fp16": ("f16", "FP16"), "bf16": ("bf16", "BF16")}
PRECISIONS |= {INT8: ("f32", "INT8")}


class OpenVinoProgram(Program):
    """One inference request of a compiled model."""

    def __init__(self, compiled: Any, *, workload: Workload) -> None:
        self._compiled = compiled
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
        return [OpenVinoLane(self._compiled, workload=self._workload) for _ in range(count)]

    def coverage(self) -> Json:
        check_open(self._compiled, name="openvino")
        infos = [node.get_rt_info() for node in self._compiled.get_runtime_model().get_ops()]
        types = Counter(str(_value(info, "runtimePrecision")) for info in infos)
        return {
            # The device's plugin takes a model whole, or refuses it.
            "share": 1.0,
            "unit": "nodes",
            "nodes": len(infos),
            "precisions": dict(sorted(types.items())),
            **self._products(infos),
            "precision_hint": _text(self._compiled, "INFERENCE_PRECISION_HINT"),
            "threads": int(self._compiled.get_property("INFERENCE_NUM_THREADS")),
            "streams": int(self._compiled.get_property("NUM_STREAMS")),
        }

    def _products(self, infos: list[Any]) -> Json:
        """Return where int8 ran, of a model that has any."""
        if not (self._workload.quantised or self._workload.precision == INT8):
            return {}
        keys = ("layerType", "runtimePrecision")
        layers = [(str(_value(info, keys[0])), str(_value(info, keys[1]))) for info in infos]
        return {"products": count_products(layers)}


class OpenVinoLane(OpenVinoProgram):
    """One of several requests in flight, run by the compiled model's own streams."""

    def _infer(self) -> None:
        # A synchronous call computes in the calling thread, beside the streams and not in them.
        self._request.start_async(share_inputs=True)
        self._request.wait()


class OpenVino(Compiler):
    """OpenVINO on its CPU device.

    It loads no artefacts: an imported model has the same layers, primitives and layouts, but
    took 1.8 % less CPU time a call than a compiled one (0.7 to 3.0 %, 14 pairs of processes,
    on a busy machine). Until that is understood, each launch compiles.
    """

    name: ClassVar[str] = "openvino"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
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
    )

    def probe(self, device: Device) -> Support:
        return probe_vendor(self, device, look=_version, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> OpenVinoProgram:
        import openvino

        check_request(self, workload, device, precisions=PRECISIONS)
        core = openvino.Core()
        settings = _settings(core, workload.precision, device=device, options=options)
        try:
            model = core.read_model(str(workload.onnx_path))
            if workload.precision == INT8 and not workload.quantised:
                transformer = bool(options.get("transformer", False))
                model = quantised_model(model, workload, transformer=transformer)
            compiled = core.compile_model(model, "CPU", settings)
        except NGraphBenchError:
            raise
        except Exception as error:
            raise _translated(error) from error
        return _program(compiled, workload)

    def signature(
        self, path: Path, given: Sequence[TensorSpec]
    ) -> tuple[list[TensorSpec], list[TensorSpec]]:
        model = _read(path)
        return [port_spec(p) for p in model.inputs], [port_spec(p) for p in model.outputs]

    def open_prebuilt(
        self, path: Path, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> OpenVinoProgram:
        import openvino

        check_precision(workload.precision, name=self.name, known=PRECISIONS)
        core = openvino.Core()
        settings = _settings(core, workload.precision, device=device, options=options)
        model = _read(path)
        try:
            if model.is_dynamic():
                model.reshape({spec.name: list(spec.shape) for spec in workload.inputs})
            compiled = core.compile_model(model, "CPU", settings)
        except Exception as error:
            raise _translated(error) from error
        return _program(compiled, workload)


def _read(path: Path) -> Any:
    import openvino

    try:
        return openvino.Core().read_model(str(path))
    except Exception as error:
        raise _translated(error) from error


def _version() -> str:
    importlib.import_module("openvino").Core()
    return ""


def _program(compiled: Any, workload: Workload) -> OpenVinoProgram:
    for spec in workload.inputs:
        _tensor(np.zeros(1, dtype=storage_dtype(spec.dtype)), spec=spec)
    return OpenVinoProgram(compiled, workload=workload)


def _settings(
    core: Any, precision: str, *, device: Device, options: Mapping[str, OptionValue]
) -> Json:
    hint, capability = PRECISIONS[precision]
    capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if capability not in capabilities:
        raise Unsupported(
            f"OpenVINO would not run {precision} on this CPU; it can {', '.join(capabilities)}.",
            reason="precision",
        )
    settings: Json = {
        # Left alone it takes bf16 on a CPU that has it.
        "INFERENCE_PRECISION_HINT": hint,
        "PERFORMANCE_HINT": str(options.get("hint", "latency")).upper(),
    }
    if device.threads != VENDOR_DEFAULT:
        settings["INFERENCE_NUM_THREADS"] = device.threads
        settings["ENABLE_CPU_PINNING"] = False
        # With one thread per core only, it would use fewer threads than asked.
        settings["ENABLE_HYPER_THREADING"] = True
    if not options.get("dynamic_quantization", False):
        # Left alone it rounds activations to int8 wherever weights are: 3 % off, and not fp32.
        settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
    if streams := int(options.get("num_streams", 1)):
        settings["NUM_STREAMS"] = streams
    if options.get("cache", False):
        settings["CACHE_DIR"] = _cache_folder()
    return settings


def _cache_folder() -> str:
    folder = os.environ.get(CACHE_VARIABLE, "")
    if not folder:
        raise Unsupported(
            "OpenVINO has no folder to cache models in.",
            reason="cache",
            hint=f"Set {CACHE_VARIABLE} to a folder.",
        )
    return folder


# Words in the vendor's messages for things it never promised to do.
_UNSUPPORTED = (
    ("does not support the following ONNX operations", "operator"),
    ("No conversion rule found for operations", "operator"),
    ("Model wasn't fully converted", "operator"),
    ("is not supported in opset", "operator"),
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


def _value(info: Any, key: str) -> Any:
    found = info.get(key, "") if hasattr(info, "get") else info[key]
    return getattr(found, "value", found)


def _text(compiled: Any, name: str) -> str:
    found = compiled.get_property(name)
    return found.get_type_name() if hasattr(found, "get_type_name") else str(found)
