"""What the harness costs. Prints two shares and how to read them.

1. The timed loop around a call that does nothing, as a share of a 1 ms and of a 50 us call.
2. The CPU time of the measuring parent while slots run, as a share of their wall time.

    python benchmarks/overhead.py
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from ngraphbench.environments.capture import worker_environment
from ngraphbench.environments.kit import build_kit, worker_command
from ngraphbench.plugin import Program, load_compiler
from ngraphbench.session.process import WorkerProcess
from ngraphbench.testing.workloads import fake_workload
from ngraphbench.types import Arrays, Device
from ngraphbench.worker.timing import measure_slot

FAKE = "ngraphbench.compilers.fake:FakeCompiler"


class Nothing(Program):
    """A program whose run costs what a Python call costs."""

    def load(self, inputs: Arrays) -> None: ...

    def run(self) -> None: ...

    def outputs(self) -> Arrays:
        return {"y": np.zeros(1)}

    def close(self) -> None: ...


def loop_ns() -> float:
    """Return what the timed loop adds to one call, in ns."""
    request = {"slot_ns": 50_000_000, "rewarm_calls": 1000}
    return statistics.median(measure_slot(Nothing(), request)["call_ns"] for _ in range(9))


def parent_share(seconds: float = 5.0) -> float:
    """Return CPU time of this process over wall time, while a worker runs slots."""
    device = Device(threads=1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        workload = fake_workload(root / "workload")
        worker = WorkerProcess.spawn(
            worker_command(sys.executable, build_kit(root)),
            env=worker_environment(
                compiler=load_compiler(FAKE), device=device, work=root / "work", token="overhead"
            ),
            log=root / "log",
            cwd=root,
            memory_bytes=2**32,
        )
        try:
            worker.request(
                "hello", deadline_s=60, plugin=FAKE, device=device.to_json(), search_path=[]
            )
            worker.request(
                "compile",
                deadline_s=60,
                root=str(workload),
                batch=1,
                precision="fp32",
                options={"work_us": 1000},
            )
            worker.request("load", deadline_s=60, set="a")
            cpu_ns, wall_ns = time.process_time_ns(), time.perf_counter_ns()
            while time.perf_counter_ns() - wall_ns < seconds * 1e9:
                worker.request("slot", deadline_s=60, slot_ns=100_000_000)
            return (time.process_time_ns() - cpu_ns) / (time.perf_counter_ns() - wall_ns)
        finally:
            worker.kill()


def main() -> None:
    """Measure and print."""
    added = loop_ns()
    print(f"timed loop: {added:.0f} ns a call")
    print(f"  of a 1 ms call   {added / 1e6:.4%}   (good: <= 0.1 %)")
    print(f"  of a 50 us call  {added / 5e4:.3%}    (good: <= 1 %)")
    print(f"parent while slots run: {parent_share():.3%} of one CPU (good: < 1 %)")


if __name__ == "__main__":
    main()
