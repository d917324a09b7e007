"""TVM's MetaSchedule: a search for fast loops, in a process of its own, with a database.

A database belongs to one workload, target and version of TVM. A longer search continues a
shorter one, and how far it was at each time is written down, so that a budget always stands for
the same records: those of the first ``trials`` trials within the first ``tuning_s`` seconds.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ngraphbench.errors import CompileFailed
from ngraphbench.models.onnxdata import load_whole
from ngraphbench.types import Json

__all__ = ["Budget", "Progress", "database_folder", "prepared", "progress_of", "take", "tune"]

PROGRESS = "progress.csv"
RECORDS = "database_tuning_record.json"
WORKLOADS = "database_workload.json"
BATCH = 16
"""Candidates that are built and measured at a time; a search ends between two batches."""
BUILD_S = 300.0
RUN_S = 120.0
"""Longest build and measurement of a candidate. Each begins by importing TVM, where a processor
is slow for a good part of a minute."""

_START = (
    "import json, sys; asked = json.loads(sys.argv[1]); sys.path[:0] = asked.pop('search_path');"
    " from ngraphbench.compilers.metaschedule import search; search(**asked)"
)


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to search: up to ``trials`` candidates, or ``tuning_s`` seconds (0: no limit)."""

    trials: int
    tuning_s: float = 0.0

    def spent(self, progress: Progress) -> bool:
        """Return whether a search that is this far has nothing left."""
        late = 0 < self.tuning_s <= progress.seconds
        return late or progress.trials >= self.trials


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search was: trials, records of those that worked, seconds since its start."""

    trials: int = 0
    records: int = 0
    seconds: float = 0.0


def database_folder(root: Path, *, model: Path, target: str, version: str) -> Path:
    """Return the folder below ``root`` for one ONNX file, target and version of TVM."""
    digest = hashlib.sha256()
    # Weights beside the file do not change which loops there are.
    digest.update(model.read_bytes())
    what = hashlib.sha256(target.encode()).hexdigest()[:12]
    return root / version / what / digest.hexdigest()[:16]


def progress_of(database: Path, budget: Budget) -> Progress:
    """Return how far a database's search was when ``budget`` was spent, or is by now."""
    reached = Progress()
    for reached in _steps(database):
        if budget.spent(reached):
            break
    return reached


def _steps(database: Path) -> Iterator[Progress]:
    path = database / PROGRESS
    if not path.exists():
        return
    with path.open(newline="") as lines:
        for trials, records, seconds in csv.reader(lines):
            yield Progress(int(trials), int(records), float(seconds))


def take(database: Path, progress: Progress, *, folder: Path) -> None:
    """Copy the records that the search had by then to ``folder``, as a database of its own."""
    shutil.copy(database / WORKLOADS, folder / WORKLOADS)
    with (database / RECORDS).open() as lines, (folder / RECORDS).open("w") as kept:
        for _, line in zip(range(progress.records), lines, strict=False):
            kept.write(line)


def tune(model: Path, *, database: Path, target: Json, budget: Budget) -> Progress:
    """Search until the budget is spent, and return how far that was.

    Returns at once where the database was as far before. Raises CompileFailed.
    """
    database.mkdir(parents=True, exist_ok=True)
    before = progress_of(database, budget)
    if budget.spent(before):
        return before
    asked = {
        "search_path": [entry for entry in sys.path if entry],
        "model": str(model),
        "database": str(database),
        "target": target,
        "trials": budget.trials - before.trials,
        "tuning_s": budget.tuning_s and budget.tuning_s - before.seconds,
        "before": list(astuple(before)),
    }
    done = subprocess.run(
        [sys.executable, "-c", _START, json.dumps(asked)],
        env=os.environ | {"TVM_NUM_THREADS": str(target["num-cores"]), "TVM_BIND_THREADS": "0"},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(done.stderr, file=sys.stderr, flush=True)
    if done.returncode:
        raise _failure(done.returncode, done.stderr)
    return progress_of(database, budget)


def _failure(code: int, words: str) -> CompileFailed:
    # Of a crash there is a trace of addresses, which says nothing here and stands in the log.
    lines = [line for line in words.splitlines() if line.strip() and "File " not in line]
    how = f"died of signal {-code}" if code < 0 else f"ended with exit status {code}"
    return CompileFailed(
        f"tvm: MetaSchedule's process {how}: " + "\n".join(lines[-3:])[:800],
        reason="tuning",
        hint="Another apache-tvm-ffi than TVM was built with crashes here;"
        " 0.1.14.post1 goes with apache-tvm 0.27.0.post1."
        if code < 0
        else "",
    )


def prepared(module: Any, *, target: Any) -> Any:
    """Return the Relax module with fused loops whose weights may be laid out anew.

    A search finds its tasks in it, and a database is applied to it.
    """
    tvm = importlib.import_module("tvm")
    transform = tvm.relax.transform
    passes = [
        transform.DecomposeOpsForInference(),
        transform.CanonicalizeBindings(),
        tvm.relax.get_pipeline("zero"),
        transform.AttachAttrLayoutFreeBuffers(),
    ]
    with target:
        return tvm.transform.Sequential(passes)(module)


def search(
    *,
    model: str,
    database: str,
    target: Json,
    trials: int,
    tuning_s: float,
    before: list[float],
) -> None:
    """Search in this process, writing records and progress as they come."""
    log = _Log(Path(database), Progress(int(before[0]), int(before[1]), before[2]))
    whole = Budget(log.done.trials + trials, tuning_s and before[2] + tuning_s)
    tvm = importlib.import_module("tvm")
    schedules = importlib.import_module("tvm.s_tir.meta_schedule")
    frontend = importlib.import_module("tvm.relax.frontend.onnx")
    aim, cores = tvm.target.Target(target), int(target["num-cores"])
    module = prepared(frontend.from_onnx(load_whole(Path(model))), target=aim)
    tasks, weights = schedules.relax_integration.extracted_tasks_to_tune_contexts(
        schedules.relax_integration.extract_tasks(module, aim),
        work_dir=database,
        num_threads=cores,
        seed=1,
    )
    search_on = functools.partial(
        schedules.tune_tasks,
        work_dir=database,
        builder=schedules.builder.LocalBuilder(
            max_workers=cores, timeout_sec=BUILD_S, f_build=_lean_build()
        ),
        runner=schedules.runner.LocalRunner(timeout_sec=RUN_S),
        cost_model=schedules.CostModel.create("xgb", num_tuning_cores=cores, tree_method="auto"),
        measure_callbacks=[*schedules.MeasureCallback.create("default"), _watch(tvm, log.keep)],
    )
    if tuning_s:
        _take_turns(search_on, list(zip(tasks, weights, strict=True)), log=log, whole=whole)
    else:
        count = min(BATCH, trials)
        limits = {"max_trials_global": trials, "num_trials_per_iter": count}
        search_on(tasks=tasks, task_weights=weights, **limits)


class _Log:
    """How far a search is, written down after each batch."""

    def __init__(self, database: Path, before: Progress) -> None:
        self._database = database
        self._before_s = before.seconds
        self._started = time.monotonic()
        self.done = before

    def keep(self, count: int) -> None:
        """Write down that ``count`` candidates more are known."""
        path = self._database / RECORDS
        records = len(path.read_text().splitlines()) if path.exists() else 0
        seconds = self._before_s + time.monotonic() - self._started
        self.done = Progress(self.done.trials + count, records, seconds)
        with (self._database / PROGRESS).open("a", newline="") as lines:
            csv.writer(lines).writerow(astuple(self.done))


def _take_turns(
    search_on: Callable[..., Any], tasks: list[tuple[Any, float]], *, log: _Log, whole: Budget
) -> None:
    """Search a batch of one task after the other, until the budget or the candidates are gone.

    TVM's own scheduler tells of no results before every task had a batch: by then the time may
    be long over. So tasks take turns, as in its round-robin, and the time is looked at between.
    """
    # One that goes on begins with the task whose turn it was.
    first = log.done.trials // BATCH % len(tasks)
    tasks = tasks[first:] + tasks[:first]
    known = -1
    while known < log.done.trials:
        known = log.done.trials
        for task, weight in tasks:
            if whole.spent(log.done):
                return
            count = min(BATCH, whole.trials - log.done.trials)
            limits = {"max_trials_global": count, "num_trials_per_iter": count}
            search_on(tasks=[task.clone()], task_weights=[weight], **limits)


def _lean_build() -> Callable[..., Any]:
    """Return TVM's own way to build a candidate, without the import of all GPUs' intrinsics.

    That import takes longer than a batch of builds, anew in each process of each batch.
    """

    def build(module: Any, target: Any, params: Any) -> Any:
        # It is sent to another process by value, so it brings its imports along.
        from tvm.driver import build as build_loops
        from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

        module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
        return build_loops(module, target=target)

    return build


def _watch(tvm: Any, keep: Callable[[int], None]) -> Any:
    """Return a callback of MetaSchedule's that tells ``keep`` of how many candidates it knows."""
    schedules = importlib.import_module("tvm.s_tir.meta_schedule")

    base: Any = schedules.measure_callback.PyMeasureCallback

    @tvm.ir.utils.derived_object
    class Watch(base):
        def apply(
            self,
            task_scheduler: Any,
            task_id: int,
            measure_candidates: Any,
            builder_results: Any,
            runner_results: Any,
        ) -> None:
            keep(len(measure_candidates))

    return Watch()
