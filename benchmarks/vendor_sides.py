"""The two sides of vendor_timers.py: a worker of ngraphbench, and a vendor's timer."""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ngraphbench
from ngraphbench.environments.capture import worker_environment
from ngraphbench.environments.kit import build_kit, worker_command
from ngraphbench.models.sources import resolve_model
from ngraphbench.plugin import discover, load_compiler, resolve_options
from ngraphbench.session import proctree
from ngraphbench.session.process import FD, WorkerProcess
from ngraphbench.types import Device
from ngraphbench.worker.blocks import ROWS as BLOCK_ROWS
from ngraphbench.worker.lanes import WARM_CALLS
from ngraphbench.workload import read_arrays

REWARM_S = 0.01
SETUP_S = 300.0
TURN_PATIENCE_S = 60.0
MEMORY_BYTES = 2**33


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: a compiler as the worker runs it, and a vendor's timer of the same kind."""

    name: str
    theirs: str
    compiler: str
    timer: str
    options: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] = field(default_factory=dict)
    """What the vendor's side is told, beyond the workload and the threads."""
    in_flight: int = 0
    """How many requests the worker holds at a time; 0 is its sync mode."""
    longer: int = 1
    """How many times as long its turns are, and how many times fewer."""
    tolerance: float = 0.02
    shared: bool = False
    """The vendor's timer loads the artefact that the worker saves; both have an interpreter
    of their own."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What both sides of a row share."""

    workload: Path
    scratch: Path
    threads: int
    clock: str
    pythons: Mapping[str, str] = field(default_factory=dict)
    """Interpreters of compilers that are not installed beside this one."""

    def python(self, row: Row) -> str:
        """Return the interpreter of a row's compiler."""
        return self.pythons.get(row.compiler, sys.executable)

    def artifact(self, row: Row) -> Path:
        """Return the folder of what a row's two sides share."""
        return self.scratch / f"artifact-{row.name}"


OPENVINO = ["-infer_precision", "f32", "-ip", "f32"]

ROWS = {
    row.name: row
    for row in (
        Row("eager", "torch.utils.benchmark", "eager", "torch", asked={"compiled": False}),
        Row("inductor", "torch.utils.benchmark", "inductor", "torch", asked={"compiled": True}),
        Row(
            "onnxruntime",
            "bare loop, bound inputs",
            "onnxruntime",
            "onnxruntime",
            asked={"bound": True},
        ),
        # Not of the same kind: numpy arrays are wrapped in every call. To see what that costs.
        Row(
            "onnxruntime numpy",
            "bare loop, numpy arrays",
            "onnxruntime",
            "onnxruntime",
            asked={"bound": False},
        ),
        Row(
            "openvino",
            "benchmark_app -api sync",
            "openvino",
            "benchmark_app",
            asked={
                "sync": True,
                "words": ["-api", "sync", "-hint", "latency", *OPENVINO],
                "settings": {"NUM_STREAMS": 1},
            },
        ),
        Row(
            "openvino x2",
            "benchmark_app -api async",
            "openvino",
            "benchmark_app",
            options={"hint": "throughput", "num_streams": 0},
            asked={
                "sync": False,
                "words": ["-api", "async", "-hint", "throughput", "-nireq", "2", *OPENVINO],
            },
            in_flight=2,
            # Starting and draining two requests is part of a turn: it must be a small one.
            longer=8,
        ),
        Row(
            "iree",
            "iree-benchmark-module",
            "iree",
            "iree-benchmark-module",
            # Each of its turns is a process that starts, loads the module and warms up.
            longer=5,
            tolerance=0.03,
            shared=True,
        ),
        Row("tvm", "time_evaluator", "tvm", "time_evaluator", tolerance=0.03, shared=True),
    )
}
DEFAULT_ROWS = ["eager", "onnxruntime", "openvino", "openvino x2"]


class Vendor:
    """A vendor's timer in its process; suspended but for its turns."""

    def __init__(self, row: Row, setting: Setting) -> None:
        settings = {
            "INFERENCE_NUM_THREADS": setting.threads,
            "ENABLE_CPU_PINNING": False,
            "ENABLE_HYPER_THREADING": True,
        }
        about = {
            "root": str(setting.workload),
            "scratch": str(setting.scratch),
            "threads": setting.threads,
            "clock": setting.clock,
            "artifact": str(setting.artifact(row)),
            **row.asked,
            "settings": settings | row.asked.get("settings", {}),
        }
        script = Path(__file__).with_name("vendor_turns.py")
        self._log = (setting.scratch / f"vendor-{row.name}.log").open("wb")
        self._process = subprocess.Popen(
            [setting.python(row), str(script), row.timer, json.dumps(about)],
            env=os.environ | {"PYTHONPATH": str(Path(ngraphbench.__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )

    def ready(self) -> dict[str, Any]:
        """Wait until it is set up, suspend it, and return what it says it set up."""
        told = self._answer(SETUP_S)
        self._suspend()
        return told

    def turn(self, seconds: float) -> dict[str, Any]:
        """Return what the timer reports of one turn."""
        assert self._process.stdin is not None
        os.killpg(self._process.pid, signal.SIGCONT)
        self._process.stdin.write(json.dumps({"seconds": seconds, "rewarm_s": REWARM_S}) + "\n")
        self._process.stdin.flush()
        found = self._answer(TURN_PATIENCE_S)
        self._suspend()
        return found

    def close(self) -> None:
        """End the process and all it started."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _suspend(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)
        while proctree.state(self._process.pid) not in ("T", "Z", ""):
            time.sleep(0.0002)

    def _answer(self, patience_s: float) -> dict[str, Any]:
        stream = self._process.stdout
        assert stream is not None
        if not select.select([stream], [], [], patience_s)[0] or not (line := stream.readline()):
            tail = Path(self._log.name).read_text(errors="replace")[-2000:]
            raise SystemExit(f"The vendor's timer said nothing. Its log ends:\n{tail}")
        return dict(json.loads(line))


class Ours:
    """A worker of ngraphbench with the program of a row; suspended but for its turns."""

    def __init__(self, row: Row, setting: Setting) -> None:
        target = discover()[row.compiler]
        plugin, device = load_compiler(target), Device(threads=setting.threads)
        work, scratch = setting.scratch / f"work-{row.name}", setting.scratch
        self._row, self._setting = row, setting
        self._rewarm_calls = 3
        self._hello = {"plugin": target, "device": device.to_json(), "search_path": []}
        self._built = {"root": str(setting.workload), "batch": 1, "precision": "fp32"}
        self._options = resolve_options(plugin, row.options)
        self._worker = WorkerProcess.spawn(
            worker_command(setting.python(row), build_kit(scratch)),
            env=worker_environment(compiler=plugin, device=device, work=work, token="vendors"),
            log=scratch / f"worker-{row.name}.log",
            cwd=scratch,
            memory_bytes=MEMORY_BYTES,
        )

    def ready(self) -> dict[str, Any]:
        """Build and warm the program, suspend the worker, and return what the program is."""
        request = self._worker.request
        request("hello", deadline_s=SETUP_S, **self._hello)
        built = request("compile", deadline_s=SETUP_S, options=self._options, **self._built)
        request("load", deadline_s=SETUP_S, set="a")
        request("run", deadline_s=SETUP_S, calls=20)
        call_s = statistics.median(request("run", deadline_s=SETUP_S, calls=10)["ns"]) / 1e9
        self._rewarm_calls = max(3, math.ceil(REWARM_S / call_s))
        if self._row.shared:
            request(
                "save_artifact", deadline_s=SETUP_S, path=str(self._setting.artifact(self._row))
            )
        self._worker.suspend()
        return dict(built["coverage"] or {})

    def turn(self, seconds: float) -> dict[str, Any]:
        """Return time per call, mean and median of calls, of one slot or block."""
        found = self._block(seconds) if self._row.in_flight else self._slot(seconds)
        self._worker.suspend()
        return found

    def _slot(self, seconds: float) -> dict[str, Any]:
        # Sub-batches of a single call, so that the median is one of calls, like the vendors'.
        slot = self._worker.request(
            "slot",
            deadline_s=TURN_PATIENCE_S,
            slot_ns=int(seconds * 1e9),
            rewarm_calls=self._rewarm_calls,
            group_ns=1,
        )
        cpu = self._setting.clock == "cpu"
        return {
            "mean_s": slot["cpu_ns" if cpu else "slot_ns"] / slot["calls"] / 1e9,
            "median_s": None if cpu else slot["call_ns"] / 1e9,
            "calls": slot["calls"],
        }

    def _block(self, seconds: float) -> dict[str, Any]:
        block = self._worker.request(
            "block",
            deadline_s=TURN_PATIENCE_S,
            kind="concurrent",
            seconds=seconds,
            in_flight=self._row.in_flight,
            folder=str(self._setting.scratch),
        )
        # benchmark_app counts every request, up to the end of the last one: so does this.
        ends = read_arrays(self._setting.scratch / BLOCK_ROWS)["end_ns"]
        mean_s = float(ends.max()) / 1e9 / len(ends)
        if self._setting.clock == "cpu":
            # The lanes' re-warm is part of the block's CPU time.
            calls = len(ends) + WARM_CALLS * self._row.in_flight
            mean_s = block["cpu_ns"] / 1e9 / calls
        return {"mean_s": mean_s, "median_s": None, "calls": len(ends)}

    def close(self) -> None:
        self._worker.kill()
        shutil.rmtree(self._setting.artifact(self._row), ignore_errors=True)


def export(model: str, root: Path) -> Path:
    """Return the workload folder of a model at batch 1, written by the exporter."""
    folder = root / f"workload-{model.replace(':', '-')}"
    worker = WorkerProcess.spawn(
        [sys.executable, "-m", "ngraphbench.models.exporter", FD],
        env=os.environ,
        log=root / "export.log",
        cwd=root,
        memory_bytes=MEMORY_BYTES,
    )
    try:
        worker.request(
            "open",
            deadline_s=SETUP_S,
            model=resolve_model(model, base=root).to_json(),
            root=str(folder),
            precision="fp32",
            seed=0,
            shapes={},
        )
        worker.request("batch", deadline_s=SETUP_S, batch=1, seed=0)
    finally:
        worker.kill()
    return folder
