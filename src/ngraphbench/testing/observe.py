"""What can be seen of a program from outside: times, threads, child processes, imports.

Run as ``python -m ngraphbench.testing.observe JSON`` it answers in a process of its own,
where nothing has been imported and no thread has been started yet.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ngraphbench.plugin import Compiler, LoadsArtifact, Program
from ngraphbench.types import Array, Arrays, Device, Json, OptionValue
from ngraphbench.workload import INPUT_SETS, Workload, read_arrays, write_arrays

__all__ = [
    "ask",
    "busy_threads",
    "child_processes",
    "hidden",
    "loaded_outputs",
    "open_workload",
    "relative_error",
    "skipped_work",
    "time_runs",
]

# Idle threads were seen at exactly zero, helpers that lose every race for work at 2 percent.
BUSY_SHARE = 0.01
SKIPPED_SHARE = 0.3
SETTLE_S = 0.3
OBSERVED_S = 0.4
IDLE_S = 0.1
IDLE_SHARE = 0.02
IDLE_MAX_S = 3.0
TASKS = Path("/proc/self/task")


def open_workload(root: Path, *, batch: int, precision: str = "fp32") -> Workload:
    """Return the workload bound to ``batch``, able to build torch modules."""
    from ngraphbench.models.modules import build_module

    return Workload.open(root, batch=batch, precision=precision, build=build_module)


def relative_error(found: Array, wanted: Array) -> float:
    """Return the L2 norm of the difference over that of ``wanted``; NaN stays NaN."""
    difference = found.astype(np.float64) - wanted.astype(np.float64)
    scale = float(np.linalg.norm(wanted.astype(np.float64))) or 1.0
    return float(np.linalg.norm(difference)) / scale


def time_runs(program: Program, count: int) -> list[int]:
    """Return the wall time in nanoseconds of each of ``count`` runs with sync."""
    times = []
    for _ in range(count):
        start_ns = time.perf_counter_ns()
        program.run()
        program.sync()
        times.append(time.perf_counter_ns() - start_ns)
    return times


def child_processes() -> set[int]:
    """Return the process ids of this process's children; empty where /proc is missing."""
    found: set[int] = set()
    for path in TASKS.glob("*/children"):
        try:
            found.update(int(pid) for pid in path.read_text().split())
        except OSError:
            continue
    return found


def busy_threads(program: Program) -> int:
    """Return how many threads do a real share of the program's work."""
    _run_for(program, SETTLE_S)
    _wait_until_idle()
    before = _cpu_ns()
    _run_for(program, OBSERVED_S)
    spent = [after - before.get(task, 0) for task, after in _cpu_ns().items()]
    most = max(spent, default=0)
    return sum(1 for value in spent if value > BUSY_SHARE * most)


def _wait_until_idle() -> None:
    """Return when no other thread of this process takes CPU time, or after ``IDLE_MAX_S``.

    Pools spin once they are made, and on a busy machine that outlasts a few runs.
    """
    ends = time.monotonic() + IDLE_MAX_S
    while time.monotonic() < ends:
        before = _cpu_ns()
        time.sleep(IDLE_S)
        spent = (after - before.get(task, 0) for task, after in _cpu_ns().items())
        if sum(spent) < IDLE_SHARE * IDLE_S * 1e9:
            return


@contextmanager
def hidden(root: Path) -> Iterator[None]:
    """Move the workload's folder away, so that nothing can be read from it."""
    away = root.with_name(root.name + "-hidden")
    root.rename(away)
    try:
        yield
    finally:
        away.rename(root)


def skipped_work(program: Program, sets: Sequence[Arrays]) -> str:
    """Return what looks skipped, or "". Fastest times are compared: noise only adds."""
    fresh_ns: list[int] = []
    repeated_ns: list[int] = []
    for i in range(8):
        program.load(sets[i % len(sets)])
        first_ns, *later_ns = time_runs(program, 3)
        fresh_ns.append(first_ns)
        repeated_ns += later_ns
    if min(repeated_ns) < SKIPPED_SHARE * min(fresh_ns):
        return (
            f"The fastest repeated run took {min(repeated_ns) / 1e6:.3f} ms, the fastest run on"
            f" fresh inputs {min(fresh_ns) / 1e6:.3f} ms: is a result kept?"
        )
    times_ns = time_runs(program, 24)
    for step in (2, 3):
        fastest = [min(times_ns[i::step]) for i in range(step)]
        if min(fastest) < SKIPPED_SHARE * max(fastest):
            return f"Some runs of every {step} do nothing: fastest {fastest} ns."
    few, many = (min(sum(time_runs(program, n)) for _ in range(4)) for n in (2, 8))
    if many < 2 * few:
        return f"8 runs took {many / 1e6:.3f} ms, 2 runs {few / 1e6:.3f} ms: time must grow."
    return ""


def ask(
    compiler: Compiler, question: str, *, variables: Mapping[str, str] | None = None, **fields: Any
) -> Json:
    """Return what a fresh process answers about the compiler's plugin.

    ``question`` is ``imports`` (vendor modules that importing the plugin pulled in),
    ``threads`` (busy threads of a program) or ``artifact`` (see ``loaded_outputs``). Raises
    RuntimeError when the process fails.
    """
    kind = type(compiler)
    module = sys.modules[kind.__module__]
    request = fields | {
        "question": question,
        "module": kind.__module__,
        "name": kind.__qualname__,
        "file": getattr(module, "__file__", "") or "",
        "search_path": [entry for entry in sys.path if entry],
    }
    done = subprocess.run(
        [sys.executable, "-m", "ngraphbench.testing.observe", json.dumps(request)],
        env=os.environ | dict(variables or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(f"The observing process failed:\n{done.stderr[-3000:]}")
    answer: Json = json.loads(done.stdout.splitlines()[-1])
    return answer


def loaded_outputs(
    compiler: Compiler,
    folder: Path,
    root: Path,
    *,
    batch: int,
    device: Device,
    options: Mapping[str, OptionValue],
) -> dict[str, Arrays]:
    """Return, by input set, the outputs of the artefact in ``folder``, loaded in a fresh process.

    Raises RuntimeError when it cannot be loaded there.
    """
    place: dict[str, Any] = {"root": str(root), "batch": batch, "folder": str(folder)}
    ask(compiler, "artifact", **place, device=device.to_json(), options=dict(options))
    return {which: read_arrays(folder / f"outputs-{which}.npz") for which in INPUT_SETS}


def _write_loaded(compiler: Compiler, workload: Workload, device: Device, request: Json) -> None:
    folder = Path(request["folder"])
    if not isinstance(compiler, LoadsArtifact):
        raise RuntimeError(f"{compiler.name} loads no artefacts.")
    program = compiler.load_artifact(folder, workload, device, request["options"])
    for which in INPUT_SETS:
        program.load(workload.input_arrays(which))
        program.run()
        program.sync()
        write_arrays(folder / f"outputs-{which}.npz", program.outputs())
    program.close()


def _run_for(program: Program, duration_s: float) -> None:
    end_s = time.monotonic() + duration_s
    runs = 0
    while time.monotonic() < end_s or runs < 10:
        time_runs(program, 1)
        runs += 1


def _cpu_ns() -> dict[str, int]:
    found = {}
    for path in TASKS.glob("*/schedstat"):
        try:
            found[path.parent.name] = int(path.read_text().split()[0])
        except (OSError, IndexError):
            continue
    return found


def _plugin(request: Json) -> Compiler:
    sys.path.extend(entry for entry in request["search_path"] if entry not in sys.path)
    try:
        module = importlib.import_module(request["module"])
    except ImportError:
        # A test file need not be importable by its name.
        spec = importlib.util.spec_from_file_location(request["module"], request["file"])
        if spec is None or spec.loader is None:
            raise
        module = importlib.util.module_from_spec(spec)
        sys.modules[request["module"]] = module
        spec.loader.exec_module(module)
    found: Any = module
    for part in request["name"].split("."):
        found = getattr(found, part)
    compiler: Compiler = found()
    return compiler


def _imported_vendors(names: Iterable[str], packages: Iterable[str]) -> list[str]:
    wanted = {package.lower().replace("_", "-") for package in packages}
    provided = importlib.metadata.packages_distributions()
    tops = {name.partition(".")[0] for name in names}
    return sorted(
        top
        for top in tops
        if wanted & {dist.lower().replace("_", "-") for dist in provided.get(top, [])}
    )


def _answer(request: Json) -> Json:
    before = set(sys.modules)
    compiler = _plugin(request)
    if request["question"] == "imports":
        new = set(sys.modules) - before
        return {"vendors": _imported_vendors(new, compiler.packages)}
    workload = open_workload(Path(request["root"]), batch=request["batch"])
    device = Device.from_json(request["device"])
    if request["question"] == "artifact":
        _write_loaded(compiler, workload, device, request)
        return {}
    program = compiler.compile(workload, device, request["options"])
    program.load(workload.input_arrays("a"))
    return {"busy": busy_threads(program)}


if __name__ == "__main__":
    print(json.dumps(_answer(json.loads(sys.argv[1]))))
