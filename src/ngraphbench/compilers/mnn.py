"""MNN: its converter makes a ``.mnn`` file of an ONNX file, and its Module API runs it."""

from __future__ import annotations

import importlib
import json
import mmap
import re
import sys
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
from ngraphbench.compilers.converter import ConvertedFiles, run_converter, told
from ngraphbench.errors import CompileFailed, RunFailed, Unsupported
from ngraphbench.plugin import PRESET, Compiler, Program
from ngraphbench.types import (
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

__all__ = ["Mnn"]

INSTALL = "pip install MNN, or ngb env create mnn"
MODEL = "model.mnn"
WEIGHTS = f"{MODEL}.weight"
"""Found by its name, beside the model; there for some models only."""

CPU = 0

# "normal" and below let it compute in 16 bits where the processor can.
PRECISIONS = {"fp32": "high"}
PREFERENCES = {"normal": 0, "small": 1, "fast": 2}
INTEGERS = ("int32", "int64")

# `python -m MNN.tools.mnnconvert` installs a package and reports each conversion to its makers.
CONVERTER = "import sys, _tools; _tools.mnnconvert(sys.argv)"
OPERATORS = """
import collections, json, sys, MNN.expr
found = collections.Counter(v.op_type for v in MNN.expr.load_as_dict(sys.argv[1]).values())
print(json.dumps({name: n for name, n in found.items() if name not in ("Const", "Input")}))
"""

_MISSING = re.compile(r"NOT_SUPPORTED_OP: \[ ([^\]]+?) \]")
# A node's operator and an attribute, as ONNX's protobuf has them.
_GELU = re.compile(rb"\x22\x04Gelu")
_TANH = re.compile(rb"approximate(?:\xa0\x01\x03)?\x22\x04tanh")


class MnnProgram(Program):
    """A module with its inputs in MNN's variables."""

    def __init__(
        self, module: Any, *, runtime: Any, workload: Workload, files: ConvertedFiles
    ) -> None:
        self._module = module
        self._runtime = runtime
        self._specs = workload.inputs
        self._outputs = workload.outputs
        self._files = files
        self._inputs: list[Any] = []
        self._results: list[Any] = []

    def load(self, inputs: Arrays) -> None:
        check_open(self._module, name="mnn")
        check_inputs(self._specs, inputs)
        self._inputs = [_variable(inputs[spec.name], spec=spec) for spec in self._specs]
        self._results = []

    def run(self) -> None:
        if self._module is None:
            check_open(None, name="mnn")
        try:
            self._results = self._module.onForward(self._inputs)
        except Exception as error:
            raise RunFailed(f"mnn: {cause(error)}", reason="run") from error

    def outputs(self) -> Arrays:
        check_open(self._module, name="mnn")
        check_ran(self._results or None)
        results = zip(self._outputs, self._results, strict=True)
        return {spec.name: _array(value, spec=spec) for spec, value in results}

    def close(self) -> None:
        # Variables of a module are not to outlive it.
        self._inputs, self._results = [], []
        self._module = self._runtime = None
        self._files.remove()

    def save(self, folder: Path) -> None:
        check_open(self._module, name="mnn")
        self._files.write(folder)

    def coverage(self) -> Json:
        """Return the operators by type. MNN's CPU backend runs them all, or none."""
        check_open(self._module, name="mnn")
        command = [sys.executable, "-c", OPERATORS, MODEL]
        # Read by a process of its own: the weights would count as this one's memory.
        text = run_converter(command, folder=self._files.folder, name="MNN")
        operators: Json = json.loads(text.splitlines()[-1])
        return {
            "share": 1.0,
            "unit": "nodes",
            "parts": {"MNN": sum(operators.values())},
            "operators": dict(sorted(operators.items())),
            "notes": [],
        }


class Mnn(Compiler):
    """MNN on the CPU through its Module API, which its documentation recommends."""

    name: ClassVar[str] = "mnn"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    packages: ClassVar[tuple[str, ...]] = ("MNN",)
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="optimize_prefer",
            type="str",
            default="normal",
            choices=tuple(PREFERENCES),
            presets={"recommended": "fast"},
            help="what the converter's graph optimiser prefers",
        ),
        Option(
            name="exact_gelu",
            type="bool",
            default=True,
            presets={"shipped": False},
            help="compute GELU as the model says; untold, MNN takes its tanh approximation",
        ),
    )

    def probe(self, device: Device) -> Support:
        return probe_vendor(self, device, look=_version, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> MnnProgram:
        check_request(self, workload, device, precisions=PRECISIONS)
        _check_dtypes(workload)
        files = ConvertedFiles(MODEL, WEIGHTS, prefix="mnn-")
        try:
            _convert(workload, files.folder, options=options)
            return _program(files, workload, device=device)
        except BaseException:
            files.remove()
            raise

    def load_artifact(
        self,
        folder: Path,
        workload: Workload,
        device: Device,
        options: Mapping[str, OptionValue],
    ) -> MnnProgram:
        files = ConvertedFiles(MODEL, WEIGHTS, prefix="mnn-")
        files.read(folder)
        return _program(files, workload, device=device)


def _version() -> str:
    importlib.import_module("MNN")
    return ""


def _check_dtypes(workload: Workload) -> None:
    for spec in (*workload.inputs, *workload.outputs):
        if spec.dtype != "float32" and spec.dtype not in INTEGERS:
            raise Unsupported(
                f"MNN takes and gives float32 and int32, not {spec.dtype} ({spec.name!r}).",
                reason="dtype",
            )


def _convert(workload: Workload, folder: Path, *, options: Mapping[str, OptionValue]) -> None:
    exact = bool(options.get("exact_gelu", True))
    prefer = PREFERENCES[str(options.get("optimize_prefer", "normal"))]
    wishes = [f"--optimizePrefer={prefer}", f"--useGeluApproximation={int(not exact)}"]
    rewritten = exact and _has_exact_gelu(workload.onnx_path)
    if rewritten:
        # As text, weights would lose digits.
        wishes.append("--saveExternalData")
    source = ("-f", "ONNX", "--modelFile", str(workload.onnx_path.resolve()))
    text = _converter(*source, "--MNNModel", MODEL, *wishes, folder=folder)
    if missing := sorted(set(_MISSING.findall(text))):
        raise Unsupported(f"MNN has no {', '.join(missing)}.", reason="operator")
    if not (folder / MODEL).is_file():
        raise CompileFailed(f"MNN's converter wrote no model: {told(text)}", reason="converter")
    if rewritten:
        _make_gelu_exact(folder)


def _converter(*words: str, folder: Path) -> str:
    command = [sys.executable, "-c", CONVERTER, *words, "--bizCode", "ngb"]
    return run_converter(command, folder=folder, name="MNN's converter")


def _has_exact_gelu(path: Path) -> bool:
    """Return whether the ONNX file has Gelu nodes, and none that asks for the approximation."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return bool(_GELU.search(data)) and not _TANH.search(data)


def _make_gelu_exact(folder: Path) -> None:
    """Edit the converted graph as text, as MNN's documentation of the converter describes.

    The converter takes every Gelu node for the approximation, whatever it is told.
    """
    text = folder / "model.json"
    _converter("-f", "MNN", "--modelFile", MODEL, "--JsonFile", text.name, folder=folder)
    text.write_text(text.read_text().replace('"GELU"', '"GELU_STANDARD"'))
    (folder / MODEL).unlink()
    _converter("-f", "JSON", "--modelFile", text.name, "--MNNModel", MODEL, folder=folder)
    text.unlink()
    if not (folder / MODEL).is_file():
        raise CompileFailed("MNN's converter did not read its own text.", reason="converter")


def _program(files: ConvertedFiles, workload: Workload, *, device: Device) -> MnnProgram:
    from MNN import nn

    config: dict[str, Any] = {
        "backend": CPU,
        "precision": PRECISIONS[workload.precision],
    }
    if device.threads != VENDOR_DEFAULT:
        config["numThread"] = device.threads
    try:
        runtime = nn.create_runtime_manager((config,))
        module = nn.load_module_from_file(
            str(files.folder / MODEL),
            [spec.name for spec in workload.inputs],
            [spec.name for spec in workload.outputs],
            runtime_manager=runtime,
        )
    except Exception as error:
        raise CompileFailed(f"mnn: {cause(error)}", reason="load-model") from error
    return ran_once(MnnProgram(module, runtime=runtime, workload=workload, files=files), workload)


def _variable(array: Array, *, spec: TensorSpec) -> Any:
    """Return a variable with its own copy of the array; integers become MNN's int32."""
    from MNN import expr

    value, kind = np.ascontiguousarray(array), expr.float
    if spec.dtype in INTEGERS:
        value, kind = value.astype(np.int32), expr.int
        if not np.array_equal(value, array):
            raise RunFailed(
                f"Input {spec.name!r} holds values beyond int32, which is all MNN has.",
                reason="dtype",
            )
    variable = expr.placeholder(list(array.shape), expr.NCHW, kind)
    variable.write(value)
    return variable


def _array(variable: Any, *, spec: TensorSpec) -> Array:
    from MNN import expr

    if not variable.valid:
        raise RunFailed(f"mnn gave nothing for {spec.name!r}.", reason="run")
    if variable.data_format == expr.NC4HW4:
        # Its own layout, in which channels are padded to four.
        variable = expr.convert(variable, expr.NCHW)
    found = variable.read()
    if found.shape != spec.shape or found.dtype != np.dtype(spec.dtype.replace("int64", "int32")):
        raise RunFailed(
            f"mnn gave {spec.name!r} as {found.dtype} {list(found.shape)},"
            f" not {spec.dtype} {list(spec.shape)}.",
            reason="shape",
        )
    return np.array(found, dtype=spec.dtype, copy=True, order="C")
