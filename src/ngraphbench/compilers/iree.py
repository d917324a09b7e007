"""IREE: an ONNX file through ``iree-compile`` for the CPU, run by its own task system."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
from ngraphbench.compilers.converter import heard
from ngraphbench.compilers.iree_prebuilt import Signature, entry_of, signature_of
from ngraphbench.errors import CompileFailed, RunFailed, Unavailable, Unsupported
from ngraphbench.models.onnxdata import copy_unlinked
from ngraphbench.plugin import PRESET, Compiler, Program
from ngraphbench.types import (
    BFLOAT16,
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

__all__ = ["Iree"]

INSTALL = "ngb env create iree, or: pip install iree-base-compiler iree-base-runtime onnx"
PACKAGES = ("iree-base-compiler", "iree-base-runtime", "onnx")
ARTIFACT = "program.vmfb"
REPORT = "coverage.json"
DRIVER = "local-task"

# How a convolution is rewritten before anything else, by the name of the choice.
CONVOLUTIONS = {
    "as-is": "",
    "channels-last": "iree-preprocessing-convert-conv-to-channels-last",
    "img2col": "iree-preprocessing-convert-conv2d-to-img2col",
}


class IreeProgram(Program):
    """The entry function of a module, invoked in a context of its own."""

    def __init__(self, module: IreeModule, *, workload: Workload) -> None:
        self._module: IreeModule | None = module
        self._workload = workload
        self._context: Any = module.context()
        self._invoke = self._context.invoke
        self._make_list = module.runtime.VmVariantList
        self._function = module.function
        self._arguments: Any = None
        self._results: Any = None

    def load(self, inputs: Arrays) -> None:
        check_open(self._module, name="iree")
        check_inputs(self._workload.inputs, inputs)
        assert self._module is not None
        arguments = self._make_list(len(self._workload.inputs))
        for spec in self._workload.inputs:
            arguments.push_ref(self._module.buffer(inputs[spec.name], spec=spec))
        self._arguments, self._results = arguments, None

    def run(self) -> None:
        if self._module is None:
            check_open(None, name="iree")
        results = self._make_list(1)
        try:
            # It returns when the results are there: the entry function waits for its fence.
            self._invoke(self._function, self._arguments, results)
        except Exception as error:
            raise RunFailed(f"iree: {cause(error)}", reason="run") from error
        self._results = results

    def outputs(self) -> Arrays:
        check_open(self._module, name="iree")
        check_ran(self._results)
        assert self._module is not None
        specs = self._workload.outputs
        if len(self._results) != len(specs):
            raise RunFailed(
                f"iree gave {len(self._results)} outputs, not {len(specs)}.", reason="outputs"
            )
        return {
            spec.name: self._module.array(self._results, place, spec=spec)
            for place, spec in enumerate(specs)
        }

    def close(self) -> None:
        # Buffers first: freeing one needs the device it lies on.
        self._arguments = self._results = None
        self._invoke = self._function = self._context = None
        self._module = None

    def lanes(self, count: int) -> list[Program]:
        """Return ``count`` contexts of the one module, which share the workers of its device."""
        check_open(self._module, name="iree")
        assert self._module is not None
        return [IreeProgram(self._module, workload=self._workload) for _ in range(count)]

    def save(self, folder: Path) -> None:
        check_open(self._module, name="iree")
        assert self._module is not None
        (folder / ARTIFACT).write_bytes(self._module.code)
        (folder / REPORT).write_text(json.dumps(self._module.report))

    def coverage(self) -> Json:
        check_open(self._module, name="iree")
        assert self._module is not None
        return dict(self._module.report)


class Iree(Compiler):
    """IREE's CPU backend, with the weights compiled in."""

    name: ClassVar[str] = "iree"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    packages: ClassVar[tuple[str, ...]] = PACKAGES
    threads_env: ClassVar[tuple[str, ...]] = ()
    prebuilt: ClassVar[Mapping[str, tuple[str, ...]]] = {".vmfb": ()}
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="opt_level",
            type="str",
            default="O0",
            choices=("O0", "O1", "O2", "O3"),
            help="--iree-opt-level; O0 is what iree-compile takes when not told",
        ),
        Option(
            name="data_tiling",
            type="bool",
            default=False,
            presets={"recommended": True},
            help="--iree-opt-data-tiling: lay operands of matrix products out in tiles",
        ),
        Option(
            name="convolutions",
            type="str",
            default="as-is",
            choices=tuple(CONVOLUTIONS),
            presets={"recommended": "channels-last"},
            help="how convolutions are rewritten before anything else",
        ),
        Option(
            name="target_cpu",
            type="str",
            default="host",
            help="--iree-llvmcpu-target-cpu; generic runs anywhere of that architecture",
        ),
        Option(
            name="flags",
            type="str",
            default="",
            help="further flags of iree-compile, as in a shell",
        ),
    )

    def probe(self, device: Device) -> Support:
        return probe_vendor(self, device, look=_version, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> IreeProgram:
        check_request(self, workload, device)
        with tempfile.TemporaryDirectory(prefix="iree-") as folder:
            code, report = _build(workload.onnx_path, options, folder=Path(folder))
        return _program(code, report, workload=workload, device=device)

    def load_artifact(
        self,
        folder: Path,
        workload: Workload,
        device: Device,
        options: Mapping[str, OptionValue],
    ) -> IreeProgram:
        report = json.loads((folder / REPORT).read_text())
        return _program((folder / ARTIFACT).read_bytes(), report, workload=workload, device=device)

    def signature(self, path: Path, given: Sequence[TensorSpec]) -> Signature:
        return signature_of(_prebuilt(path, Device()), given)

    def open_prebuilt(
        self, path: Path, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> IreeProgram:
        return IreeProgram(_prebuilt(path, device), workload=workload)


def _prebuilt(path: Path, device: Device) -> IreeModule:
    code = path.read_bytes()
    report = {"share": 1.0, "unit": "nodes", "entry": entry_of(code)}
    return _loaded(code, report, threads=device.threads)


@dataclass(frozen=True, slots=True)
class IreeModule:
    """A loaded module with its device: what the contexts of a program share."""

    runtime: Any
    instance: Any
    device: Any
    loaded: tuple[Any, ...]
    function: Any
    report: Json

    def context(self) -> Any:
        """Return a new context, in which the module's globals are made anew."""
        return self.runtime.VmContext(self.instance, modules=list(self.loaded))

    @property
    def code(self) -> bytes:
        """What the compiler wrote."""
        return bytes(self.loaded[-1].stashed_flatbuffer_blob)

    def buffer(self, array: Array, *, spec: TensorSpec) -> Any:
        """Return a reference to a copy of ``array`` on the device. Raises RunFailed."""
        runtime = self.runtime
        try:
            view = self.device.allocator.allocate_buffer_copy(
                memory_type=runtime.MemoryType.DEVICE_LOCAL,
                allowed_usage=runtime.BufferUsage.DEFAULT | runtime.BufferUsage.MAPPING,
                device=self.device,
                buffer=np.array(array, copy=True, order="C"),
                element_type=_element_type(runtime, spec),
            )
        except Exception as error:
            raise RunFailed(
                f"iree cannot hold {spec.dtype} (input {spec.name!r}): {cause(error)}",
                reason="load",
            ) from error
        return view.ref

    def array(self, results: Any, place: int, *, spec: TensorSpec) -> Array:
        """Return a copy of the result at ``place``. Raises RunFailed for another shape."""
        view = results.get_as_object(place, self.runtime.HalBufferView)
        if len(view.shape) != len(spec.shape):
            raise RunFailed(
                f"iree gave {spec.name!r} as {list(view.shape)}, not {list(spec.shape)}.",
                reason="shape",
            )
        wanted = storage_dtype(spec.dtype)
        mapped = view.map().asarray(view.shape, wanted)
        return np.array(mapped, copy=True, order="C")


def _version() -> str:
    runtime = importlib.import_module("iree.runtime")
    importlib.import_module("onnx")
    _compile_tool()
    if DRIVER not in runtime.query_available_drivers():
        raise Unavailable(f"It was built without {DRIVER}.")
    return ""


def _element_type(runtime: Any, spec: TensorSpec) -> Any:
    if spec.dtype == BFLOAT16:
        return runtime.HalElementType.BFLOAT_16
    return runtime.array_interop.map_dtype_to_element_type(storage_dtype(spec.dtype))


def _program(code: bytes, report: Json, *, workload: Workload, device: Device) -> IreeProgram:
    try:
        module = _loaded(code, report, threads=device.threads)
        return IreeProgram(module, workload=workload)
    except Exception as error:
        raise CompileFailed(f"iree: {cause(error)}", reason="load-program") from error


def _loaded(code: bytes, report: Json, *, threads: int) -> IreeModule:
    runtime = importlib.import_module("iree.runtime")
    binding = importlib.import_module("iree.runtime._binding")
    # Zero leaves the number of workers to IREE: one for each physical core, at most eight. The
    # flag is read when a driver is made; the one that get_device keeps may have another number.
    runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
    device = binding.create_hal_driver(DRIVER).create_default_device()
    instance = runtime.VmInstance()
    module = runtime.VmModule.copy_buffer(instance, code)
    hal = runtime.create_hal_module(instance, device)
    function = module.lookup_function(report["entry"])
    return IreeModule(runtime, instance, device, (hal, module), function, report)


def _build(model: Path, options: Mapping[str, OptionValue], *, folder: Path) -> tuple[bytes, Json]:
    """Return the module's bytes and the report on it; intermediate files go to ``folder``."""
    imported, built, statistics = (
        folder / name for name in ("model.mlir", ARTIFACT, "statistics.json")
    )
    source = copy_unlinked(model.resolve(), folder)
    importer = [sys.executable, "-m", "iree.compiler.tools.import_onnx", str(source)]
    _run([*importer, "-o", str(imported)], folder=folder, reason="import")
    command = [_compile_tool(), str(imported), "-o", str(built)]
    command += ["--iree-scheduling-dump-statistics-format=json"]
    command += [f"--iree-scheduling-dump-statistics-file={statistics}"]
    notes: list[str] = []
    *attempts, last = _attempts(options)
    for flags in attempts:
        try:
            _run([*command, *flags], folder=folder, reason="compile")
        except CompileFailed as error:
            notes.append(f"did not compile with {' '.join(flags)}: {error.message[:300]}")
        else:
            last = flags
            break
    else:
        _run([*command, *last], folder=folder, reason="compile")
    entry = _entry(imported)
    return built.read_bytes(), _report(statistics, entry=entry, flags=last, notes=notes)


def _entry(imported: Path) -> str:
    """Return the name of the function that the importer made of the graph."""
    with imported.open() as lines:
        for line in lines:
            if found := re.search(r'func\.func @("[^"]+"|[^("]+)\(', line):
                return found[1].strip('"')
    raise CompileFailed("IREE's importer wrote no function.", reason="import")


def _report(statistics: Path, *, entry: str, flags: Sequence[str], notes: Sequence[str]) -> Json:
    """Return the coverage: what cannot be lowered fails, so all that runs was compiled."""
    report: Json = {"share": 1.0, "unit": "nodes", "entry": entry, "flags": list(flags)}
    with suppress(OSError, ValueError, KeyError):
        told = json.loads(statistics.read_text())["stream-aggregate"]
        report["parts"] = {"llvm-cpu dispatches": int(told["execution"]["dispatch-count"])}
    return report | {"notes": list(notes)}


def _attempts(options: Mapping[str, OptionValue]) -> list[list[str]]:
    """Return sets of flags, best first: data tiling of the preset is taken back where it fails.

    Everything else was asked for, or is known to compile whatever compiles without it.
    """
    steps = [_flags(options)]
    if options.get("preset") == "recommended" and options.get("data_tiling"):
        steps.append(_flags({**options, "data_tiling": False}))
    return steps


def _flags(options: Mapping[str, OptionValue]) -> list[str]:
    flags = [
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        f"--iree-llvmcpu-target-cpu={options.get('target_cpu', 'host')}",
        f"--iree-opt-level={options.get('opt_level', 'O0')}",
    ]
    if options.get("data_tiling", False):
        flags.append("--iree-opt-data-tiling")
    if rewrite := CONVOLUTIONS[str(options.get("convolutions", "as-is"))]:
        flags.append(f"--iree-preprocessing-pass-pipeline=builtin.module(util.func({rewrite}))")
    return flags + shlex.split(str(options.get("flags", "")))


def _run(command: Sequence[str], *, folder: Path, reason: str) -> None:
    """Run a tool of IREE's, its words to the log; raises Unsupported or CompileFailed."""
    tool = Path(command[0]).name if reason == "compile" else "iree-import-onnx"
    code, words = heard(command, folder=folder, name=tool)
    if code:
        raise _translated(words, tool=tool, code=code, reason=reason)


# Words in the vendor's messages for things it never promised to do.
_UNSUPPORTED = (
    ("failed to legalize operation 'torch.", "operator"),
    ("unsupported ONNX", "model-format"),
    ("unsupported by torch-mlir", "operator"),
)


def _translated(words: str, *, tool: str, code: int, reason: str) -> Unsupported | CompileFailed:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    told = [line for line in lines if "error:" in line or "Error:" in line] or lines[-3:]
    ended = f"died of signal {-code}" if code < 0 else f"ended with exit status {code}"
    text = f"{tool} {ended}: " + "\n".join(line[:400] for line in told[:6])
    for part, what in _UNSUPPORTED:
        if part in words:
            return Unsupported(text, reason=what)
    return CompileFailed(text, reason=reason)


def _compile_tool() -> str:
    binaries = importlib.import_module("iree.compiler.tools.binaries")
    return str(binaries.find_tool("iree-compile"))
