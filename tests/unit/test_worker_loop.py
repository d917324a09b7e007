from __future__ import annotations

import json
import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from ngraphbench.errors import CompileFailed, RunFailed, WorkerFailed
from ngraphbench.worker.failures import RemoteTraceback, error_answer, error_told
from ngraphbench.worker.loop import Worker, serve
from ngraphbench.worker.protocol import receive, send
from ngraphbench.workload import read_arrays, write_arrays

PLUGIN = "plugins_for_worker:Faulty"


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    root = tmp_path / "workload"
    folder = root / "b2"
    folder.mkdir(parents=True)
    (root / "workload.json").write_text(json.dumps({"model": {"source": "m.onnx"}}))
    spec = {"name": "x", "dtype": "float32", "shape": [2, 3]}
    bound = {"forms": ["onnx"], "inputs": [spec], "outputs": [spec]}
    (folder / "batch.json").write_text(json.dumps(bound))
    for name, value in (("a", 1.0), ("b", 5.0)):
        write_arrays(folder / f"inputs-{name}.npz", {"x": np.full((2, 3), value, np.float32)})
    return root


@pytest.fixture
def ask(monkeypatch):
    """Ask a served worker; the answer is checked for its id."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs,), daemon=True)
    thread.start()
    numbers = iter(range(1, 1000))

    def ask(op: str, **fields):
        number = next(numbers)
        send(ours, {"id": number, "op": op, **fields})
        answer = receive(ours)
        assert answer.pop("id") == number
        return answer

    ask.thread = thread
    yield ask
    ours.close()
    thread.join(5)
    assert not thread.is_alive()
    theirs.close()


def hello(ask, plugin: str = PLUGIN, **device):
    return ask("hello", plugin=plugin, device=device, search_path=[str(Path(__file__).parent)])


def compiled(ask, root: Path, **options):
    assert hello(ask)["ok"]
    return ask("compile", root=str(root), batch=2, precision="fp32", options=options)


def test_a_whole_conversation(ask, workload, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "2")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/somewhere")
    monkeypatch.setenv("NGB_SESSION", "secret")
    assert hello(ask)["python"].count(".") == 2
    imported = ask("import")
    assert imported["version"] == "1.5"
    assert imported["packages"] == {"numpy": np.__version__}
    assert imported["variables"]["TVM_NUM_THREADS"] == "2"
    assert not {"NGB_SESSION", "TORCHINDUCTOR_CACHE_DIR", "PATH"} & set(imported["variables"])
    support = {"ok": True, "version": "1.5", "hint": ""}
    assert ask("probe") == {"ok": True, "support": support}
    made = ask("compile", root=str(workload), batch=2, precision="fp32", options={})
    assert made["ok"] and made["seconds"] >= 0 and made["coverage"] == {"nodes": 3}
    assert made["device_memory_bytes"] is None and made["tuning_s"] is None
    assert ask("save_artifact", path=str(tmp_path / "artifact"))["bytes"] is None
    for name, value in (("a", 2.0), ("b", 10.0)):
        assert ask("load", set=name)["ok"]
        assert len(ask("run", calls=3)["ns"]) == 3
        got = ask("outputs", path=str(tmp_path / "out.npz"))
        assert got["outputs"] == [{"name": "x_out", "dtype": "float32", "shape": [2, 3]}]
        assert np.all(read_arrays(tmp_path / "out.npz")["x_out"] == value)
    path = tmp_path / "own.npz"
    write_arrays(path, {"x": np.zeros((2, 3), np.float32)})
    assert ask("load", path=str(path))["ok"]
    timed = ask("slot", mode="sync", slot_ns=2_000_000, calls_min=2, rewarm_calls=1, group_ns=10**6)
    assert timed["calls"] >= 2 and timed["sub_ns"]
    assert ask("close") == {"ok": True}
    ask.thread.join(5)
    assert not ask.thread.is_alive()


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        ("compile:value-error", "CompileFailed", "ValueError"),
        ("compile:compile-failed", "CompileFailed", "kernel"),
        ("compile:system-exit", "CompileFailed", "SystemExit"),
        ("compile:memory-error", "WorkerFailed", "memory"),
        ("compile:bad-alloc", "WorkerFailed", "memory"),
        ("run:value-error", "RunFailed", "ValueError"),
        ("run:run-failed", "RunFailed", "device"),
        ("run:system-exit", "RunFailed", "SystemExit"),
        ("run:bad-alloc", "WorkerFailed", "memory"),
    ],
)
def test_faults_become_answers(ask, workload, fault, kind, reason):
    answer = compiled(ask, workload, fault=fault)
    if fault.startswith("run"):
        assert answer["ok"]
        ask("load", set="a")
        answer = ask("slot", slot_ns=1000, calls_min=1)
    assert not answer["ok"]
    error = answer["error"]
    assert (error["type"], error["reason"]) == (kind, reason)
    assert "plugins_for_worker" in error["traceback"]
    if reason == "memory":
        assert error["status"] == "oom"
    assert ask("probe")["ok"]  # and the worker goes on


def test_a_form_that_is_not_there(ask, workload):
    path = workload / "b2" / "batch.json"
    bound = json.loads(path.read_text()) | {"forms": ["torch"], "export_error": "op foo"}
    path.write_text(json.dumps(bound))
    error = compiled(ask, workload)["error"]
    assert (error["type"], error["reason"]) == ("Unsupported", "form")
    assert "onnx" in error["message"] and "torch" in error["message"]
    assert "op foo" in error["message"]


def test_other_refusals(ask, workload):
    assert ask("import")["error"]["type"] == "WorkerFailed"
    assert ask("run")["error"]["reason"] == "no-program"
    assert ask("dance")["error"]["reason"] == "protocol"
    assert compiled(ask, workload, colour="red")["error"]["type"] == "SpecError"
    missing = ask("compile", root=str(workload), batch=64, options={})["error"]
    assert (missing["type"], missing["reason"]) == ("WorkerFailed", "workload")
    assert hello(ask, cpus=[100_000])["error"]["reason"] == "affinity"


def test_tuning_is_no_part_of_the_time_to_compile(ask, workload):
    hello(ask, "plugins_for_worker:Tuning")
    made = ask("compile", root=str(workload), batch=2, options={})
    assert made["tuning_s"] == 1000.0
    assert -1000.0 <= made["seconds"] < -900.0


def test_a_compiler_that_is_not_usable(ask):
    hello(ask, "plugins_for_worker:Absent")
    support = {"ok": False, "version": "", "hint": "pip install absent"}
    assert ask("probe") == {"ok": True, "support": support}
    error = ask("import")["error"]
    assert (error["type"], error["hint"]) == ("Unavailable", "pip install absent")


def test_a_plugin_that_is_not_there(ask):
    hello(ask, "no_such_module:Nothing")
    assert ask("import")["error"]["reason"] == "plugin-import"
    assert ask("compile", root="/", batch=1)["error"]["type"] == "Unavailable"


def test_outputs_must_be_arrays(ask, workload, tmp_path):
    compiled(ask, workload, fault="outputs-list")
    ask("load", set="a")
    ask("run", calls=1)
    error = ask("outputs", path=str(tmp_path / "x.npz"))["error"]
    assert error["type"] == "RunFailed" and "list" in error["message"]


def test_bfloat16_outputs_travel_as_bits(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    worker = Worker()

    class Program:
        def outputs(self):
            return {"y": np.ones((2,), ml_dtypes.bfloat16)}

    worker._program = Program()
    path = tmp_path / "y.npz"
    got = worker.outputs({"path": str(path)})
    assert got["outputs"] == [{"name": "y", "dtype": "bfloat16", "shape": [2]}]
    assert read_arrays(path)["y"].tolist() == [0x3F80] * 2


def test_own_operations_can_be_served():
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs, {"add": lambda r: {"sum": r["a"] + 1}}))
    thread.start()
    send(ours, {"id": 1, "op": "add", "a": 2})
    assert receive(ours) == {"id": 1, "ok": True, "sum": 3}
    send(ours, {"id": 2, "op": "close"})
    assert receive(ours) == {"id": 2, "ok": True}
    thread.join(5)
    ours.close()
    theirs.close()


def test_errors_come_back_as_they_were():
    try:
        raise CompileFailed("no kernel", reason="kernel", hint="Try less.")
    except CompileFailed as error:
        answer = {"ok": False, "error": error_answer(error, "compile")}
    told = error_told(answer, "compile")
    assert isinstance(told, CompileFailed)
    assert (told.message, told.reason, told.hint) == ("no kernel", "kernel", "Try less.")
    assert isinstance(told.__cause__, RemoteTraceback) and "no kernel" in str(told.__cause__)

    class Own(RunFailed):
        pass

    assert isinstance(error_told({"error": error_answer(Own("x"), "run")}, "run"), RunFailed)
    oom = error_told({"error": error_answer(MemoryError(), "run")}, "run")
    assert isinstance(oom, WorkerFailed) and oom.status == "oom"
    silent = error_told({}, "run")
    assert isinstance(silent, WorkerFailed) and silent.status == "failed"


def test_a_long_traceback_is_cut():
    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("x" * 100_000)
        deep(n - 1)

    try:
        deep(50)
    except ValueError as error:
        told = error_answer(error, "compile")
    assert len(told["traceback"].splitlines()) <= 40
    assert len(told["message"]) < 5000


def test_a_busy_worker_answers_and_says_what_it_did(ask, workload):
    assert not ask("busy", on=True)["ok"]
    assert compiled(ask, workload)["ok"]
    assert ask("load", set="a")["ok"]
    assert ask("busy", on=True) == {"ok": True}
    deadline = time.monotonic() + 20
    did = {"calls": 0}
    while did["calls"] == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
        did = ask("busy", on=False)
        ask("busy", on=True)
    assert did["calls"] > 0 and did["seconds"] > 0 and did["error"] == ""
    # Other requests are answered in between, and closing ends it.
    assert ask("run", calls=2)["ok"]


def test_a_block_leaves_its_rows(ask, workload, tmp_path):
    assert compiled(ask, workload)["ok"]
    assert ask("load", set="a")["ok"]
    answer = ask("block", kind="tails", seconds=0.02, folder=str(tmp_path))
    assert answer["ok"] and answer["requests"] > 0 and answer["lanes"] == 0
    rows = read_arrays(tmp_path / "block.npz")
    assert len(rows["end_ns"]) == answer["requests"] and (rows["end_ns"] > rows["start_ns"]).all()
    answer = ask("block", kind="concurrent", in_flight=2, seconds=0.02, folder=str(tmp_path))
    assert answer["error"]["type"] == "Unsupported" and answer["error"]["reason"] == "concurrent"
    answer = ask("block", kind="burst", seconds=1, folder=str(tmp_path))
    assert answer["error"]["type"] == "RunFailed"
