"""Does a worker's slot take as long as a plain loop at the same time? Prints paired ratios.

Two loops minutes apart differ by more than a harness could on a shared machine. So here a
plain loop in its own process and a worker of ngraphbench take turns, 40 times each, in random
order; both are suspended while the other runs. Ratio = time per call in the worker over time
per call in the plain loop: 1 means that the harness costs nothing.

    python benchmarks/agreement.py [--rounds 40] [--model timm:resnet18 ...]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from plain_loop import COMPILERS, MODELS, SETUP, bench, onnx_files

from ngraphbench.environments.capture import worker_environment
from ngraphbench.environments.kit import build_kit, worker_command
from ngraphbench.plugin import discover, load_compiler, resolve_options
from ngraphbench.session.process import WorkerProcess
from ngraphbench.stats import hodges_lehmann, signed_rank_interval
from ngraphbench.types import Device

SLOT_S = 0.25

TURNS = """
import sys, time
for _ in range(20):
    call()
print("ready", flush=True)
for line in sys.stdin:
    call()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < float(line):
        call()
        count += 1
    print((time.perf_counter() - started) / count, flush=True)
"""


class PlainLoop:
    """A plain loop in its process, which takes a turn per line; suspended but for its turns.

    ``loop`` is its code: it uses ``call`` of ``plain_loop.SETUP``, prints ``ready``, then one
    line for each line that it reads.
    """

    def __init__(self, loop: str, compiler: str, model: str, onnx: Path, *, threads: int) -> None:
        words = [sys.executable, "-c", SETUP + loop, compiler, model.partition(":")[2], str(onnx)]
        self._process = subprocess.Popen(
            [*words, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._read() == "ready"
        self._process.send_signal(signal.SIGSTOP)

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def turn(self, asked: str) -> str:
        """Return what the loop prints of one turn; ``asked`` is the line that it reads."""
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.write(f"{asked}\n")
        self._process.stdin.flush()
        found = self._read()
        self._process.send_signal(signal.SIGSTOP)
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def worker(compiler: str, workload: Path, root: Path, threads: int) -> Iterator[WorkerProcess]:
    """Yield a worker that holds the workload's program at batch 1, suspended."""
    target = discover()[compiler]
    plugin, device = load_compiler(target), Device(threads=threads)
    options = resolve_options(plugin, {})
    work = root / f"work-{compiler}"
    process = WorkerProcess.spawn(
        worker_command(sys.executable, build_kit(root)),
        env=worker_environment(compiler=plugin, device=device, work=work, token="agreement"),
        log=root / "log",
        cwd=root,
        memory_bytes=2**33,
    )
    try:
        process.request(
            "hello", deadline_s=60, plugin=target, device=device.to_json(), search_path=[]
        )
        built = {"root": str(workload), "batch": 1, "precision": "fp32", "options": options}
        process.request("compile", deadline_s=300, **built)
        process.request("load", deadline_s=60, set="a")
        process.request("run", deadline_s=60, calls=20)
        process.suspend()
        yield process
    finally:
        process.kill()


def agreement(loop: PlainLoop, slots: WorkerProcess, rounds: int) -> tuple[float, float, float]:
    """Return the ratio worker over loop, with its 95 % interval."""
    order = random.Random(0)
    logs = []
    for _ in range(rounds):
        taken: dict[str, float] = {}
        for who in order.sample(["loop", "worker"], 2):
            if who == "loop":
                taken[who] = float(loop.turn(f"{SLOT_S}"))
                continue
            slot = slots.request(
                "slot", deadline_s=60, slot_ns=int(SLOT_S * 1e9), rewarm_calls=1, group_ns=1
            )
            taken[who] = slot["slot_ns"] / slot["calls"] / 1e9
            slots.suspend()
        logs.append(math.log(taken["worker"] / taken["loop"]))
    low, high = signed_rank_interval(np.array(logs), 0.95)
    return math.exp(hodges_lehmann(np.array(logs))), math.exp(low), math.exp(high)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", action="append")
    options = parser.parse_args()
    models = options.model or MODELS
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        bench(models, "quick", root / "export")
        for model, onnx in onnx_files(models, root / "export").items():
            for compiler in COMPILERS:
                loop = PlainLoop(TURNS, compiler, model, onnx, threads=options.threads)
                try:
                    with worker(compiler, onnx.parent.parent, root, options.threads) as slots:
                        found = agreement(loop, slots, options.rounds)
                finally:
                    loop.close()
                print(
                    f"{model:<28} {compiler:<12} worker / loop"
                    f" {found[0]:.3f} ({found[1]:.3f} to {found[2]:.3f})",
                    flush=True,
                )
    print(json.dumps({"rounds": options.rounds, "slot_s": SLOT_S}))


if __name__ == "__main__":
    main()
