"""TensorRT: engines built from ONNX, run in a stream of their own. Not yet run on hardware.

Written after NVIDIA's Python API of TensorRT 8.6 to 11 and of cuda-python's runtime bindings.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ngraphbench.compilers.checks import check_request, probe_vendor, ran_once
from ngraphbench.compilers.cuda import Cuda
from ngraphbench.compilers.tensorrt_engine import DLA_SHARE, ENGINE, TensorRtProgram
from ngraphbench.errors import CompileFailed, Unsupported
from ngraphbench.plugin import PRESET, Compiler
from ngraphbench.types import Device, Json, Option, OptionValue, Support, TensorSpec
from ngraphbench.workload import Workload

__all__ = ["TensorRt"]

INSTALL = "pip install tensorrt cuda-python, or use the interpreter that has TensorRT"
CACHE_VARIABLE = "NGRAPHBENCH_TENSORRT_CACHE"
NO_DLA = -1

# The builder's flag that lets it choose kernels of that precision, besides those of fp32.
PRECISIONS: Mapping[str, str | None] = {"fp32": None, "fp16": "FP16", "bf16": "BF16"}
_QUANTISED = re.compile(rb"\x22.(Quantize|Dequantize)Linear")


class TensorRt(Compiler):
    """TensorRT on a GPU, or on a DLA beside it."""

    name: ClassVar[str] = "tensorrt"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    packages: ClassVar[tuple[str, ...]] = ("tensorrt", "tensorrt-cu13", "tensorrt-cu12")
    accelerators: ClassVar[tuple[str, ...]] = ("cuda",)
    cache_env: ClassVar[tuple[str, ...]] = (CACHE_VARIABLE,)
    not_yet_run_on_hardware: ClassVar[bool] = True
    prebuilt: ClassVar[Mapping[str, tuple[str, ...]]] = {".engine": (), ".plan": ()}
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="optimization_level",
            type="int",
            default=3,
            minimum=0,
            choices=(0, 1, 2, 3, 4, 5),
            presets={"recommended": 5},
            help="how long the builder looks for better kernels",
        ),
        Option(
            name="workspace_mib",
            type="int",
            default=0,
            minimum=0,
            help="device memory that kernels may use meanwhile, in MiB; 0: all there is",
        ),
        Option(
            name="timing_cache",
            type="bool",
            default=True,
            help="keep measured kernel times in the case's cache folder",
        ),
        Option(
            name="dla_core",
            type="int",
            default=NO_DLA,
            minimum=NO_DLA,
            help="core of the deep-learning accelerator to use; -1: the GPU",
        ),
        Option(
            name="gpu_fallback",
            type="bool",
            default=False,
            presets={"recommended": True},
            help="let the GPU run what the DLA cannot; off, such models fail",
        ),
    )

    def probe(self, device: Device) -> Support:
        return probe_vendor(
            self,
            device,
            look=_version,
            install=INSTALL,
            distributions=self.packages,
        )

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> TensorRtProgram:
        check_request(self, workload, device, precisions=PRECISIONS)
        plan, dla = _build(workload, options)
        return _program(plan, workload, dla=dla)

    def load_artifact(
        self,
        folder: Path,
        workload: Workload,
        device: Device,
        options: Mapping[str, OptionValue],
    ) -> TensorRtProgram:
        dla = json.loads((folder / DLA_SHARE).read_text())
        return _program((folder / ENGINE).read_bytes(), workload, dla=dla)

    def signature(
        self, path: Path, given: Sequence[TensorSpec]
    ) -> tuple[list[TensorSpec], list[TensorSpec]]:
        trt = importlib.import_module("tensorrt")
        _, _, engine = _engine(trt, path.read_bytes())
        found: dict[str, list[TensorSpec]] = {"INPUT": [], "OUTPUT": []}
        for place in range(engine.num_io_tensors):
            name = engine.get_tensor_name(place)
            dims = enumerate(engine.get_tensor_shape(name))
            shape = tuple(int(n) if n >= 0 else f"?{name}.{axis}" for axis, n in dims)
            dtype = np.dtype(trt.nptype(engine.get_tensor_dtype(name))).name
            mode = str(engine.get_tensor_mode(name)).rpartition(".")[2]
            found[mode].append(TensorSpec(name, dtype, shape))
        return found["INPUT"], found["OUTPUT"]

    def open_prebuilt(
        self, path: Path, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> TensorRtProgram:
        return _program(path.read_bytes(), workload, dla=None)


def _version() -> str:
    vendor = importlib.import_module("tensorrt")
    Cuda().call("cudaGetDevice")
    return str(vendor.__version__)


def _build(workload: Workload, options: Mapping[str, OptionValue]) -> tuple[bytes, Json | None]:
    """Return the serialized engine, and what a DLA could take of it (None without one)."""
    trt = importlib.import_module("tensorrt")
    log, told = _logger(trt)
    builder = trt.Builder(log)
    explicit = getattr(trt.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH", None)
    network = builder.create_network(0 if explicit is None else 1 << int(explicit))
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.builder_optimization_level = int(options.get("optimization_level", 3))
    if mib := int(options.get("workspace_mib", 0)):
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, mib << 20)
    _set_precision(trt, config, workload)
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(workload.onnx_path)):
        raise _refusal([parser.get_error(i) for i in range(parser.num_errors)])
    dla = _set_dla(trt, config, network, workload=workload, options=options)
    keep = _timing_cache(config) if options.get("timing_cache", True) else None
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise CompileFailed(f"TensorRT built no engine: {_last(told)}", reason="build")
    if keep is not None:
        keep()
    return bytes(memoryview(plan)), dla


def _set_precision(trt: Any, config: Any, workload: Workload) -> None:
    flags, precision = trt.BuilderFlag, workload.precision
    # On by default: it rounds the factors of fp32 products to 10 bits.
    config.clear_flag(flags.TF32)
    wanted = PRECISIONS[precision]
    if wanted is not None:
        if not hasattr(flags, wanted):
            raise Unsupported(
                f"TensorRT {trt.__version__} takes the types in the file, and this one is fp32.",
                reason="precision",
                hint=f"Convert the file to {precision} (NVIDIA's ModelOpt AutoCast does).",
            )
        config.set_flag(getattr(flags, wanted))
    if _is_quantised(workload.onnx_path) and hasattr(flags, "INT8"):
        config.set_flag(flags.INT8)


def _is_quantised(path: Path) -> bool:
    """Return whether the file says itself where it is quantised; int8 is taken from that alone."""
    if not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return bool(_QUANTISED.search(data))


def _set_dla(
    trt: Any,
    config: Any,
    network: Any,
    *,
    workload: Workload,
    options: Mapping[str, OptionValue],
) -> Json | None:
    core = int(options.get("dla_core", NO_DLA))
    if core == NO_DLA:
        return None
    if workload.precision != "fp16" and not _is_quantised(workload.onnx_path):
        raise Unsupported(
            f"A DLA runs fp16 and int8, not {workload.precision}.", reason="precision"
        )
    config.default_device_type = trt.DeviceType.DLA
    config.DLA_core = core
    fallback = bool(options.get("gpu_fallback", False))
    if fallback:
        config.set_flag(trt.BuilderFlag.GPU_FALLBACK)
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    left = [layer for layer in layers if not config.can_run_on_DLA(layer)]
    kinds = sorted({str(layer.type).rpartition(".")[2] for layer in left})
    if left and not fallback:
        raise Unsupported(
            f"The DLA cannot run {len(left)} of {len(layers)} layers: {', '.join(kinds)}.",
            reason="operator",
            hint="Allow gpu_fallback.",
        )
    return {
        "share": 1 - len(left) / len(layers) if layers else None,
        "parts": {"DLA": len(layers) - len(left), "GPU": len(left)},
        "fallback_operators": kinds,
        "notes": [
            "not yet run on hardware",
            "parts are the network's layers that a DLA says it can run; the engine may place fewer",
        ],
    }


def _timing_cache(config: Any) -> Callable[[], None] | None:
    """Give the builder the kernel times of earlier builds; return what keeps those of this one."""
    folder = os.environ.get(CACHE_VARIABLE, "")
    if not folder:
        return None
    path = Path(folder) / "timing.cache"
    cache = config.create_timing_cache(path.read_bytes() if path.is_file() else b"")
    config.set_timing_cache(cache, ignore_mismatch=False)

    def keep() -> None:
        partial = path.with_suffix(".part")
        partial.write_bytes(bytes(memoryview(config.get_timing_cache().serialize())))
        partial.replace(path)

    return keep


def _program(plan: bytes, workload: Workload, *, dla: Json | None) -> TensorRtProgram:
    trt = importlib.import_module("tensorrt")
    log, runtime, engine = _engine(trt, plan)
    _check_tensors(trt, engine, workload)
    program = TensorRtProgram(engine, workload=workload, cuda=Cuda(), dla=dla)
    # The log and the runtime must live as long as the engine.
    program.alive = (runtime, log)
    return ran_once(program, workload)


def _engine(trt: Any, plan: bytes) -> tuple[Any, Any, Any]:
    """Return a log, a runtime and the engine in ``plan``. Raises CompileFailed."""
    log, told = _logger(trt)
    runtime = trt.Runtime(log)
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise CompileFailed(f"TensorRT refused the engine: {_last(told)}", reason="load-model")
    return log, runtime, engine


def _check_tensors(trt: Any, engine: Any, workload: Workload) -> None:
    there = {engine.get_tensor_name(i) for i in range(engine.num_io_tensors)}
    for spec in (*workload.inputs, *workload.outputs):
        if spec.name not in there:
            raise CompileFailed(f"The engine has no tensor {spec.name!r}.", reason="interface")
        shape = tuple(engine.get_tensor_shape(spec.name))
        if any(not isinstance(n, int) for n in spec.shape) or -1 in shape:
            raise Unsupported(
                f"The shape of {spec.name!r} depends on values: {list(spec.shape)}.",
                reason="dynamic-shape",
            )
        try:
            dtype = np.dtype(trt.nptype(engine.get_tensor_dtype(spec.name)))
        except TypeError:
            dtype = np.dtype("V2")
        if shape != spec.shape or dtype != spec.dtype:
            raise Unsupported(
                f"The engine has {spec.name!r} as {dtype} {list(shape)},"
                f" not {spec.dtype} {list(spec.shape)}.",
                reason="dtype",
            )


def _logger(trt: Any) -> tuple[Any, list[str]]:
    """Return a logger that writes to stderr, and the list of what it was told."""
    told: list[str] = []

    class Log(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            if int(severity) <= int(trt.ILogger.WARNING):
                told.append(msg)
                sys.stderr.write(f"tensorrt: {msg}\n")

    return Log(), told


def _last(told: Sequence[str]) -> str:
    return " | ".join(told[-3:]) or "it said nothing"


def _refusal(errors: Sequence[Any]) -> Unsupported | CompileFailed:
    text = "; ".join(str(error.desc()) for error in errors) or "it gave no reason"
    lacks = ("No importer registered", "UNSUPPORTED_NODE", "not supported")
    if any(words in text for words in lacks):
        return Unsupported(f"TensorRT: {text}", reason="operator")
    return CompileFailed(f"TensorRT could not read the file: {text}", reason="load-model")
