"""XLA through PJRT: torch-mlir turns ONNX into StableHLO, jaxlib makes one executable of it."""

from __future__ import annotations

import importlib
import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
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
from ngraphbench.compilers.stablehlo import jaxlib_module, read_model, stablehlo_text
from ngraphbench.errors import CompileFailed, NGraphBenchError, RunFailed, Unsupported
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

__all__ = ["Xla"]

INSTALL = "Run `ngb env create xla`, or pip install jax jaxlib torch-mlir onnx."
NO_CUDA = "Install jax's CUDA plugin: pip install 'jax[cuda12]'."
THREADS_VARIABLE = "PJRT_NPROC"
EXECUTABLE, INTERFACE = "executable.bin", "interface.json"


@dataclass(frozen=True, slots=True)
class _Built:
    """An executable with the weights it is called with, which lie on its device."""

    executable: Any
    device: Any
    weights: tuple[Any, ...]
    names: tuple[str, ...]
    settings: Json


class XlaProgram(Program):
    """A loaded executable, called with the inputs and the weights."""

    lanes_note: ClassVar[str] = "requests share one executable and one pool of threads"

    def __init__(self, built: _Built, *, workload: Workload) -> None:
        self._built: _Built | None = built
        self._execute = built.executable.execute_sharded
        self._workload = workload
        self._arguments: list[Any] = []
        self._results: list[Any] | None = None

    def load(self, inputs: Arrays) -> None:
        built = self._opened()
        check_inputs(self._workload.inputs, inputs)
        moved = [
            _placed(_typed(np.array(inputs[spec.name], copy=True, order="C"), spec), built.device)
            for spec in self._workload.inputs
        ]
        self._arguments = [*moved, *built.weights]
        self._results = None

    def run(self) -> None:
        try:
            results = self._execute(self._arguments)
            self._results = [
                shards[0] for shards in results.disassemble_into_single_device_arrays()
            ]
        except Exception as error:
            self._opened()
            raise RunFailed(f"xla: {cause(error)}", reason="run") from error

    def sync(self) -> None:
        try:
            for result in self._results or ():
                result.block_until_ready()
        except Exception as error:
            raise RunFailed(f"xla: {cause(error)}", reason="run") from error

    def outputs(self) -> Arrays:
        self._opened()
        results = check_ran(self._results)
        return {
            spec.name: _array(result)
            for spec, result in zip(self._workload.outputs, results, strict=True)
        }

    def close(self) -> None:
        self._built = self._results = None
        self._execute = _closed
        self._arguments = []

    def lanes(self, count: int) -> list[Program]:
        """Return ``count`` programs that call the one executable, each with its own inputs."""
        built = self._opened()
        return [XlaProgram(built, workload=self._workload) for _ in range(count)]

    def save(self, folder: Path) -> None:
        built = self._opened()
        try:
            (folder / EXECUTABLE).write_bytes(built.executable.serialize())
        except Exception as error:
            raise Unsupported(
                f"XLA cannot write this executable: {cause(error)}", reason="artefact"
            ) from error
        interface = {"weights": list(built.names), "settings": built.settings}
        (folder / INTERFACE).write_text(json.dumps(interface))

    def coverage(self) -> Json:
        built = self._opened()
        text = "\n".join(module.to_string() for module in built.executable.hlo_modules())
        # What the importer cannot lower is refused: there is no other engine to fall back to.
        return {"share": 1.0, "unit": "nodes", "parts": _parts(text), **built.settings}

    def _opened(self) -> _Built:
        check_open(self._built, name="xla")
        assert self._built is not None
        return self._built


class Xla(Compiler):
    """JAX's XLA, fed with StableHLO; it runs on the CPU, and with jax's plugin on CUDA."""

    name: ClassVar[str] = "xla"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    accelerators: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    accelerators_not_yet_run: ClassVar[tuple[str, ...]] = ("cuda",)
    packages: ClassVar[tuple[str, ...]] = ("jaxlib", "jax", "torch-mlir", "onnx")
    threads_env: ClassVar[tuple[str, ...]] = (THREADS_VARIABLE,)
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="weights",
            type="str",
            default="arguments",
            choices=("arguments", "constants"),
            presets={"recommended": "constants"},
            help="arguments, as jax.jit has parameters; constants, which XLA folds and lays out",
        ),
        Option(
            name="flags",
            type="str",
            default="",
            help="XLA flags for this program, such as xla_cpu_enable_fast_math=true, with spaces",
        ),
    )

    def probe(self, device: Device) -> Support:

        def look() -> str:
            for module in ("jaxlib.xla_client", "torch_mlir.extras.onnx_importer"):
                importlib.import_module(module)
            if device.accelerator == "cuda":
                _cuda()
            return ""

        return probe_vendor(self, device, look=look, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> XlaProgram:
        check_request(self, workload, device)
        settings = {"weights": str(options.get("weights", "arguments"))}
        flags = _flags(str(options.get("flags", "")))
        model, weights = read_model(workload)
        text = stablehlo_text(model)
        client, place = _client(device)
        constants = settings["weights"] == "constants"
        try:
            module = jaxlib_module(text, weights if constants else {}, workload=workload)
            executable = client.compile_and_load(module, _devices(place), _compile_options(flags))
        except NGraphBenchError:
            raise
        except Exception as error:
            raise _translated(error) from error
        kept = {} if constants else weights
        return _program(executable, place, kept, workload=workload, settings=settings)

    def load_artifact(
        self,
        folder: Path,
        workload: Workload,
        device: Device,
        options: Mapping[str, OptionValue],
    ) -> XlaProgram:
        interface = json.loads((folder / INTERFACE).read_text())
        client, place = _client(device)
        try:
            executable = client.deserialize_executable(
                (folder / EXECUTABLE).read_bytes(), _devices(place)
            )
        except Exception as error:
            raise CompileFailed(f"xla: {cause(error)}", reason="artefact") from error
        names = interface["weights"]
        weights = read_model(workload)[1] if names else {}
        kept = {name: weights[name] for name in names}
        return _program(executable, place, kept, workload=workload, settings=interface["settings"])


def _program(
    executable: Any, place: Any, weights: Arrays, *, workload: Workload, settings: Json
) -> XlaProgram:
    placed = tuple(_placed(array, place) for array in weights.values())
    built = _Built(executable, place, placed, names=tuple(weights), settings=settings)
    return XlaProgram(built, workload=workload)


def _client(device: Device) -> tuple[Any, Any]:
    """Return a PJRT client and its first device.

    The CPU client is one of its own: its pool gets ``device.threads`` threads when it is made,
    and it executes in the calling thread, as with ``jax_cpu_enable_async_dispatch`` off.
    """
    if device.accelerator == "cuda":
        place = _cuda()
        return place.client, place
    xla = importlib.import_module("jaxlib.xla_client")
    before = os.environ.get(THREADS_VARIABLE)
    if device.threads != VENDOR_DEFAULT:
        os.environ[THREADS_VARIABLE] = str(device.threads)
    try:
        client = xla.make_cpu_client(asynchronous=False)
    finally:
        os.environ.pop(THREADS_VARIABLE, None)
        if before is not None:
            os.environ[THREADS_VARIABLE] = before
    return client, client.local_devices()[0]


def _cuda() -> Any:
    # Otherwise it takes three quarters of the device's memory, which others run on too.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = importlib.import_module("jax")
    try:
        return jax.devices("cuda")[0]
    except RuntimeError as error:
        raise Unsupported(f"jax finds no CUDA device: {cause(error)}", hint=NO_CUDA) from error


def _devices(place: Any) -> Any:
    return importlib.import_module("jaxlib.xla_client").DeviceList((place,))


def _compile_options(flags: list[tuple[str, OptionValue]]) -> Any:
    options = importlib.import_module("jaxlib.xla_client").CompileOptions()
    options.env_option_overrides = flags
    return options


def _flags(text: str) -> list[tuple[str, OptionValue]]:
    pairs: list[tuple[str, OptionValue]] = []
    for word in text.split():
        name, equals, value = word.lstrip("-").partition("=")
        if not equals:
            raise CompileFailed(f"{word!r} is no XLA flag; write name=value.", reason="flags")
        pairs.append((name, {"true": True, "false": False}.get(value, value)))
    return pairs


def _translated(error: Exception) -> Unsupported | CompileFailed:
    words = str(error)
    if "UNIMPLEMENTED" in words or "not implemented" in words.lower():
        return Unsupported(f"xla: {cause(error)}", reason="operator")
    return CompileFailed(f"xla: {cause(error)}", reason="compile")


# Arrays and what was built


def _closed(arguments: Any) -> Any:
    raise RunFailed("This xla program is closed.", reason="closed")


def _typed(array: Array, spec: TensorSpec) -> Array:
    if spec.dtype != BFLOAT16:
        return array
    bits: Array = array.view(importlib.import_module("ml_dtypes").bfloat16)
    return bits


def _placed(array: Array, place: Any) -> Any:
    """Return an array on the device, of the same type: jax would make 64 bits 32."""
    jax = importlib.import_module("jax")
    with jax.enable_x64(True):
        return jax.device_put(array, place).block_until_ready()


def _array(result: Any) -> Array:
    """Return an owned array; bfloat16 as bits."""
    found = np.array(result, copy=True, order="C")
    return found.view(np.uint16) if found.dtype.name == BFLOAT16 else found


def _parts(text: str) -> dict[str, int]:
    """Return how many of each kind of instruction the entry computations hold."""
    counts: Counter[str] = Counter()
    entry = False
    for line in text.splitlines():
        entry = line.startswith("ENTRY ") or (entry and line != "}")
        opcode = re.search(r"[\])}] ([a-z][\w-]*)\(", line) if entry else None
        if opcode is None or opcode.group(1) in ("parameter", "constant", "bitcast", "tuple"):
            continue
        target = re.search(r'custom_call_target="([^"]*)"|"kind":"(__[^"]*)"', line)
        named = "" if target is None else f" {target.group(1) or target.group(2)}"
        counts[opcode.group(1) + named] += 1
    return dict(sorted(counts.items()))
