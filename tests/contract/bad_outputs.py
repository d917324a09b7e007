"""Plugins whose programs lie in what they answer: wrong outputs, shared or leftover state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from good_plugins import Good, GoodProgram

from ngraphbench.plugin import Program
from ngraphbench.types import Arrays, Device, OptionValue
from ngraphbench.workload import Workload


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
