"""Apache TVM: an ONNX file through Relax, its loops as they are or tuned by MetaSchedule."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
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
from ngraphbench.compilers.metaschedule import (
    Budget,
    Progress,
    database_folder,
    prepared,
    take,
    tune,
)
from ngraphbench.errors import CompileFailed, NGraphBenchError, RunFailed, Unsupported
from ngraphbench.models.onnxdata import load_whole
from ngraphbench.plugin import Compiler, Program, package_version
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

__all__ = ["Tvm"]

INSTALL = "ngb env create tvm, or: pip install apache-tvm apache-tvm-ffi==0.1.14.post1 onnx"
PACKAGES = ("apache-tvm", "apache-tvm-ffi", "xgboost", "onnx")
CACHE_VARIABLE = "NGRAPHBENCH_TVM_CACHE"
ARTIFACT = "program.so"
REPORT = "coverage.json"
ENTRY = "main"


class TvmProgram(Program):
    """The main function in a Relax virtual machine."""

    def __init__(
        self,
        library: Any,
        *,
        workload: Workload,
        report: Json,
        write: Callable[[str], Any] | None,
        tuning_s: float | None = None,
    ) -> None:
        tvm = importlib.import_module("tvm")
        self._tvm: Any = tvm
        self._write = write
        self._workload = workload
        self._report = report
        self._tuning_s = tuning_s
        self._machine: Any = tvm.relax.VirtualMachine(library, tvm.cpu())
        self._call = self._machine[ENTRY]
        self._arguments: tuple[Any, ...] = ()
        self._result: Any = None

    def load(self, inputs: Arrays) -> None:
        check_open(self._machine, name="tvm")
        check_inputs(self._workload.inputs, inputs)
        self._arguments = tuple(
            _tensor(self._tvm, inputs[spec.name], spec=spec) for spec in self._workload.inputs
        )
        self._result = None

    def run(self) -> None:
        if self._machine is None:
            check_open(None, name="tvm")
        try:
            self._result = self._call(*self._arguments)
        except Exception as error:
            raise RunFailed(f"tvm: {cause(error)}", reason="run") from error

    def outputs(self) -> Arrays:
        check_open(self._machine, name="tvm")
        check_ran(self._result)
        specs = self._workload.outputs
        values = [self._result] if hasattr(self._result, "numpy") else list(self._result)
        if len(values) != len(specs):
            raise RunFailed(f"tvm gave {len(values)} outputs, not {len(specs)}.", reason="outputs")
        return {s.name: _array(v, spec=s) for s, v in zip(specs, values, strict=True)}

    def close(self) -> None:
        self._machine = self._call = self._result = self._write = None
        self._arguments = ()

    def save(self, folder: Path) -> None:
        check_open(self._machine, name="tvm")
        if self._write is None:
            raise Unsupported("TVM's program was not linked.", reason="artefact")
        self._write(str(folder / ARTIFACT))
        (folder / REPORT).write_text(json.dumps(self._report))

    def coverage(self) -> Json:
        return dict(self._report)

    def tuning_s(self) -> float | None:
        """Return how long this compile's tuning took, None where it was not tuned."""
        return self._tuning_s


class Tvm(Compiler):
    """TVM's CPU code generation, with the weights compiled in."""

    name: ClassVar[str] = "tvm"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    packages: ClassVar[tuple[str, ...]] = PACKAGES
    threads_env: ClassVar[tuple[str, ...]] = ("TVM_NUM_THREADS",)
    cache_env: ClassVar[tuple[str, ...]] = (CACHE_VARIABLE,)
    # Untuned it is a loop nest as written: nobody wants to wait for that unasked.
    default: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            name="preset",
            type="str",
            default="shipped",
            choices=("shipped", "recommended"),
            help="shipped: loops as they come; recommended: tuned, which takes minutes",
        ),
        Option(
            name="trials",
            type="int",
            default=0,
            minimum=0,
            presets={"recommended": 2000},
            help="candidates that MetaSchedule measures; 0: not tuned",
        ),
        Option(
            name="tuning_s",
            type="float",
            default=480.0,
            minimum=0,
            help="seconds after which tuning ends all the same; 0: no limit",
        ),
        Option(
            name="database",
            type="str",
            default="",
            help="absolute path of a folder for tuning databases; else each case has its own",
            database=True,
        ),
        Option(
            name="mcpu",
            type="str",
            default="host",
            help="LLVM's name of the processor to compile for",
        ),
    )

    def probe(self, device: Device) -> Support:
        return probe_vendor(self, device, look=_version, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> TvmProgram:
        check_request(self, workload, device)
        tvm = _import_tvm(threads=device.threads)
        target = _target(tvm, device, mcpu=str(options.get("mcpu", "host")))
        report: Json = {"share": 1.0, "unit": "nodes", "target": target, "notes": []}
        tuning_s = None
        try:
            module, aim = _imported(workload.onnx_path), tvm.target.Target(target)
            budget = Budget(int(options.get("trials", 0)), float(options.get("tuning_s", 0)))
            if budget.trials:
                started = time.monotonic()
                database = _database(workload.onnx_path, target=target, options=options)
                reached = tune(workload.onnx_path, database=database, target=target, budget=budget)
                tuning_s = time.monotonic() - started
                report["tuning"] = asdict(reached)
                module, report["parts"] = _tuned(
                    module, database=database, reached=reached, target=aim
                )
            built = tvm.compile(module, aim)
            with tempfile.TemporaryDirectory(prefix="tvm-") as folder:
                library = _linked(tvm, built, Path(folder) / ARTIFACT)
            if library is None:
                report["notes"].append("no C++ compiler: it runs unlinked, and cannot be saved")
            return TvmProgram(
                library or built,
                workload=workload,
                report=report,
                write=built.export_library if library else None,
                tuning_s=tuning_s,
            )
        except NGraphBenchError:
            raise
        except Exception as error:
            raise _translated(error) from error

    def load_artifact(
        self,
        folder: Path,
        workload: Workload,
        device: Device,
        options: Mapping[str, OptionValue],
    ) -> TvmProgram:
        tvm = _import_tvm(threads=device.threads)
        report = json.loads((folder / REPORT).read_text())
        try:
            library = tvm.runtime.load_module(str(folder / ARTIFACT))

            def write(path: str) -> None:
                shutil.copyfile(folder / ARTIFACT, path)

            return TvmProgram(library, workload=workload, report=report, write=write)
        except Exception as error:
            raise CompileFailed(f"tvm: {cause(error)}", reason="load-program") from error


def _version() -> str:
    _import_tvm()
    for module in ("tvm.relax.frontend.onnx", "onnx"):
        importlib.import_module(module)
    return ""


def _import_tvm(*, threads: int = VENDOR_DEFAULT) -> Any:
    # Bound to processors, its threads would crowd on the first ones.
    os.environ["TVM_BIND_THREADS"] = "0"
    tvm = importlib.import_module("tvm")
    if threads != VENDOR_DEFAULT:
        every_core = 1
        tvm.get_global_func("runtime.config_threadpool")(every_core, threads)
    return tvm


def _linked(tvm: Any, built: Any, path: Path) -> Any:
    """Return the library as it is deployed: linked to ``path``, and loaded from there.

    So each launch runs what the first ran. None where there is nothing to link with.
    """
    if tvm.support.cc.get_cc() is None:
        return None
    built.export_library(str(path))
    return tvm.runtime.load_module(str(path))


def _parts(module: Any) -> dict[str, int]:
    kind = importlib.import_module("tvm.tirx").PrimFunc
    loops = [f for f in module.functions.values() if isinstance(f, kind)]
    tuned = sum(1 for f in loops if f.attrs and f.attrs.get("tirx.is_scheduled"))
    return {"tuned": tuned, "as written": len(loops) - tuned}


def _target(tvm: Any, device: Device, *, mcpu: str) -> Json:
    host = tvm.target.codegen.llvm_get_system_cpu()
    cores = device.threads or len(os.sched_getaffinity(0))
    return {"kind": "llvm", "mcpu": host if mcpu == "host" else mcpu, "num-cores": cores}


def _imported(path: Path) -> Any:
    frontend = importlib.import_module("tvm.relax.frontend.onnx")
    try:
        return frontend.from_onnx(load_whole(path))
    except Exception as error:
        raise _translated(error) from error


def _tuned(
    module: Any, *, database: Path, reached: Progress, target: Any
) -> tuple[Any, dict[str, int]]:
    """Return the module with the best loops of the records, and weights laid out for them.

    With it comes how many loop nests the records had, and how many stay as written.
    """
    transform = importlib.import_module("tvm.relax.transform")
    passes = importlib.import_module("tvm.ir.transform")
    module = prepared(module, target=target)
    with tempfile.TemporaryDirectory(prefix="tvm-") as folder, target:
        if reached.records:
            take(database, reached, folder=Path(folder))
            module = transform.MetaScheduleApplyDatabase(folder)(module)
        parts = _parts(module)
        laid_out = (
            transform.SplitLayoutRewritePreproc(),
            transform.LiftTransformParams(),
            transform.FoldConstant(),
        )
        return passes.Sequential(laid_out)(module), parts


def _database(model: Path, *, target: Json, options: Mapping[str, OptionValue]) -> Path:
    root = str(options.get("database", "")) or os.environ.get(CACHE_VARIABLE, "")
    if not root:
        raise Unsupported(
            "TVM has no folder to keep its tuning database in.",
            reason="cache",
            hint=f"Give the option database=FOLDER, or set {CACHE_VARIABLE}.",
        )
    if not Path(root).is_absolute():
        # A worker has a home and a working folder of its own.
        raise Unsupported(
            f"tvm: database={root} is no absolute path.",
            reason="option",
            hint="Name the folder from the root on.",
        )
    version = package_version("apache-tvm")
    text = json.dumps(target, sort_keys=True)
    return database_folder(Path(root), model=model, target=text, version=version)


# Words in the vendor's messages for things it never promised to do.
_UNSUPPORTED = (
    "not supported for frontend ONNX",
    "not implemented",
    "is not supported",
)


def _translated(error: Exception) -> Unsupported | CompileFailed:
    text = f"tvm: {cause(error)}"
    # The frontend's own error for an operator that it lacks is one of these.
    if isinstance(error, NotImplementedError) or any(words in str(error) for words in _UNSUPPORTED):
        return Unsupported(text, reason="operator")
    return CompileFailed(text, reason="compile")


def _tensor(tvm: Any, array: Array, *, spec: TensorSpec) -> Any:
    """Return a tensor with a copy of the array. Raises RunFailed."""
    owned = np.array(array, copy=True, order="C")
    if spec.dtype == BFLOAT16:
        owned = owned.view(importlib.import_module("ml_dtypes").bfloat16)
    try:
        return tvm.runtime.tensor(owned)
    except Exception as error:
        raise RunFailed(
            f"tvm cannot hold {spec.dtype} (input {spec.name!r}): {cause(error)}", reason="load"
        ) from error


def _array(value: Any, *, spec: TensorSpec) -> Array:
    found = value.numpy()
    if spec.dtype == BFLOAT16:
        found = found.view(np.uint16)
    return np.array(found, copy=True, order="C")
