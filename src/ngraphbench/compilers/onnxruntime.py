"""ONNX Runtime: sessions with pinned threads, inputs and outputs bound once."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
from collections.abc import Callable, Mapping
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
from ngraphbench.compilers.providers import CPU, PROVIDERS, provider_for, provider_list
from ngraphbench.compilers.qdq import count_products, quantised_file
from ngraphbench.errors import CompileFailed, RunFailed, Unsupported
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

__all__ = ["OnnxRuntime"]

INSTALL = "pip install 'ngraphbench[onnxruntime]'"
PACKAGES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml")
BFLOAT16_IN_ONNX = 16
ARTIFACT = "model.ort"
REPORT = "coverage.json"
AS_WRITTEN: Mapping[str, OptionValue] = {"level": "none"}

LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}


class OnnxRuntimeProgram(Program):
    """A session with its inputs bound; outputs are allocated by the runtime."""

    def __init__(
        self,
        session: Any,
        *,
        workload: Workload,
        write: Callable[[Path], None],
        report: Json | None = None,
        place: str = "cpu",
    ) -> None:
        self._session = session
        self._place = place
        self._report = report or {}
        self._workload = workload
        self._write = write
        self._binding = session.io_binding()
        names = {node.name for node in session.get_inputs()}
        self._specs = workload.inputs
        # An input that the graph does not use is not an input of the session.
        self._bound = [spec for spec in workload.inputs if spec.name in names]
        self._outputs = [node.name for node in session.get_outputs()]
        self._values: list[Any] = []
        self._ran = False
        for name in self._outputs:
            self._binding.bind_output(name, place)

    def load(self, inputs: Arrays) -> None:
        check_open(self._session, name="onnxruntime")
        check_inputs(self._specs, inputs)
        values = [_value(inputs[s.name], spec=s, place=self._place) for s in self._bound]
        self._binding.clear_binding_inputs()
        for spec, value in zip(self._bound, values, strict=True):
            self._binding.bind_ortvalue_input(spec.name, value)
        self._values = values
        self._ran = False

    def run(self) -> None:
        if self._session is None:
            check_open(None, name="onnxruntime")
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:
            raise RunFailed(f"onnxruntime: {cause(error)}", reason="run") from error
        self._ran = True

    def sync(self) -> None:
        if self._session is not None:
            self._binding.synchronize_outputs()

    def outputs(self) -> Arrays:
        check_open(self._session, name="onnxruntime")
        check_ran(self._ran or None)
        values = self._binding.get_outputs()
        if self._place != "cpu":
            arrays = self._binding.copy_outputs_to_cpu()
            return {n: np.array(a, copy=True) for n, a in zip(self._outputs, arrays, strict=True)}
        return {name: _array(v) for name, v in zip(self._outputs, values, strict=True)}

    def close(self) -> None:
        self._binding = self._session = None
        self._values = []

    def lanes(self, count: int) -> list[Program]:
        """Return ``count`` bindings of the one session, whose threads they share."""
        check_open(self._session, name="onnxruntime")
        return [
            OnnxRuntimeProgram(
                self._session,
                workload=self._workload,
                write=self._write,
                report=self._report,
                place=self._place,
            )
            for _ in range(count)
        ]

    def save(self, folder: Path) -> None:
        check_open(self._session, name="onnxruntime")
        self._write(folder / ARTIFACT)
        (folder / REPORT).write_text(json.dumps(self._report))

    def coverage(self) -> Json:
        check_open(self._session, name="onnxruntime")
        providers = list(self._session.get_providers())
        nodes = _nodes_by_provider(self._session)
        total = sum(nodes.values()) if nodes else 0
        return {
            "share": nodes.get(providers[0], 0) / total if nodes and total else None,
            "unit": "nodes",
            "providers": providers,
            "parts": nodes,
            **self._report,
        }


class OnnxRuntime(Compiler):
    """ONNX Runtime with one execution provider, the CPU's by default."""

    name: ClassVar[str] = "onnxruntime"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    accelerators: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    accelerators_not_yet_run: ClassVar[tuple[str, ...]] = ("cuda",)
    packages: ClassVar[tuple[str, ...]] = PACKAGES
    quantises: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="level",
            type="str",
            default="all",
            choices=tuple(LEVELS),
            help="graph optimisation level; none: the runtime without the compiler",
        ),
        Option(
            name="execution",
            type="str",
            default="sequential",
            choices=("sequential", "parallel"),
            help="parallel: run independent branches at once",
        ),
        Option(
            name="provider",
            type="str",
            default=CPU,
            choices=PROVIDERS,
            help="execution provider; nodes it does not take run on the CPU, see coverage",
        ),
        Option(
            name="spin",
            type="bool",
            default=True,
            help="let idle threads spin, as the runtime does unless told not to",
        ),
        Option(
            name="per_channel",
            type="bool",
            default=False,
            presets={"recommended": True},
            help="at int8, quantise the weights of each channel by a scale of its own",
        ),
    )

    def probe(self, device: Device) -> Support:
        def look() -> str:
            version = _version()
            _check_provider(provider_for(device, {}))
            return version

        return probe_vendor(self, device, look=look, install=INSTALL, distributions=PACKAGES)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> OnnxRuntimeProgram:
        on_cuda = ("tf32",) if device.accelerator == "cuda" else ()
        precisions = ("fp32", INT8, *on_cuda)
        check_request(self, workload, device, precisions=precisions)
        provider = provider_for(device, options)
        options = {**options, "provider": provider, "tf32": workload.precision == "tf32"}
        _check_provider(provider)
        model: str | bytes = str(workload.onnx_path)
        if workload.precision == INT8 and not workload.quantised:
            per_channel = bool(options.get("per_channel", False))
            model = quantised_file(workload, per_channel=per_channel)
        session = _session(model, device=device, options=options)
        if session.get_providers()[0] != provider:
            raise CompileFailed(
                f"onnxruntime could not start {provider} and would have used"
                f" {session.get_providers()[0]}.",
                reason="provider",
            )
        _check_interface(session, workload)

        def write(target: Path) -> None:
            if provider != CPU:
                raise Unsupported(f"{provider} keeps what it compiled.", reason="artefact")
            # The runtime writes its graph only while it builds a session.
            _session(model, device=device, options=options, save_to=target)

        report: Json = {}
        if (workload.precision == INT8 or workload.quantised) and provider == CPU:
            report["products"] = count_products(
                write, lambda path: _session(str(path), device=device, options=AS_WRITTEN)
            )
        return OnnxRuntimeProgram(
            session, workload=workload, write=write, report=report, place=device.accelerator
        )

    def load_artifact(
        self,
        folder: Path,
        workload: Workload,
        device: Device,
        options: Mapping[str, OptionValue],
    ) -> OnnxRuntimeProgram:
        path = folder / ARTIFACT
        # The graph is optimised already, for this very processor.
        session = _session(str(path), device=device, options={**options, **AS_WRITTEN})
        _check_interface(session, workload)
        report = json.loads((folder / REPORT).read_text())

        def write(target: Path) -> None:
            target.write_bytes(path.read_bytes())

        return OnnxRuntimeProgram(session, workload=workload, write=write, report=report)


def _vendor() -> Any:
    """Return the module, told to keep to itself what it is used for.

    Since 1.29 the wheels report sessions, names of models and errors to their makers, from
    threads of their own (its Privacy.md); the variable is read when it is first imported.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return importlib.import_module("onnxruntime")


def _version() -> str:
    return str(_vendor().__version__)


def _check_provider(provider: str) -> None:
    available = _vendor().get_available_providers()
    if provider not in available:
        raise Unsupported(
            f"This build of onnxruntime has no {provider}; it has {', '.join(available)}.",
            reason="provider",
            hint="Others come in packages of their own, such as onnxruntime-gpu.",
        )


def _session(
    model: str | bytes,
    *,
    device: Device,
    options: Mapping[str, OptionValue],
    save_to: Path | None = None,
) -> Any:
    onnxruntime = _vendor()
    settings = onnxruntime.SessionOptions()
    # Zero, the vendor's default, is what the runtime itself takes for "as many as I like".
    settings.intra_op_num_threads = device.threads
    settings.inter_op_num_threads = 0 if device.threads == VENDOR_DEFAULT else 1
    parallel = options.get("execution", "sequential") == "parallel"
    modes = onnxruntime.ExecutionMode
    settings.execution_mode = modes.ORT_PARALLEL if parallel else modes.ORT_SEQUENTIAL
    if parallel:
        # One thread would run the branches one after the other.
        settings.inter_op_num_threads = device.threads
    level = LEVELS[str(options.get("level", "all"))]
    settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    settings.add_session_config_entry(
        "session.intra_op.allow_spinning", "1" if options.get("spin", True) else "0"
    )
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if save_to is not None:
        form = "ORT" if save_to.suffix == ".ort" else "ONNX"
        settings.add_session_config_entry("session.save_model_format", form)
        settings.optimized_model_filepath = str(save_to)
    providers = provider_list(options)
    try:
        return onnxruntime.InferenceSession(model, sess_options=settings, providers=providers)
    except Exception as error:
        raise _translated(error) from error


# Words in the vendor's messages for things it never promised to do.
_UNSUPPORTED = (
    ("Unsupported model IR version", "model-format"),
    ("ONNX Runtime only *guarantees* support for models", "model-format"),
    ("is under development and support for this is limited", "model-format"),
    ("is not a registered function/op", "operator"),
    ("No Op registered for", "operator"),
    ("Could not find an implementation for", "operator"),
    ("Type 'tensor(bfloat16)'", "dtype"),
)


def _translated(error: Exception) -> Unsupported | CompileFailed:
    text = f"onnxruntime: {cause(error)}"
    for words, reason in _UNSUPPORTED:
        if words in str(error):
            return Unsupported(text, reason=reason)
    if type(error).__name__ == "NotImplemented":
        return Unsupported(text, reason="operator")
    return CompileFailed(text, reason="load-model")


def _check_interface(session: Any, workload: Workload) -> None:
    for node in (*session.get_inputs(), *session.get_outputs()):
        if not node.type.startswith("tensor("):
            raise Unsupported(f"{node.name!r} is a {node.type}, not a tensor.", reason="dtype")
    known = {spec.name for spec in workload.inputs}
    unknown = [node.name for node in session.get_inputs() if node.name not in known]
    if unknown:
        raise CompileFailed(
            f"The file wants inputs {unknown}, which the workload lacks; it has {sorted(known)}.",
            reason="input",
        )
    for spec in workload.inputs:
        _value(np.zeros(1, dtype=storage_dtype(spec.dtype)), spec=spec)


def _value(array: Array, *, spec: TensorSpec, place: str = "cpu") -> Any:
    """Return an OrtValue over its own copy of the array, which it keeps alive."""
    onnxruntime = _vendor()
    owned = np.array(array, copy=True, order="C")
    make = onnxruntime.OrtValue
    try:
        if spec.dtype == BFLOAT16:
            return make.ortvalue_from_numpy_with_onnx_type(owned, BFLOAT16_IN_ONNX)
        return make.ortvalue_from_numpy(owned, place, 0)
    except Exception as error:
        raise Unsupported(
            f"onnxruntime cannot bind {spec.dtype} (input {spec.name!r}): {cause(error)}",
            reason="dtype",
        ) from error


def _array(value: Any) -> Array:
    if value.element_type() == BFLOAT16_IN_ONNX:
        # Numpy has no such type, so the runtime refuses to make an array of it.
        bits = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
        return np.array(np.frombuffer(bits, dtype=np.uint16).reshape(value.shape()))
    return np.array(value.numpy(), copy=True, order="C")


def _nodes_by_provider(session: Any) -> dict[str, int] | None:
    try:
        parts = session.get_provider_graph_assignment_info()
        counts: dict[str, int] = {}
        for part in parts:
            counts[part.ep_name] = counts.get(part.ep_name, 0) + len(part.get_nodes())
        return counts
    except Exception:
        # Older versions cannot tell without profiling, which would disturb the run.
        return None
