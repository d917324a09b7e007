"""Compilers for tests of the worker: well behaved, or faulty as the option ``fault`` says."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ngraphbench.errors import CompileFailed, RunFailed
from ngraphbench.plugin import Compiler, Program
from ngraphbench.types import Arrays, Device, Json, Option, OptionValue, Support
from ngraphbench.workload import Workload

DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(600)
"""


class Doubling(Program):
    """Its outputs are twice its inputs."""

    def __init__(self, fault: str, argument: str) -> None:
        self._fault = fault
        self._argument = argument
        self._inputs: Arrays = {}
        self._outputs: Arrays = {}

    def load(self, inputs: Arrays) -> None:
        self._inputs = inputs

    def run(self) -> None:
        act(self._fault, "run", self._argument)
        self._outputs = {f"{k}_out": v * 2 for k, v in self._inputs.items()}

    def outputs(self) -> Arrays:
        if self._fault == "outputs-list":
            return {"x": [1, 2]}
        return self._outputs

    def coverage(self) -> Json:
        return {"nodes": np.int64(3)}

    def close(self) -> None:
        act(self._fault, "close", self._argument)


class Faulty(Compiler):
    name = "faulty"
    accepts = ("onnx",)
    options = (
        Option("fault", "str", "", "what goes wrong, STAGE:WHAT"),
        Option("argument", "str", "", "a path for it"),
    )
    packages = ("numpy",)
    threads_env = ("OMP_NUM_THREADS", "TVM_NUM_THREADS")
    cache_env = ("TORCHINDUCTOR_CACHE_DIR",)

    def probe(self, device: Device) -> Support:
        return Support(ok=True, version="1.5")

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        fault, argument = str(options["fault"]), str(options["argument"])
        act(fault, "compile", argument)
        return Doubling(fault, argument)


class Tuning(Faulty):
    """Claims to have tuned for far longer than it compiled."""

    name = "tuning"

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        return Tuned("", "")


class Tuned(Doubling):
    def tuning_s(self) -> float:
        return 1000.0


class Absent(Faulty):
    name = "absent"

    def probe(self, device: Device) -> Support:
        return Support(ok=False, hint="pip install absent")


class Portable(Faulty):
    name = "portable"
    accepts = ("pt2",)


def act(fault: str, stage: str, argument: str) -> None:  # noqa: PLR0912
    """Do what ``fault`` says when it is meant for this stage."""
    at, _, what = fault.partition(":")
    if at != stage:
        return
    if what == "exit":
        os._exit(3)
    elif what == "system-exit":
        sys.exit(4)
    elif what == "segfault":
        ctypes.string_at(0)
    elif what == "kill":
        os.kill(os.getpid(), 9)
    elif what == "hang":
        time.sleep(600)
    elif what == "memory":
        kept = []
        while True:
            kept.append(bytearray(os.urandom(1)) * (16 << 20))
            time.sleep(0.005)
    elif what == "memory-error":
        raise MemoryError
    elif what == "bad-alloc":
        raise RuntimeError("vendor: std::bad_alloc while folding")
    elif what == "value-error":
        raise ValueError("a bad value")
    elif what == "compile-failed":
        raise CompileFailed("no kernel", reason="kernel", hint="Try less.")
    elif what == "run-failed":
        raise RunFailed("no device", reason="device")
    elif what == "flood":
        for _ in range(80):
            os.write(1, b"x" * 99_999 + b"\n")
    elif what == "protocol-guess":
        for fd in range(3):
            os.write(fd, b"\xff\xff\xff\xff") if fd else None
    elif what == "daemon":
        subprocess.run([sys.executable, "-c", DAEMON, argument], check=True)
    elif what == "bare-daemon":
        # Nothing of it tells whose it is.
        subprocess.run([sys.executable, "-c", DAEMON, argument], check=True, env={})
    elif what == "shared-memory":
        Path(f"/dev/shm/ngb-left-{os.getpid()}").write_bytes(b"x" * (4 << 20))
    elif what == "memory-at-once":
        bytearray(b"x") * (2 << 30)
    elif what == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(argument).write_text(str(child.pid))
    elif what == "fork-and-exit":
        if os.fork() == 0:
            time.sleep(600)
        os._exit(5)
