"""Worker processes of a compiler in which anything may go wrong, and a workload for them."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ngraphbench.environments.capture import worker_environment
from ngraphbench.environments.kit import build_kit, worker_command
from ngraphbench.plugin import Compiler
from ngraphbench.session import proctree
from ngraphbench.session.process import WorkerProcess
from ngraphbench.types import Device
from ngraphbench.workload import write_arrays

__all__ = [
    "MIB",
    "PATIENCE_S",
    "PLUGINS",
    "Environment",
    "compile_",
    "hello",
    "is_gone",
    "kit",
    "prepared",
    "read_pid",
    "root",
    "slot",
    "start",
]

PLUGINS = Path(__file__).parents[1] / "unit"
MIB = 1024**2
PATIENCE_S = 60


class Environment(Compiler):
    name = "environment"
    accepts = ("onnx",)

    def probe(self, device):
        raise AssertionError("Only its environment is asked for.")

    def compile(self, workload, device, options):
        raise AssertionError("Only its environment is asked for.")


@pytest.fixture(scope="module")
def kit(tmp_path_factory) -> Path:
    return build_kit(tmp_path_factory.mktemp("kits"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workload" / "b1"
    folder.mkdir(parents=True)
    (folder.parent / "workload.json").write_text(json.dumps({"model": {}}))
    spec = {"name": "x", "dtype": "float32", "shape": [1, 4]}
    bound = {"forms": ["onnx"], "inputs": [spec], "outputs": [spec]}
    (folder / "batch.json").write_text(json.dumps(bound))
    write_arrays(folder / "inputs-a.npz", {"x": np.ones((1, 4), np.float32)})
    return folder.parent


@pytest.fixture
def start(tmp_path: Path, kit: Path):
    started: list[WorkerProcess] = []

    def start(*, memory_bytes: int = 4096 * MIB, command: list[str] | None = None):
        work = tmp_path / "work"
        worker = WorkerProcess.spawn(
            command or worker_command(sys.executable, kit),
            env=worker_environment(
                compiler=Environment(), device=Device(), work=work, token=f"test-{os.getpid()}"
            ),
            log=tmp_path / "worker.log",
            cwd=work,
            memory_bytes=memory_bytes,
        )
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.kill()
        assert proctree.state(worker.pid) == ""


@pytest.fixture
def prepared(start, root: Path):
    """A worker that has compiled and loaded, with the fault asked for."""

    def prepared(fault: str = "", *, argument: str = "", memory_bytes: int = 4096 * MIB):
        worker = start(memory_bytes=memory_bytes)
        hello(worker)
        compile_(worker, root, fault=fault, argument=argument)
        worker.request("load", deadline_s=PATIENCE_S, set="a")
        return worker

    return prepared


def hello(worker: WorkerProcess):
    return worker.request(
        "hello",
        deadline_s=PATIENCE_S,
        plugin="plugins_for_worker:Faulty",
        device=Device(cpus=tuple(sorted(os.sched_getaffinity(0)))).to_json(),
        search_path=[str(PLUGINS)],
    )


def compile_(worker: WorkerProcess, root: Path, *, deadline_s: float = PATIENCE_S, **options):
    return worker.request(
        "compile", deadline_s=deadline_s, root=str(root), batch=1, precision="fp32", options=options
    )


def slot(worker: WorkerProcess, *, deadline_s: float = PATIENCE_S):
    return worker.request(
        "slot", deadline_s=deadline_s, mode="sync", slot_ns=20_000_000, calls_min=3, rewarm_calls=2
    )


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while proctree.state(pid) not in ("", "Z") and time.monotonic() < deadline:
        time.sleep(0.02)
    return proctree.state(pid) in ("", "Z")


def read_pid(path: Path) -> int:
    deadline = time.monotonic() + 20
    while not (path.exists() and path.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return int(path.read_text())
