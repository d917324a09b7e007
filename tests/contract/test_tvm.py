"""The conformance suite on TVM, and what is special to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from ngraphbench.compilers import metaschedule, tvm
from ngraphbench.compilers.metaschedule import Budget, Progress, progress_of, take
from ngraphbench.compilers.tvm import Tvm
from ngraphbench.errors import CompileFailed, Unsupported
from ngraphbench.plugin import resolve_options
from ngraphbench.testing import CompilerContract
from ngraphbench.testing.observe import open_workload, relative_error
from ngraphbench.testing.workloads import reference_arrays, write_workload
from ngraphbench.types import Device

COMPILER = Tvm()
STEPS = [Progress(16, 15, 60.0), Progress(32, 30, 130.5), Progress(40, 38, 170.0)]


SERIAL = "loops as they are written are serial: one thread runs them, however many there are"


class TestTvm(CompilerContract):
    compiler = COMPILER
    known_gaps: ClassVar = {"test_threads_asked_for_are_used": SERIAL}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database as a search over three batches leaves it."""
    folder = tmp_path / "database"
    folder.mkdir()
    lines = [f"{s.trials},{s.records},{s.seconds}\n" for s in STEPS]
    (folder / metaschedule.PROGRESS).write_text("".join(lines))
    (folder / metaschedule.RECORDS).write_text("".join(f"record {i}\n" for i in range(38)))
    (folder / metaschedule.WORKLOADS).write_text("workloads\n")
    return folder


@pytest.mark.parametrize(
    ("budget", "reached"),
    [
        (Budget(16), STEPS[0]),
        (Budget(8), STEPS[0]),
        (Budget(17), STEPS[1]),
        (Budget(40), STEPS[2]),
        (Budget(1000), STEPS[2]),
        (Budget(1000, 60.0), STEPS[0]),
        (Budget(1000, 61.0), STEPS[1]),
        (Budget(16, 9000.0), STEPS[0]),
    ],
)
def test_a_budget_stands_for_the_same_records(
    database: Path, budget: Budget, reached: Progress
) -> None:
    assert progress_of(database, budget) == reached


def test_a_shorter_search_knows_nothing_of_a_longer_one(database: Path, tmp_path: Path) -> None:
    folder = tmp_path / "taken"
    folder.mkdir()
    take(database, STEPS[0], folder=folder)
    kept = (folder / metaschedule.RECORDS).read_text().splitlines()
    assert kept == [f"record {i}" for i in range(15)]
    assert (folder / metaschedule.WORKLOADS).read_text() == "workloads\n"


def test_a_search_that_was_is_not_done_again(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metaschedule.subprocess, "run", None)
    found = metaschedule.tune(
        Path("model.onnx"), database=database, target={"num-cores": 1}, budget=Budget(32)
    )
    assert found == STEPS[1]


def test_a_search_goes_on_where_it_was(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def run(command: Any, **kwargs: Any) -> Any:
        asked.append(metaschedule.json.loads(command[-1]))
        with (database / metaschedule.PROGRESS).open("a") as lines:
            lines.write("56,53,230.0\n")
        return metaschedule.subprocess.CompletedProcess(command, 0, stderr="")

    monkeypatch.setattr(metaschedule.subprocess, "run", run)
    found = metaschedule.tune(
        Path("model.onnx"), database=database, target={"num-cores": 1}, budget=Budget(56, 300.0)
    )
    assert found == Progress(56, 53, 230.0)
    assert asked[0]["trials"] == 16
    assert asked[0]["tuning_s"] == 130.0
    assert asked[0]["before"] == [40, 38, 170.0]


def test_a_search_that_crashes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    die = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    monkeypatch.setattr(metaschedule, "_START", die)
    with pytest.raises(CompileFailed, match="signal 11") as caught:
        metaschedule.tune(
            Path("model.onnx"), database=tmp_path, target={"num-cores": 1}, budget=Budget(8)
        )
    assert "apache-tvm-ffi" in caught.value.hint


def test_databases_are_of_one_model_target_and_version(tmp_path: Path) -> None:
    models = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    for model in models:
        model.write_text(model.name)
    folders = {
        metaschedule.database_folder(tmp_path, model=model, target=target, version=version)
        for model in models
        for target in ("1 core", "2 cores")
        for version in ("0.27", "0.28")
    }
    assert len(folders) == 8


@pytest.mark.slow
def test_a_tuned_program_computes_the_same(tmp_path: Path) -> None:
    if not (support := COMPILER.probe(Device())).ok:
        pytest.skip(support.hint)
    root = write_workload(tmp_path / "mlp", "mlp", batches=(2,))
    workload = open_workload(root, batch=2)
    given = {"trials": 4, "tuning_s": 0.0, "database": str(tmp_path / "kept")}
    took = []
    for _ in range(2):
        program = COMPILER.compile(workload, Device(), resolve_options(COMPILER, given))
        program.load(workload.input_arrays("a"))
        program.run()
        found = program.outputs()
        for name, wanted in reference_arrays(root, batch=2).items():
            assert relative_error(found[name], wanted) < 1e-5
        told = program.coverage()
        assert told["tuning"]["records"] >= 1 and told["parts"]["tuned"] >= 1
        took.append(program.tuning_s() or 0.0)
        program.close()
    assert took[1] < 0.1 * took[0], "the second compile finds the records of the first"


@pytest.mark.slow
def test_a_tuned_program_uses_the_threads_asked_for(tmp_path: Path) -> None:
    if not (support := COMPILER.probe(Device())).ok:
        pytest.skip(support.hint)

    class Tuned(TestTvm):
        heavy_options: ClassVar = {"trials": 4, "tuning_s": 0.0, "database": str(tmp_path / "kept")}

    Tuned().test_threads_asked_for_are_used(tmp_path)


def test_a_database_has_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model.onnx"
    model.write_text("model")
    with pytest.raises(Unsupported, match="kept"):
        tvm._database(model, target={}, options={"database": "kept"})
    monkeypatch.delenv(tvm.CACHE_VARIABLE, raising=False)
    with pytest.raises(Unsupported) as caught:
        tvm._database(model, target={}, options={"database": ""})
    assert caught.value.reason == "cache"
    monkeypatch.setenv(tvm.CACHE_VARIABLE, str(tmp_path / "cache"))
    assert tmp_path / "cache" in tvm._database(model, target={}, options={}).parents


class Task:
    """A loop nest with so many candidates."""

    def __init__(self, candidates: int) -> None:
        self.left = candidates

    def clone(self) -> Task:
        return self


@pytest.mark.parametrize(
    ("candidates", "before", "trials", "tuning_s", "batches"),
    [
        ([100, 100], 48, 80, 1000.0, [(1, 16), (0, 16)]),
        ([100, 100], 0, 40, 1000.0, [(0, 16), (1, 16), (0, 8)]),
        ([100, 100], 0, 1000, 5.0, [(0, 16)]),
        ([100, 100, 100], 0, 1000, 15.0, [(0, 16), (1, 16)]),
        ([20, 5], 0, 1000, 1000.0, [(0, 16), (1, 5), (0, 4)]),
    ],
)
def test_loop_nests_take_turns_while_there_is_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    candidates: list[int],
    before: int,
    trials: int,
    tuning_s: float,
    batches: list[tuple[int, int]],
) -> None:
    clock = [0.0]
    monkeypatch.setattr(metaschedule.time, "monotonic", lambda: clock[0])
    log = metaschedule._Log(tmp_path, Progress(before))
    tasks = [Task(count) for count in candidates]
    done: list[tuple[int, int]] = []

    def search_on(**asked: Any) -> None:
        (task,) = asked["tasks"]
        count = min(task.left, asked["max_trials_global"])
        task.left -= count
        clock[0] += 10.0
        if count:
            done.append((tasks.index(task), count))
            log.keep(count)

    metaschedule._take_turns(
        search_on, [(task, 1.0) for task in tasks], log=log, whole=Budget(trials, tuning_s)
    )
    assert done == batches
    assert progress_of(tmp_path, Budget(10**6)).trials == before + sum(n for _, n in batches)
