"""What the harness costs. Prints figures and how to read them.

1. What the timed loop adds to a call, against an empty loop: in sync mode (in sub-batches and
   with calls timed singly) and in queued mode, as a share of a 1 ms and of a 50 us call.
2. The CPU time of the measuring parent while slots run, as a share of their wall time.
3. What suspending a worker and letting it go on cost per slot. They are not timed: they take
   from the budget, not from the truth.

    python benchmarks/overhead.py
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

import numpy as np

from ngraphbench.environments.capture import worker_environment
from ngraphbench.environments.kit import build_kit, worker_command
from ngraphbench.plugin import Program, load_compiler
from ngraphbench.session.process import WorkerProcess
from ngraphbench.testing.workloads import fake_workload
from ngraphbench.types import Arrays, Device
from ngraphbench.worker.timing import measure_slot, time_calls

CALLS = 20_000
REPEATS = 15
FAKE = "ngraphbench.compilers.fake:FakeCompiler"


class Nothing(Program):
    """A program whose run costs what a Python call costs."""

    def load(self, inputs: Arrays) -> None: ...

    def run(self) -> None: ...

    def outputs(self) -> Arrays:
        return {"y": np.zeros(1)}

    def close(self) -> None: ...


def empty_loop_ns() -> float:
    """Return what one turn of an empty loop costs, in ns."""
    started = time.perf_counter_ns()
    for _ in repeat(None, CALLS):
        pass
    return (time.perf_counter_ns() - started) / CALLS


def slot_ns(mode: str) -> float:
    """Return a slot's ns per call of a program that does nothing."""
    request = {"mode": mode, "slot_ns": 20_000_000, "rewarm_calls": 1000, "group_ns": 1_000_000}
    return float(measure_slot(Nothing(), request)["call_ns"])


def single_ns() -> float:
    """Return what a call that does nothing seems to take when it is timed singly, in ns."""
    return statistics.median(time_calls(Nothing(), CALLS))


def loop_costs() -> dict[str, tuple[float, float]]:
    """Return what each timed loop adds to one call: ns, the median and the least of repeats."""
    added: dict[str, list[float]] = {"sync": [], "sync, single calls": [], "queued": []}
    for _ in range(REPEATS):
        # Side by side, so that the machine is equally fast for the loop that is taken off.
        empty = empty_loop_ns()
        added["sync"].append(slot_ns("sync") - empty)
        added["sync, single calls"].append(single_ns() - empty)
        added["queued"].append(slot_ns("queued") - empty)
    return {name: (statistics.median(costs), min(costs)) for name, costs in added.items()}


@contextmanager
def fake_worker() -> Iterator[WorkerProcess]:
    """Yield a worker whose program computes for 1 ms."""
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
        built = {"root": str(workload), "batch": 1, "precision": "fp32"}
        try:
            worker.request(
                "hello", deadline_s=60, plugin=FAKE, device=device.to_json(), search_path=[]
            )
            worker.request("compile", deadline_s=60, options={"work_us": 1000}, **built)
            worker.request("load", deadline_s=60, set="a")
            yield worker
        finally:
            worker.kill()


def parent_share(worker: WorkerProcess, seconds: float = 5.0) -> float:
    """Return CPU time of this process over wall time, while a worker runs slots."""
    cpu_ns, wall_ns = time.process_time_ns(), time.perf_counter_ns()
    while time.perf_counter_ns() - wall_ns < seconds * 1e9:
        worker.request("slot", deadline_s=60, slot_ns=100_000_000)
    return (time.process_time_ns() - cpu_ns) / (time.perf_counter_ns() - wall_ns)


def switch_ms(worker: WorkerProcess, times: int = 50) -> tuple[float, float]:
    """Return (suspend, resume) in ms, medians: until stopped; until it answers, less a bare ask."""
    stops, answers, asks = [], [], []
    for _ in range(times):
        asks.append(_answer_ns(worker))
        started = time.perf_counter_ns()
        worker.suspend()
        stops.append(time.perf_counter_ns() - started)
        # Long enough for the processor to turn to something else.
        time.sleep(0.02)
        answers.append(_answer_ns(worker))
    resume_ns = statistics.median(answers) - statistics.median(asks)
    return statistics.median(stops) / 1e6, resume_ns / 1e6


def _answer_ns(worker: WorkerProcess) -> int:
    started = time.perf_counter_ns()
    worker.request("run", deadline_s=60, calls=0)
    return time.perf_counter_ns() - started


def main() -> None:
    """Measure and print."""
    for name, (added, least) in loop_costs().items():
        print(f"timed loop, {name}: {added:.0f} ns a call over an empty loop (least {least:.0f})")
        print(f"  of a 1 ms call   {added / 1e6:.4%}   (good: <= 0.1 %)")
        print(f"  of a 50 us call  {added / 5e4:.3%}    (good: <= 1 %)")
    with fake_worker() as worker:
        print(f"parent while slots run: {parent_share(worker):.3%} of one CPU (good: < 1 %)")
        stop, go = switch_ms(worker)
        print(f"per slot, not timed: suspend {stop:.2f} ms, resume {go:.2f} ms")
        print(f"  of a 100 ms slot {(stop + go) / 100:.2%}")


if __name__ == "__main__":
    main()
