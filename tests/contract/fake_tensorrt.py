"""A fake of TensorRT's Python API and of CUDA's runtime, which computes with onnx's reference.

It does what NVIDIA documents, as far as the plugin uses it: work waits in its stream until that
is synchronised, TF32 is on until it is cleared, and memory lies at addresses.
"""

from __future__ import annotations

import ctypes
import enum
import json
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ngraphbench.models.onnxdata import load_whole

MAGIC = b"fake plan "
DLA_KINDS = ("Conv", "Relu")
MEMORY: dict[int, Any] = {}
"""Device memory that was not freed, by address."""


def install(*, version: str = "10.3.0", strongly_typed: bool = False) -> types.ModuleType:
    """Return the fake ``tensorrt`` after putting it and ``cuda.bindings.runtime`` in place."""
    vendor = types.ModuleType("tensorrt")
    vars(vendor).update(
        __version__=version,
        BuilderFlag=enum.IntEnum(
            "BuilderFlag",
            ["TF32", "GPU_FALLBACK"] + ([] if strongly_typed else ["FP16", "BF16", "INT8"]),
        ),
        NetworkDefinitionCreationFlag=enum.IntEnum(
            "NetworkDefinitionCreationFlag", ["EXPLICIT_BATCH"], start=0
        ),
        ProfilingVerbosity=enum.Enum("ProfilingVerbosity", ["LAYER_NAMES_ONLY", "DETAILED"]),
        MemoryPoolType=enum.Enum("MemoryPoolType", ["WORKSPACE"]),
        DeviceType=enum.Enum("DeviceType", ["GPU", "DLA"]),
        LayerInformationFormat=enum.Enum("LayerInformationFormat", ["ONELINE", "JSON"]),
        ILogger=ILogger,
        Builder=Builder,
        OnnxParser=OnnxParser,
        Runtime=Runtime,
        nptype=nptype,
        built=[],
    )
    runtime = types.ModuleType("cuda.bindings.runtime")
    vars(runtime).update(
        cudaError_t=enum.IntEnum("cudaError_t", ["cudaSuccess", "cudaErrorInvalidValue"], start=0),
        cudaMemcpyKind=enum.Enum(
            "cudaMemcpyKind", ["cudaMemcpyHostToDevice", "cudaMemcpyDeviceToHost"]
        ),
        cudaGetDevice=lambda: (0, 0),
        cudaStreamCreate=lambda: (0, Stream()),
        cudaStreamDestroy=lambda stream: (0,),
        cudaStreamSynchronize=lambda stream: (stream.drain(),),
        cudaMalloc=_malloc,
        cudaFree=lambda address: (0 if MEMORY.pop(address, None) is not None else 1,),
        cudaMemcpyAsync=_copy,
    )
    sys.modules["tensorrt"] = vendor
    sys.modules["cuda"] = types.ModuleType("cuda")
    sys.modules["cuda.bindings"] = types.ModuleType("cuda.bindings")
    sys.modules["cuda.bindings.runtime"] = runtime
    return vendor


def remove() -> None:
    """Take the fakes away, and forget what they hold."""
    for name in ("tensorrt", "cuda", "cuda.bindings", "cuda.bindings.runtime"):
        sys.modules.pop(name, None)
    MEMORY.clear()
    Stream.known.clear()


class Stream:
    """A queue that is worked off when it is waited for."""

    known: ClassVar[dict[int, Stream]] = {}

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.known[id(self)] = self

    def __int__(self) -> int:
        return id(self)

    def drain(self) -> int:
        waiting, self.waiting = self.waiting, []
        for work in waiting:
            work()
        return 0


def _malloc(size: int) -> tuple[int, int]:
    memory = ctypes.create_string_buffer(size)
    address = ctypes.addressof(memory)
    MEMORY[address] = memory
    return 0, address


def _copy(target: int, source: int, size: int, kind: Any, stream: Stream) -> tuple[int]:
    on_device = target if kind.name.endswith("HostToDevice") else source
    if on_device not in MEMORY:
        return (1,)
    stream.waiting.append(lambda: ctypes.memmove(target, source, size))
    return (0,)


def nptype(dtype: str) -> Any:
    if dtype == "bfloat16":
        raise TypeError("Could not resolve TensorRT datatype to an equivalent numpy datatype.")
    return np.dtype(dtype).type


class ILogger(ABC):
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)

    @abstractmethod
    def log(self, severity: int, msg: str) -> None: ...


class Layer:
    def __init__(self, kind: str) -> None:
        self.type = f"LayerType.{kind}"


class Network:
    def __init__(self) -> None:
        self.path = ""
        self.kinds: list[str] = []

    @property
    def num_layers(self) -> int:
        return len(self.kinds)

    def get_layer(self, index: int) -> Layer:
        return Layer(self.kinds[index])


class ParserError:
    def __init__(self, text: str) -> None:
        self.text = text

    def desc(self) -> str:
        return self.text


class OnnxParser:
    def __init__(self, network: Network, logger: ILogger) -> None:
        self.network = network
        self.errors: list[ParserError] = []

    num_errors = property(lambda self: len(self.errors))

    def get_error(self, index: int) -> ParserError:
        return self.errors[index]

    def parse_from_file(self, path: str) -> bool:
        try:
            model = load_whole(Path(path))
        except Exception:
            self.errors.append(ParserError("Failed to parse ONNX model from file"))
            return False
        self.network.path = path
        self.network.kinds = [node.op_type for node in model.graph.node]
        if "Unheard" in self.network.kinds:
            self.errors.append(ParserError("No importer registered for op: Unheard"))
        return not self.errors


class TimingCache:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def serialize(self) -> bytes:
        return self.content


class BuilderConfig:
    def __init__(self) -> None:
        self.flags = {"TF32"}
        self.default_device_type: Any = None
        self.DLA_core = -1
        self.cache: TimingCache | None = None

    def set_flag(self, flag: Any) -> None:
        self.flags.add(flag.name)

    def clear_flag(self, flag: Any) -> None:
        self.flags.discard(flag.name)

    def set_memory_pool_limit(self, pool: Any, size: int) -> None:
        self.pool = (pool.name, size)

    def can_run_on_DLA(self, layer: Layer) -> bool:  # noqa: N802
        return layer.type.rpartition(".")[2] in DLA_KINDS

    def create_timing_cache(self, content: bytes) -> TimingCache:
        return TimingCache(content)

    def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool) -> bool:
        self.cache = cache
        return True

    def get_timing_cache(self) -> TimingCache | None:
        return self.cache


class Builder:
    def __init__(self, logger: ILogger) -> None:
        self.logger = logger

    def create_network(self, flags: int) -> Network:
        return Network()

    def create_builder_config(self) -> BuilderConfig:
        return BuilderConfig()

    def build_serialized_network(self, network: Network, config: BuilderConfig) -> bytes | None:
        if "Unbuildable" in network.kinds:
            self.logger.log(ILogger.ERROR, "Could not find any implementation for node")
            return None
        if config.cache is not None:
            config.cache.content += b"measured "
        sys.modules["tensorrt"].built.append(config)
        head = json.dumps({"flags": sorted(config.flags)}).encode()
        return MAGIC + head + b"\n" + load_whole(Path(network.path)).SerializeToString()


class Runtime:
    def __init__(self, logger: ILogger) -> None:
        self.logger = logger

    def deserialize_cuda_engine(self, plan: bytes) -> Engine | None:
        if not plan.startswith(MAGIC):
            self.logger.log(ILogger.ERROR, "Serialization assertion failed: magic tag")
            return None
        return Engine(plan)


class Engine:
    def __init__(self, plan: bytes) -> None:
        import onnx

        head, _, content = plan[len(MAGIC) :].partition(b"\n")
        self.plan = plan
        self.flags = json.loads(head)["flags"]
        self.model = onnx.load_model_from_string(content)
        fixed = {tensor.name for tensor in self.model.graph.initializer}
        self.inputs = [v for v in self.model.graph.input if v.name not in fixed]
        self.tensors = {v.name: v.type.tensor_type for v in self.inputs}
        self.tensors |= {v.name: v.type.tensor_type for v in self.model.graph.output}

    device_memory_size_v2 = 4096

    @property
    def num_io_tensors(self) -> int:
        return len(self.tensors)

    def get_tensor_name(self, index: int) -> str:
        return list(self.tensors)[index]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(d.dim_value or -1 for d in self.tensors[name].shape.dim)

    def get_tensor_mode(self, name: str) -> str:
        return f"TensorIOMode.{'INPUT' if name in {v.name for v in self.inputs} else 'OUTPUT'}"

    def get_tensor_dtype(self, name: str) -> str:
        from onnx import helper

        return str(np.dtype(helper.tensor_dtype_to_np_dtype(self.tensors[name].elem_type)))

    def serialize(self) -> bytes:
        return self.plan

    def create_execution_context(self) -> Context:
        return Context(self)

    def create_engine_inspector(self) -> Inspector:
        return Inspector(self)


class Inspector:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def get_engine_information(self, form: Any) -> str:
        half = "FP16" if "FP16" in self.engine.flags else "FP32"
        outputs = [{"Name": "t", "Format/Datatype": f"Row major linear {half} format"}]
        layers = [
            {"Name": node.name, "LayerType": node.op_type, "Outputs": outputs}
            for node in self.engine.model.graph.node
        ]
        return json.dumps({"Layers": layers, "Bindings": list(self.engine.tensors)})


class Context:
    def __init__(self, engine: Engine) -> None:
        from onnx.reference import ReferenceEvaluator

        self.engine = engine
        self.evaluator = ReferenceEvaluator(engine.model)
        self.addresses: dict[str, int] = {}

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return name in self.engine.tensors and address in MEMORY

    def execute_async_v3(self, stream_handle: int) -> bool:
        if set(self.addresses) != set(self.engine.tensors):
            return False
        Stream.known[stream_handle].waiting.append(self._compute)
        return True

    def _compute(self) -> None:
        given = {v.name: self._rounded(self._at(v.name).copy()) for v in self.engine.inputs}
        results = self.evaluator.run(None, given)
        for output, value in zip(self.engine.model.graph.output, results, strict=True):
            self._at(output.name)[...] = value

    def _at(self, name: str) -> Any:
        shape = self.engine.get_tensor_shape(name)
        dtype = np.dtype(self.engine.get_tensor_dtype(name))
        count = int(np.prod(shape))
        place = (ctypes.c_char * (count * dtype.itemsize)).from_address(self.addresses[name])
        return np.frombuffer(place, dtype=dtype).reshape(shape)

    def _rounded(self, value: Any) -> Any:
        """Return floats as the flags let kernels take them: fewer bits of mantissa."""
        flags = self.engine.flags
        bits = 7 if "BF16" in flags else 10 if {"FP16", "TF32"} & set(flags) else 23
        if value.dtype != np.float32 or bits == 23:
            return value
        step = np.uint32(1 << (23 - bits))
        return ((value.view(np.uint32) + step // 2) & ~(step - np.uint32(1))).view(np.float32)
