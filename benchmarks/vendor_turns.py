"""One vendor's own timer in a process of its own, used in short turns by vendor_timers.py.

    python benchmarks/vendor_turns.py TIMER '{"root": .., "threads": 2, ..}'

Says what it set up in a line of JSON; then answers each line ``{"seconds": .., "rewarm_s": ..}``
with ``{"mean_s": .., "median_s": .. | null, "calls": ..}``: what the vendor's timer reports of
one turn, after an untimed re-warm. Nothing of ngraphbench times anything here. With
``"clock": "cpu"`` the timers are given the process's CPU clock, where they take another one.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from ngraphbench.models.modules import arrange_inputs, build_module
from ngraphbench.worker.__main__ import die_with_parent
from ngraphbench.workload import Workload

Turn = Callable[[float, float], dict[str, Any]]

REWARM_CALLS = 3
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def use_torch(about: dict[str, Any], serve: Callable[[Turn, dict[str, Any]], None]) -> None:
    """Serve turns of ``torch.utils.benchmark.Timer.blocked_autorange`` on the workload's module."""
    import torch
    from torch.utils.benchmark import Timer

    workload = _workload(about)
    torch.set_num_threads(about["threads"])
    net = workload.module().eval()
    tensors = {name: torch.from_numpy(a) for name, a in workload.input_arrays("a").items()}
    args, kwargs = arrange_inputs(net, tensors)
    if about["compiled"]:
        net = torch.compile(net, dynamic=False)
    timer = Timer(
        "net(*args, **kwargs)",
        globals={"net": net, "args": args, "kwargs": kwargs},
        num_threads=about["threads"],
        timer=CLOCKS[about["clock"]],
    )

    def turn(seconds: float, rewarm_s: float) -> dict[str, Any]:
        _repeat(lambda: net(*args, **kwargs), rewarm_s)
        found = timer.blocked_autorange(min_run_time=seconds)
        calls = found.number_per_run * len(found.raw_times)
        return {"mean_s": found.mean, "median_s": found.median, "calls": calls}

    with torch.inference_mode():
        serve(turn, {"timer_threads": torch.get_num_threads()})


def use_onnxruntime(about: dict[str, Any], serve: Callable[[Turn, dict[str, Any]], None]) -> None:
    """Serve turns of a bare loop, over bound inputs and outputs or over numpy arrays."""
    import onnxruntime

    workload = _workload(about)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = about["threads"]
    settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(workload.onnx_path), settings, providers=["CPUExecutionProvider"]
    )
    names = {node.name for node in session.get_inputs()}
    feed = {name: a for name, a in workload.input_arrays("a").items() if name in names}
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    for node in session.get_outputs():
        binding.bind_output(node.name, "cpu")

    def call() -> None:
        if about["bound"]:
            session.run_with_iobinding(binding)
        else:
            session.run(None, feed)

    clock = CLOCKS[about["clock"]]

    def turn(seconds: float, rewarm_s: float) -> dict[str, Any]:
        _repeat(call, rewarm_s)
        times = []
        start = last = clock()
        while last - start < seconds:
            call()
            now = clock()
            times.append(now - last)
            last = now
        mean_s = (last - start) / len(times)
        return {"mean_s": mean_s, "median_s": statistics.median(times), "calls": len(times)}

    serve(turn, {})


def use_benchmark_app(about: dict[str, Any], serve: Callable[[Turn, dict[str, Any]], None]) -> None:
    """Serve turns of ``benchmark_app``: its own command line, setup and timed loop.

    Only how often that loop runs is changed: once a turn, for as long as the turn lasts.
    """
    import numpy as np
    from openvino.tools.benchmark import main as app
    from openvino.tools.benchmark.benchmark import Benchmark

    workload = _workload(about)
    folder = Path(tempfile.mkdtemp(dir=about["scratch"]))
    config = folder / "config.json"
    config.write_text(json.dumps({"CPU": about["settings"]}))
    words = ["benchmark_app", "-m", str(workload.onnx_path), "-t", "1"]
    words += ["-load_config", str(config), *about["words"]]
    ((_, image),) = workload.input_arrays("a").items()
    np.save(folder / "input.npy", image)
    words += ["-i", str(folder / "input.npy")]
    kept: list[Any] = []
    measure = Benchmark.main_loop
    create = Benchmark.create_infer_requests

    def create_requests(self: Any, compiled: Any) -> Any:
        kept.append(compiled)
        return create(self, compiled)

    def main_loop(self: Any, *words: Any) -> Any:
        def loop(seconds: float, calls: int = 0) -> Any:
            # As benchmark_app has it, both limits must be reached.
            self.duration_seconds, self.niter = seconds, calls
            return measure(self, *words)

        def turn(seconds: float, rewarm_s: float) -> dict[str, Any]:
            loop(rewarm_s, REWARM_CALLS)
            fps, median_ms, *_, calls = loop(seconds)
            median_s = median_ms / 1e3 if about["sync"] else None
            return {"mean_s": 1 / fps, "median_s": median_s, "calls": calls}

        self._timer = CLOCKS[about["clock"]]
        serve(turn, _told(kept[0]) | {"in_flight": self.nireq, "inputs_fixed": self.inference_only})
        return loop(0.01)

    Benchmark.create_infer_requests, Benchmark.main_loop = create_requests, main_loop
    sys.argv = words
    app.main()


def use_iree(about: dict[str, Any], serve: Callable[[Turn, dict[str, Any]], None]) -> None:
    """Serve turns of ``iree-benchmark-module``, each a process of its own that warms up first."""
    import numpy as np

    workload = _workload(about)
    module = Path(about["artifact"]) / "program.vmfb"
    words = [
        str(Path(sys.executable).with_name("iree-benchmark-module")),
        f"--module={module}",
        f"--function={json.loads(module.with_name('coverage.json').read_text())['entry']}",
        "--device=local-task",
        f"--task_topology_group_count={about['threads']}",
        "--benchmark_format=json",
    ]
    for name, array in workload.input_arrays("a").items():
        path = Path(about["scratch"]) / f"iree-{len(words)}.npy"
        assert array.dtype == np.float32, name
        np.save(path, array)
        words.append(f"--input=@{path}")

    def turn(seconds: float, rewarm_s: float) -> dict[str, Any]:
        limits = [f"--benchmark_min_time={seconds}s", f"--benchmark_min_warmup_time={rewarm_s}"]
        done = subprocess.run([*words, *limits], capture_output=True, text=True, check=True)
        (found,) = json.loads(done.stdout)["benchmarks"]
        unit_s = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}[found["time_unit"]]
        time_of = found["cpu_time" if about["clock"] == "cpu" else "real_time"]
        return {"mean_s": time_of * unit_s, "median_s": None, "calls": found["iterations"]}

    serve(turn, {})


def use_tvm(about: dict[str, Any], serve: Callable[[Turn, dict[str, Any]], None]) -> None:
    """Serve turns of the virtual machine's ``time_evaluator``, a repeat for each call."""
    os.environ |= {"TVM_NUM_THREADS": str(about["threads"]), "TVM_BIND_THREADS": "0"}
    import tvm

    workload = _workload(about)
    library = tvm.runtime.load_module(str(Path(about["artifact"]) / "program.so"))
    machine, device = tvm.relax.VirtualMachine(library, tvm.cpu()), tvm.cpu()
    inputs = [tvm.runtime.tensor(array) for array in workload.input_arrays("a").values()]
    call = machine["main"]

    def turn(seconds: float, rewarm_s: float) -> dict[str, Any]:
        start = time.perf_counter()
        calls = _repeat(lambda: call(*inputs), rewarm_s)
        each_s = (time.perf_counter() - start) / calls
        repeats = max(1, math.ceil(seconds / each_s))
        found = machine.time_evaluator("main", device, number=1, repeat=repeats)(*inputs)
        return {"mean_s": found.mean, "median_s": found.median, "calls": repeats}

    serve(turn, {})


def _told(compiled: Any) -> dict[str, Any]:
    return {
        "threads": int(compiled.get_property("INFERENCE_NUM_THREADS")),
        "streams": int(compiled.get_property("NUM_STREAMS")),
        "precision_hint": compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name(),
        "pinning": bool(compiled.get_property("ENABLE_CPU_PINNING")),
        "mode": str(compiled.get_property("PERFORMANCE_HINT")),
        "execution": str(compiled.get_property("EXECUTION_MODE_HINT")),
    }


TIMERS = {
    "torch": use_torch,
    "onnxruntime": use_onnxruntime,
    "benchmark_app": use_benchmark_app,
    "iree-benchmark-module": use_iree,
    "time_evaluator": use_tvm,
}


def _workload(about: dict[str, Any]) -> Workload:
    return Workload.open(Path(about["root"]), batch=1, build=build_module)


def _repeat(call: Callable[[], Any], seconds: float) -> int:
    count, end = 0, time.perf_counter() + seconds
    while count < REWARM_CALLS or time.perf_counter() < end:
        call()
        count += 1
    return count


def main() -> None:
    """Set up the timer that the command line names, then answer turns until the end of input."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w")

    def say(told: dict[str, Any]) -> None:
        answers.write(json.dumps(told) + "\n")
        answers.flush()

    def serve(turn: Turn, told: dict[str, Any]) -> None:
        turn(0.05, 0.2)
        say(told)
        for line in sys.stdin:
            asked = json.loads(line)
            say(turn(asked["seconds"], asked["rewarm_s"]))

    with redirect_stdout(sys.stderr):
        TIMERS[sys.argv[1]](json.loads(sys.argv[2]), serve)


if __name__ == "__main__":
    main()
