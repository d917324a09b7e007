"""A compiler plugin in one file: ONNX models run by the reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ngraphbench.errors import CompileFailed, RunFailed, Unsupported
from ngraphbench.models.onnxdata import load_whole
from ngraphbench.plugin import PRESET, Compiler, Program, package_version
from ngraphbench.types import (
    Arrays,
    Device,
    Json,
    Option,
    OptionValue,
    Support,
    storage_dtype,
)
from ngraphbench.workload import Workload

__all__ = ["Toy"]


class ToyProgram(Program):
    """A model in the reference evaluator, with its inputs held as copies."""

    def __init__(self, evaluator: Any, workload: Workload) -> None:
        self._evaluator = evaluator
        self._specs = workload.inputs
        self._inputs: Arrays = {}
        self._result: list[Any] | None = None

    def load(self, inputs: Arrays) -> None:
        for spec in self._specs:
            found = inputs.get(spec.name)
            if found is None or found.shape != spec.shape:
                raise RunFailed(f"Input {spec.name!r} must have shape {spec.shape}.")
            if found.dtype != storage_dtype(spec.dtype):
                raise RunFailed(f"Input {spec.name!r} must be {spec.dtype}, not {found.dtype}.")
        self._inputs = {spec.name: np.array(inputs[spec.name]) for spec in self._specs}
        self._result = None

    def run(self) -> None:
        if self._evaluator is None:
            raise RunFailed("This program is closed.", reason="closed")
        try:
            self._result = self._evaluator.run(None, self._inputs)
        except Exception as error:
            raise RunFailed(f"The reference evaluator failed: {error}", reason="run") from error

    def outputs(self) -> Arrays:
        if self._evaluator is None or self._result is None:
            raise RunFailed("There are no outputs: run first, and close last.", reason="no-run")
        names = self._evaluator.output_names
        return {name: np.array(v) for name, v in zip(names, self._result, strict=True)}

    def close(self) -> None:
        self._evaluator = self._result = None
        self._inputs = {}

    def coverage(self) -> Json:
        """Report what was executed; optional, found by its name."""
        return {"nodes": len(self._evaluator.nodes_) if self._evaluator else 0}


class Toy(Compiler):
    """The reference evaluator of ``onnx``."""

    name: ClassVar[str] = "toy"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    packages: ClassVar[tuple[str, ...]] = ("onnx", "numpy")
    # Numpy's BLAS reads these once, when it is loaded.
    threads_env: ClassVar[tuple[str, ...]] = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    install: ClassVar[str] = "pip install ngb-toy"
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="check",
            type="bool",
            default=True,
            help="check the model before it is built",
        ),
    )

    def probe(self, device: Device) -> Support:
        if device.accelerator != "cpu":
            return Support(ok=False, hint="The reference evaluator runs on the CPU alone.")
        version = package_version("onnx")
        return Support(ok=bool(version), version=version, hint="" if version else self.install)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> ToyProgram:
        if "onnx" not in workload.forms:
            raise Unsupported("The reference evaluator takes ONNX alone.", reason="form")
        if workload.precision != "fp32":
            raise Unsupported("It runs the precision in the file.", reason="precision")
        import onnx
        from onnx.reference import ReferenceEvaluator

        try:
            model = load_whole(workload.onnx_path)
            if options["check"]:
                onnx.checker.check_model(model)
            evaluator = ReferenceEvaluator(model)
        except NotImplementedError as error:
            raise Unsupported(f"An operator is missing: {error}", reason="operator") from error
        except Exception as error:
            raise CompileFailed(f"The model was not built: {error}", reason="compile") from error
        return ToyProgram(evaluator, workload)
