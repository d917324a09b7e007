"""Compilers that are right until several requests are in flight."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import ClassVar

from ngraphbench.compilers.fake import FakeCompiler, FakeProgram
from ngraphbench.errors import RunFailed
from ngraphbench.plugin import Program
from ngraphbench.types import Arrays, Device, Option, OptionValue
from ngraphbench.workload import Workload

__all__ = ["TARGET", "Laned"]

TARGET = "lane_faults:Laned"
KINDS = ("none", "crash", "hang", "raise", "wrong", "few", "mixed")


class Lane(FakeProgram):
    """One request in flight, to which ``kind`` happens."""

    kind = "none"

    def run(self) -> None:
        super().run()
        if self.kind == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.kind == "hang":
            time.sleep(3600)
        if self.kind == "raise":
            raise RunFailed("a lane was asked to fail.", reason="lane")

    def outputs(self) -> Arrays:
        arrays = super().outputs()
        return {k: v + 1 if self.kind == "wrong" else v for k, v in arrays.items()}


class LanedProgram(FakeProgram):
    """A program whose lanes go wrong."""

    kind = "none"

    def lanes(self, count: int) -> list[Program]:
        if self.kind == "few":
            count = 1
        made = [Lane(self._workload, work_ns=0, units=1, fault="none") for _ in range(count)]
        for lane in made:
            lane.kind = self.kind
        # All requests share the inputs of the first.
        return [made[0]] * count if self.kind == "mixed" else list(made)


class Laned(FakeCompiler):
    """A fake compiler whose programs go wrong with several requests in flight."""

    name: ClassVar[str] = "laned"
    options: ClassVar[tuple[Option, ...]] = (
        Option(name="kind", type="str", default="none", choices=KINDS, help="what goes wrong"),
    )

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> FakeProgram:
        program = LanedProgram(workload, work_ns=20_000, units=0, fault="none")
        program.kind = str(options.get("kind", "none"))
        return program
