"""A plugin that keeps the whole contract: bad ones are made of it, with one fault each."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ngraphbench.errors import CompileFailed, RunFailed, Unsupported
from ngraphbench.models.onnxdata import load_whole
from ngraphbench.plugin import Compiler, Program
from ngraphbench.types import Array, Arrays, Device, Json, OptionValue, Support
from ngraphbench.workload import Workload


class GoodProgram(Program):
    def __init__(self, evaluator: Any, workload: Workload) -> None:
        self.evaluator = evaluator
        self.workload = workload
        self.inputs: Arrays = {}
        self.result: list[Array] = []
        self.closed = False
        self.runs = 0

    def load(self, inputs: Arrays) -> None:
        for spec in self.workload.inputs:
            if spec.name not in inputs or inputs[spec.name].shape != spec.shape:
                raise RunFailed(f"input {spec.name} does not fit", reason="input")
        self.inputs = {name: value.copy() for name, value in inputs.items()}

    def run(self) -> None:
        if self.closed:
            raise RunFailed("closed", reason="closed")
        self.result = self.evaluator.run(None, self.inputs)
        self.runs += 1

    def outputs(self) -> Arrays:
        if self.closed:
            raise RunFailed("closed", reason="closed")
        names = self.evaluator.output_names
        return {name: np.array(v) for name, v in zip(names, self.result, strict=True)}

    def close(self) -> None:
        self.closed = True

    def coverage(self) -> Json:
        return {"runs": self.runs}


class Good(Compiler):
    """Keeps the whole contract."""

    name: ClassVar[str] = "good"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    threads_env: ClassVar[tuple[str, ...]] = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    program: ClassVar[type[GoodProgram]] = GoodProgram

    def probe(self, device: Device) -> Support:
        return Support(ok=True, version="1")

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        if "onnx" not in workload.forms:
            raise Unsupported("not ONNX", reason="form")
        if workload.precision != "fp32":
            raise Unsupported("fp32 only", reason="precision")
        return self.program(read_model(workload.onnx_path), workload)


def read_model(path: Path) -> Any:
    from onnx.reference import ReferenceEvaluator

    try:
        return ReferenceEvaluator(load_whole(path))
    except Exception as error:
        raise CompileFailed(f"cannot read the model: {error}", reason="load-model") from error


class Loading(Good):
    """Starts from what its programs save."""

    def load_artifact(
        self,
        folder: Path,
        workload: Workload,
        device: Device,
        options: Mapping[str, OptionValue],
    ) -> Program:
        return self.made_of(folder, workload)

    def made_of(self, folder: Path, workload: Workload) -> Program:
        return self.program(read_model(folder / "model.onnx"), workload)


class ManyLanes(GoodProgram):
    def lanes(self, count: int) -> list[Program]:
        path = self.workload.onnx_path
        return [GoodProgram(read_model(path), self.workload) for _ in range(count)]

    def save(self, folder: Path) -> None:
        shutil.copy(self.workload.onnx_path, folder / "model.onnx")


class HasEverything(Loading):
    """Keeps the contract, with lanes and artefacts too."""

    program = ManyLanes
