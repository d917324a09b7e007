"""A fault at every single write of what is made of a run: a file is the old one or the new one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import traceback
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pytest
from faulty_disk import FAULTS, IN_A_CHILD, WRITES_ONLY, FaultyOs
from stored_runs import measured_run, stored
from watched_writes import writes_beside

from ngraphbench import api
from ngraphbench.analysis.tables import Cell
from ngraphbench.cli.environments import lock
from ngraphbench.comparing import save_snapshot
from ngraphbench.errors import NGraphBenchError
from ngraphbench.report import html
from ngraphbench.report.charts import Chart
from ngraphbench.report.figures import write_figures
from ngraphbench.store import disk
from ngraphbench.store.snapshot import read_snapshot
from ngraphbench.studies.constraints import Constraints
from ngraphbench.studies.delivery import Asked, deliver
from ngraphbench.studies.refinement import Wanted, refine, write_refinement
from ngraphbench.types import Json

Make = Callable[[Path, Path, int], object]
"""Writes what a run at the first path gives into the second; the last tells two runs apart."""


def tables(run: Path, out: Path, number: int) -> object:
    return api.Run.open(run).export(out)


def parquet(run: Path, out: Path, number: int) -> object:
    return api.Run.open(run).export(out, form="parquet")


@cache
def page_of(run: Path) -> str:
    return api.Run.open(run).report(run.with_suffix(".html")).read_text()


def page(run: Path, out: Path, number: int) -> object:
    # Only how it is written is in question.
    return html._write(out / "report.html", page_of(run))


@cache
def chart_of(run: Path) -> Chart:
    return next(iter(api.Run.open(run).charts().values()))


def figures(run: Path, out: Path, number: int) -> object:
    return write_figures([chart_of(run)], out)


def snapshot(run: Path, out: Path, number: int) -> object:
    return save_snapshot(run, out / "deeper" / "base.json")


def next_step(run: Path, out: Path, number: int) -> object:
    parts = api.Run.open(run)
    cells = tuple(map(Cell, parts.records()))
    sessions = {session["session_id"]: session for session in parts.sessions()}
    return write_refinement(out, refine([Wanted(cells, f"{number}")], sessions, name="next"))


def delivery(run: Path, out: Path, number: int) -> object:
    record: Json = api.Run.open(run).records()[0]
    record["command"] = f"ngb bench m{number} -c eager"
    kept = out / "confirm" / "artifacts" / record["session_id"] / record["case_id"][:16]
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "program").write_bytes(bytes([number]) * 100)
    Asked(Constraints(p99_ms=1.0 + number), "latency", "/").write(out)
    return deliver(out, record, base="/", baseline="eager")


def solved_lock(run: Path, out: Path, number: int) -> object:
    with mock.patch("ngraphbench.environments.locking.solve", lambda known: f"{number}\n" * 9):
        return lock("tvm", out=out / "tvm.txt")


MAKERS = (tables, page, figures, snapshot, next_step, delivery, solved_lock)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the directories of two runs."""
    folder = tmp_path_factory.mktemp("runs")
    found = [stored(measured_run(seed=seed), folder / f"run{seed}") for seed in range(2)]
    for run in found:
        page_of(run), chart_of(run)
    return found[0], found[1]


def made(out: Path) -> dict[str, bytes]:
    """Return what lies in a folder, by name."""
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and "confirm" not in path.relative_to(out).parts
    }


def attempt(make: Make, run: Path, out: Path, faulty: FaultyOs) -> bool:
    """Return whether it was said that something went wrong."""
    with mock.patch.object(disk, "os", faulty):
        try:
            make(run, out, 1)
        except NGraphBenchError as error:
            assert str(out) in str(error), error
            return True
    return False


def attempt_in_a_child(make: Make, run: Path, out: Path, faulty: FaultyOs) -> None:
    child = os.fork()
    if not child:
        try:
            attempt(make, run, out, faulty)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status


@pytest.mark.slow
@pytest.mark.parametrize("make", [*MAKERS, parquet])
def test_a_fault_at_every_write_leaves_old_files_or_new_ones(
    tmp_path: Path, runs: tuple[Path, Path], make: Make
) -> None:
    if make is parquet:
        pytest.importorskip("polars")
    # Files may tell of the folder that they lie in.
    out, old = tmp_path / "out", tmp_path / "old"
    out.mkdir()
    make(runs[0], out, 0)
    before = made(shutil.copytree(out, old))
    counted = FaultyOs(out)
    assert not attempt(make, runs[1], out, counted)
    after = made(out)
    assert set(before) == set(after)
    assert [name for name in before if before[name] != after[name]]
    for at, (call, path) in enumerate(counted.calls):
        for fault in FAULTS:
            if fault in WRITES_ONLY and call != "write":
                continue
            # The threads of polars do not outlive a fork.
            if fault in IN_A_CHILD and make is parquet:
                continue
            shutil.rmtree(out)
            shutil.copytree(old, out)
            faulty = FaultyOs(out, fault, at)
            where = f"{fault} at call {at}: {call} {path}"
            if fault in IN_A_CHILD:
                attempt_in_a_child(make, runs[1], out, faulty)
            else:
                assert attempt(make, runs[1], out, faulty) == (fault != "short"), where
                assert set(made(out)) <= set(before), where
            for name, data in made(out).items():
                if name in before:
                    assert data in (before[name], after[name]), (where, name)
            attempt(make, runs[1], out, FaultyOs(out))
            assert {name: made(out)[name] for name in after} == after, where


@pytest.mark.parametrize("make", MAKERS)
def test_all_that_is_made_of_a_run_is_written_where_faults_are_injected(
    tmp_path: Path, runs: tuple[Path, Path], make: Make
) -> None:
    (tmp_path / "out").mkdir()
    with writes_beside(tmp_path / "out", but=re.compile("confirm(/|$)|artefact.part")) as beside:
        make(runs[0], tmp_path / "out", 0)
    assert beside == []


@pytest.mark.parametrize("odd", ["a\udcff", "\ud800"])
def test_names_that_no_utf_8_holds_are_written(tmp_path: Path, odd: str) -> None:
    """Names of files are bytes, and Python reads those that are no UTF-8 as surrogates."""
    run = measured_run()
    for record in run.records:
        record["label"] = record["case"]["model"]["label"] = odd
    place = stored(run, tmp_path / "run")
    forms = ("csv", *(["parquet"] if find_spec("polars") else []))
    for form in forms:
        assert len(api.Run.open(place).export(tmp_path / "tables", form=form)) == 2
    assert "\ufffd" in (tmp_path / "tables" / "cells.csv").read_text()
    kept = read_snapshot(save_snapshot(place, tmp_path / "base.json"))
    assert {record["label"] for record in kept.records} == {odd}
    command = f"ngb bench '{odd}' -c eager"
    told = deliver(tmp_path, {**run.records[0], "command": command}, base=odd, baseline="eager")
    assert told.script is not None
    assert os.fsencode("a\udcff") in told.script.read_bytes() or b"?" in told.script.read_bytes()
