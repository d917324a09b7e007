"""Plugins that lie in what they promise: builds, work, lanes, threads, precision, artefacts."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from good_plugins import Good, GoodProgram, Loading, read_model

from ngraphbench.errors import CompileFailed
from ngraphbench.plugin import Program
from ngraphbench.types import Arrays, Device, Json, Option, OptionValue, Support
from ngraphbench.workload import Workload


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


class TrustsNoLinks(Good):
    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        import onnx

        onnx.load(workload.onnx_path)
        return super().compile(workload, device, options)


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


class LazyReader(GoodProgram):
    def run(self) -> None:
        if self.evaluator is None:
            self.evaluator = read_model(self.workload.onnx_path)
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


class IgnoresThreads(Good):
    threads_env: ClassVar[tuple[str, ...]] = ()


class NeedsAThreadCount(Good):
    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        if device.threads < 1:
            raise CompileFailed("threads must be positive", reason="compile")
        return super().compile(workload, device, options)


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


class Kept(GoodProgram):
    def save(self, folder: Path) -> None:
        (folder / "factor").write_text("1.001")


class LoadsAnotherProgram(Loading):
    program = Kept

    def made_of(self, folder: Path, workload: Workload) -> Program:
        program = Scaled(read_model(workload.onnx_path), workload)
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


class KeepsArtefactsInItsProcess(Loading):
    program = Remembered

    def made_of(self, folder: Path, workload: Workload) -> Program:
        return Remembered.saved[str(folder)]


class NotJson(GoodProgram):
    def coverage(self) -> Json:
        return {"share": float("nan"), 1: "one"}


class ReportsNoJson(Good):
    program = NotJson
