"""One good plugin and many bad ones, each with one planted fault."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ngraphbench.errors import CompileFailed, RunFailed, Unsupported
from ngraphbench.plugin import Compiler, Program
from ngraphbench.types import Array, Arrays, Device, Json, Option, OptionValue, Support
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
        return self.program(_evaluator(workload), workload)


def _evaluator(workload: Workload) -> Any:
    from onnx.reference import ReferenceEvaluator

    try:
        return ReferenceEvaluator(str(workload.onnx_path))
    except Exception as error:
        raise CompileFailed(f"cannot read the model: {error}", reason="load-model") from error


class FirstInputOnly(GoodProgram):
    def load(self, inputs: Arrays) -> None:
        if not self.inputs:
            super().load(inputs)


class ReplaysFirstInput(Good):
    program = FirstInputOnly


class ViewsOut(GoodProgram):
    def run(self) -> None:
        held = self.result
        super().run()
        if held:
            for old, new in zip(held, self.result, strict=True):
                old[...] = new
            self.result = held

    def outputs(self) -> Arrays:
        super().outputs()
        return dict(zip(self.evaluator.output_names, self.result, strict=True))


class ReturnsViews(Good):
    program = ViewsOut


class ReferencesIn(GoodProgram):
    def load(self, inputs: Arrays) -> None:
        super().load(inputs)
        self.inputs = inputs


class KeepsTheCallersArrays(Good):
    program = ReferencesIn


class InPlace(ReferencesIn):
    def run(self) -> None:
        super().run()
        for value in self.inputs.values():
            np.add(value, 1, out=value)


class MutatesInputs(Good):
    program = InPlace


class AnyInput(GoodProgram):
    def load(self, inputs: Arrays) -> None:
        self.inputs = {name: value.copy() for name, value in inputs.items()}


class TakesWrongInputs(Good):
    program = AnyInput


class Accumulates(GoodProgram):
    def run(self) -> None:
        super().run()
        self.result = [value * (1 + 0.001 * (self.runs - 1)) for value in self.result]


class DriftsOverRuns(Good):
    program = Accumulates


class LazyReader(GoodProgram):
    def run(self) -> None:
        if self.evaluator is None:
            self.evaluator = _evaluator(self.workload)
        super().run()


class CompilesInRun(Good):
    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        return LazyReader(None, workload)


class SlowFirst(GoodProgram):
    def run(self) -> None:
        if not self.runs:
            time.sleep(0.3)
        super().run()


class FinishesCompilingInRun(Good):
    program = SlowFirst


class FirstRowOnly(GoodProgram):
    def run(self) -> None:
        super().run()
        self.result = [value[:1] for value in self.result]


class IgnoresBatch(Good):
    program = FirstRowOnly


class MixesRows(GoodProgram):
    def run(self) -> None:
        super().run()
        self.result = [value + 0.01 * (len(value) - 1) for value in self.result]


class LetsRowsDependOnTheBatch(Good):
    program = MixesRows


class EverySecond(GoodProgram):
    def run(self) -> None:
        if self.runs % 2 and self.result:
            self.runs += 1
            return
        super().run()


class SkipsEverySecondRun(Good):
    program = EverySecond


class Memo(GoodProgram):
    def load(self, inputs: Arrays) -> None:
        super().load(inputs)
        self.result = []

    def run(self) -> None:
        if not self.result:
            super().run()


class KeepsResults(Good):
    program = Memo


class OneLane(GoodProgram):
    def lanes(self, count: int) -> list[Program]:
        return [self] * count


class SharesLanes(Good):
    """Its lanes are one and the same."""

    program = OneLane


class FewLanes(GoodProgram):
    def lanes(self, count: int) -> list[Program]:
        return [GoodProgram(self.evaluator, self.workload)]


class GivesFewLanes(Good):
    program = FewLanes


class IdleLanes(GoodProgram):
    def lanes(self, count: int) -> list[Program]:
        return [Memo(self.evaluator, self.workload) for _ in range(count)]


class SkipsWorkInLanes(Good):
    """Its lanes run once and keep the result."""

    program = IdleLanes


class ManyLanes(GoodProgram):
    def lanes(self, count: int) -> list[Program]:
        return [GoodProgram(_evaluator(self.workload), self.workload) for _ in range(count)]


class HasLanes(Good):
    """Keeps the contract, lanes too."""

    program = ManyLanes


class SharesState(Good):
    shared: ClassVar[dict[str, Any]] = {}

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        program = super().compile(workload, device, options)
        assert isinstance(program, GoodProgram)
        key = str(workload.batch)
        program.evaluator = self.shared.setdefault(key, program.evaluator)
        return program


class IgnoresThreads(Good):
    threads_env: ClassVar[tuple[str, ...]] = ()


class NeedsAThreadCount(Good):
    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        if device.threads < 1:
            raise CompileFailed("threads must be positive", reason="compile")
        return super().compile(workload, device, options)


class ProbeRaises(Good):
    def probe(self, device: Device) -> Support:
        raise ImportError("libvendor.so: cannot open shared object file")


class ProbeWithoutHint(Good):
    def probe(self, device: Device) -> Support:
        return Support(ok=False)


class DefaultIsNoChoice(Good):
    options: ClassVar[tuple[Option, ...]] = (
        Option(name="level", type="int", default=7, choices=(0, 1), help="level"),
    )


class FragileClose(GoodProgram):
    def close(self) -> None:
        if self.closed:
            raise RuntimeError("already closed")
        super().close()


class CannotCloseTwice(Good):
    program = FragileClose


class NeverCloses(GoodProgram):
    def close(self) -> None:
        pass


class RunsAfterClose(Good):
    program = NeverCloses


class Renamed(GoodProgram):
    def outputs(self) -> Arrays:
        return {f"{name}_0": value for name, value in super().outputs().items()}


class WrongNames(Good):
    program = Renamed


class Flat(GoodProgram):
    def outputs(self) -> Arrays:
        return {name: value.reshape(-1) for name, value in super().outputs().items()}


class WrongShapes(Good):
    program = Flat


class Widened(GoodProgram):
    def outputs(self) -> Arrays:
        return {name: value.astype(np.float64) for name, value in super().outputs().items()}


class WrongDtypes(Good):
    program = Widened


class OffByOne(GoodProgram):
    def outputs(self) -> Arrays:
        return {name: value + 0.001 for name, value in super().outputs().items()}


class WrongValues(Good):
    program = OffByOne


class TakesAnyForm(Good):
    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        return super().compile(replace(workload, forms=("onnx",)), device, options)


class LeaksVendorErrors(Good):
    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        try:
            return super().compile(workload, device, options)
        except CompileFailed as error:
            raise RuntimeError("vendor says no") from error


class Halved(GoodProgram):
    def run(self) -> None:
        super().run()
        self.result = [v.astype(np.float16).astype(v.dtype) for v in self.result]


class RunsLowerPrecision(Good):
    program = Halved


class ClaimsPrecision(Good):
    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        return super().compile(replace(workload, precision="fp32"), device, options)


class WithChild(GoodProgram):
    child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        super().run()
        if self.child is None:
            self.child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

    def close(self) -> None:
        super().close()
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None


class LeavesAChild(Good):
    program = WithChild


class NotJson(GoodProgram):
    def coverage(self) -> Json:
        return {"share": float("nan"), 1: "one"}


class ReportsNoJson(Good):
    program = NotJson


class Kept(GoodProgram):
    def save(self, folder: Path) -> None:
        (folder / "factor").write_text("1.001")


class LoadsAnotherProgram(Good):
    program = Kept

    def load_artifact(
        self,
        folder: Path,
        workload: Workload,
        device: Device,
        options: Mapping[str, OptionValue],
    ) -> Program:
        program = Scaled(_evaluator(workload), workload)
        program.factor = float((folder / "factor").read_text())
        return program


class Scaled(GoodProgram):
    factor = 1.0

    def run(self) -> None:
        super().run()
        self.result = [value * self.factor for value in self.result]


class Remembered(GoodProgram):
    saved: ClassVar[dict[str, Any]] = {}

    def save(self, folder: Path) -> None:
        (folder / "empty").write_text("")
        self.saved[str(folder)] = self


class KeepsArtefactsInItsProcess(Good):
    program = Remembered

    def load_artifact(
        self,
        folder: Path,
        workload: Workload,
        device: Device,
        options: Mapping[str, OptionValue],
    ) -> Program:
        return Remembered.saved[str(folder)]
