"""Compilers that are right at first: what goes wrong, goes wrong in a timed slot or after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from ngraphbench.compilers.fake import FakeCompiler, FakeProgram
from ngraphbench.errors import RunFailed, SpecError
from ngraphbench.types import Arrays, Device, Option, OptionValue
from ngraphbench.workload import Workload

__all__ = ["TARGET", "Late"]

TARGET = "late_faults:Late"
KINDS = (
    *("none", "crash", "exit", "hang", "raise", "leave", "spec-error", "memory", "drift"),
    *("child", "text", "object", "import"),
)


class LateProgram(FakeProgram):
    """Right for its first runs; then ``kind`` happens."""

    kind = "none"
    runs = 0

    def run(self) -> None:
        super().run()
        self.runs += 1
        # Two checks and at most forty runs until steady come before the first slot.
        if self.runs > 60:
            _fail(self.kind)

    def outputs(self) -> Arrays:
        arrays = super().outputs()
        if self.kind == "drift" and self.runs > 60:
            return {name: value + 1 for name, value in arrays.items()}
        if self.kind == "text":
            return {name: np.full(value.shape, "x") for name, value in arrays.items()}
        if self.kind == "object":
            return {name: value.astype(object) for name, value in arrays.items()}
        return arrays


class Late(FakeCompiler):
    """A fake compiler whose programs go wrong late."""

    name: ClassVar[str] = "late"
    options: ClassVar[tuple[Option, ...]] = (
        Option(name="kind", type="str", default="none", choices=KINDS, help="what goes wrong"),
    )

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> FakeProgram:
        kind = str(options.get("kind", "none"))
        if kind == "import":
            sys.exit(7)
        program = LateProgram(workload, work_ns=20_000, units=0, fault="none")
        program.kind = kind
        if kind == "child":
            subprocess.Popen([sys.executable, "-c", "while True: pass"])
        return program


def _fail(kind: str) -> None:
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif kind == "exit":
        os._exit(3)
    elif kind == "hang":
        time.sleep(3600)
    elif kind == "raise":
        raise RunFailed("late was asked to fail.", reason="late")
    elif kind == "leave":
        sys.exit(5)
    elif kind == "spec-error":
        raise SpecError("late has a wish.", reason="late")
    elif kind == "memory":
        raise MemoryError
