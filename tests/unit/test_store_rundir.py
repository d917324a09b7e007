"""The run directory, its lock, which record counts, and sample files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraphbench.case import Case, CompilerRef, ModelRef
from ngraphbench.errors import SpecError, StoreError
from ngraphbench.store.disk import cut_torn_line
from ngraphbench.store.rundir import RunDir, cases_to_retry, finished_sessions, latest
from ngraphbench.store.samples import (
    COLUMNS,
    append_samples,
    drop_unfinished_epochs,
    read_samples,
)
from ngraphbench.types import Device, Json


def case(batch: int) -> Case:
    return Case(ModelRef("a", "a", "onnx", "c"), CompilerRef("x", "m:X"), Device(), batch)


def case_record(batch: int, session: str, status: str = "ok", *, stage: str = "measure") -> Json:
    found = case(batch)
    return {
        "kind": "case",
        "session_id": session,
        "case_id": found.case_id,
        "case": found.to_json(),
        "status": status,
        "stage": stage,
    }


def session_record(name: str, attempt: int = 0, host: str = "h") -> Json:
    return {
        "kind": "session",
        "session_id": name,
        "attempt": attempt,
        "fingerprint": {"host": host},
        "profile": {},
        "mode": "sync",
        "seed": 0,
    }


def row(epoch: int, number: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "round": number,
        "position": 1,
        "mode": "sync",
        "calls": 5,
        "slot_ns": 100,
        "call_ns": 20.125,
        "first_ns": 30,
        "cpu_ns": 200,
        "nivcsw": 0,
        "sub_ns": [19.5, np.float64(0.1), 21],
        **more,
    }


def test_open(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no run directory"):
        RunDir.open(tmp_path / "none")
    with pytest.raises(StoreError, match="empty"):
        RunDir.open(tmp_path)
    run = RunDir.open(tmp_path / "a" / "b", create=True)
    run.append([session_record("s")])
    assert RunDir.open(tmp_path / "a" / "b").finished_sessions() == {"s"}
    (tmp_path / "file").write_text("x")
    for create in (False, True):
        with pytest.raises(StoreError):
            RunDir.open(tmp_path / "file", create=create)
        with pytest.raises(StoreError, match="other files"):
            RunDir.open(tmp_path, create=create)


def test_experiment_and_plan_are_kept(tmp_path: Path) -> None:
    run = RunDir.open(tmp_path, create=True)
    assert run.read_plan() is None
    run.write_experiment("name: é\n")
    run.write_plan({"name": "x"})
    run.write_plan({"name": "y"})
    assert run.read_plan() == {"name": "y"}
    assert (tmp_path / "experiment.yaml").read_text(encoding="utf-8") == "name: é\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["experiment.yaml", "plan.json"]
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(StoreError, match=r"plan\.json"):
        run.read_plan()


def test_lock_names_its_holder_and_is_free_afterwards(tmp_path: Path) -> None:
    run = RunDir.open(tmp_path, create=True)
    taken = pytest.raises(StoreError, match=f"process {os.getpid()}")
    with run.lock(), taken, RunDir.open(tmp_path).lock():
        raise AssertionError
    with run.lock():
        assert run.records() == []


def test_lock_dies_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from ngraphbench.store.rundir import RunDir\n"
        "lock = RunDir.open(Path(sys.argv[1]), create=True).lock(); lock.__enter__(); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 9
    with RunDir.open(tmp_path).lock():
        pass


def test_latest_is_the_last_written(tmp_path: Path) -> None:
    records = [
        case_record(1, "s1", "failed"),
        case_record(2, "s1"),
        session_record("s1"),
        case_record(1, "s2"),
        session_record("s2", attempt=1),
    ]
    assert [(r["session_id"], r["status"]) for r in latest(records)] == [("s2", "ok"), ("s1", "ok")]
    assert finished_sessions(records) == {"s1", "s2"}


def test_latest_prefers_later_attempts_under_the_same_conditions() -> None:
    retry = [case_record(1, "s2"), session_record("s2", attempt=1)]
    first = [case_record(1, "s1", "failed"), session_record("s1")]
    assert [r["session_id"] for r in latest([*retry, *first])] == ["s2"]
    elsewhere = [case_record(1, "s1", "failed"), session_record("s1", host="other")]
    assert [r["session_id"] for r in latest([*retry, *elsewhere])] == ["s1"]


def test_a_cell_left_out_later_keeps_its_result() -> None:
    left_out = case_record(1, "p1", "unavailable", stage="plan")
    measured = [case_record(1, "s1"), session_record("s1")]
    assert [r["status"] for r in latest([*measured, left_out])] == ["ok"]
    assert [r["status"] for r in latest([left_out, *measured])] == ["ok"]
    assert [r["status"] for r in latest([left_out])] == ["unavailable"]


def test_cases_to_retry() -> None:
    records = [
        case_record(1, "s1", "failed"),
        case_record(2, "s1", "timeout"),
        case_record(3, "s1", "failed"),
        session_record("s1"),
        case_record(3, "s2"),
        session_record("s2", attempt=1),
    ]
    assert cases_to_retry(records, ["failed", "timeout"]) == [case(1), case(2)]
    assert cases_to_retry(records, []) == []
    with pytest.raises(SpecError, match="Did you mean 'failed'"):
        cases_to_retry(records, ["faild"])


def test_samples_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "s" / "a.csv"
    append_samples(path, [row(0), row(0, 1, sub_ns=[])])
    append_samples(path, [row(1, call_ns=1 / 3)])
    found = read_samples(path)
    assert tuple(found) == COLUMNS
    assert found["epoch"].tolist() == [0, 0, 1]
    assert found["epoch"].dtype == np.int64
    assert found["call_ns"].tolist() == [20.125, 20.125, 1 / 3]
    assert found["mode"].tolist() == ["sync"] * 3
    assert [part.tolist() for part in found["sub_ns"]] == [[19.5, 0.1, 21.0], [], [19.5, 0.1, 21.0]]
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)


def test_no_rows_is_a_file_with_a_header(tmp_path: Path) -> None:
    append_samples(tmp_path / "a.csv", [])
    assert len(read_samples(tmp_path / "a.csv")["epoch"]) == 0


def test_samples_refuse_other_columns(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="extra, mode"):
        append_samples(
            tmp_path / "a.csv", [{k: v for k, v in row(0, extra=1).items() if k != "mode"}]
        )


def test_bad_samples_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with pytest.raises(StoreError, match="cannot be read"):
        read_samples(path)
    append_samples(path, [row(0), row(0, 1)])
    text = path.read_text()
    path.write_text(text.replace("20.125", "fast", 1))
    with pytest.raises(StoreError, match=r"a\.csv:2: call_ns cannot be 'fast'"):
        read_samples(path)
    path.write_text(text.replace("sync,", "", 1))
    with pytest.raises(StoreError, match=r"a\.csv:2: 10 fields"):
        read_samples(path)


@given(data=st.data(), count=st.integers(1, 4))
def test_samples_torn_at_any_byte(data: st.DataObject, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        append_samples(path, [row(0, i) for i in range(count)])
        whole = path.read_bytes()
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
        complete = max(0, path.read_bytes().count(b"\n") - 1)
        assert read_samples(path)["round"].tolist() == list(range(complete))
        append_samples(path, [row(0, i) for i in range(complete, count)])
        assert path.read_bytes() == whole


def test_unfinished_epochs_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    drop_unfinished_epochs(path, 1)
    assert not path.exists()
    append_samples(path, [row(0), row(1), row(2)])
    torn = path.read_bytes() + b"2,1,0"
    path.write_bytes(torn)
    drop_unfinished_epochs(path, 2)
    assert read_samples(path)["epoch"].tolist() == [0, 1]
    assert path.read_bytes() == b"".join(torn.splitlines(keepends=True)[:3])
    drop_unfinished_epochs(path, 0)
    assert len(read_samples(path)["epoch"]) == 0


@given(head=st.binary(max_size=6), tail_bytes=st.integers(0, 200_000))
def test_cut_torn_line_looks_back_any_distance(head: bytes, tail_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f"
        cut_torn_line(path)
        path.write_bytes(head + b"x" * tail_bytes)
        cut_torn_line(path)
        whole = head + b"x" * tail_bytes
        assert path.read_bytes() == whole[: whole.rfind(b"\n") + 1]


def test_a_folder_that_is_no_run_is_met_with_fitting_advice(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreError) as reading:
        RunDir.open(tmp_path)
    assert "that `ngb run` or `ngb bench` wrote" in reading.value.hint
    with pytest.raises(StoreError) as writing:
        RunDir.open(tmp_path, create=True)
    assert "empty or new" in writing.value.hint


def test_planned_cells_without_a_record_are_counted(tmp_path: Path) -> None:
    run = RunDir.open(tmp_path / "run", create=True)
    assert run.unrecorded() == 0
    run.write_plan({"sessions": [{"cases": [case(batch).to_json() for batch in (1, 2, 4)]}]})
    assert run.unrecorded() == 3
    run.append([case_record(2, "s1")])
    assert run.unrecorded() == 2
