from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from workers import MIB, PATIENCE_S, compile_, hello, is_gone, read_pid, slot

from ngraphbench.errors import CompileFailed, RunFailed, Unsupported, WorkerFailed
from ngraphbench.session import proctree
from ngraphbench.session.workerlog import LOG_LIMIT_BYTES

pytest_plugins = ("workers",)


def test_a_whole_life(prepared, tmp_path):
    worker = prepared()
    assert len(worker.request("run", deadline_s=PATIENCE_S, calls=2)["ns"]) == 2
    got = slot(worker)
    assert got["slot_ns"] >= 20_000_000 and got["rss_bytes"] > MIB
    path = tmp_path / "out.npz"
    outputs = worker.request("outputs", deadline_s=PATIENCE_S, path=str(path))["outputs"]
    assert outputs[0]["name"] == "x_out" and path.exists()
    assert worker.peak_rss_bytes > 10 * MIB and not worker.log_truncated
    worker.close()
    assert proctree.state(worker.pid) == ""
    worker.close()
    with pytest.raises(WorkerFailed, match="after its end"):
        slot(worker)


def test_the_worker_is_set_up(prepared):
    worker = prepared()
    proc = Path(f"/proc/{worker.pid}")
    assert os.getpgid(worker.pid) == worker.pid == os.getsid(worker.pid)
    assert (proc / "oom_score_adj").read_text().strip() == "1000"
    limits = (proc / "limits").read_text()
    core = next(line for line in limits.splitlines() if line.startswith("Max core"))
    assert core.split()[4:6] == ["0", "0"]
    assert (proc / "fd" / "0").readlink() == Path(os.devnull)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("exit", "exit:3"),
        ("segfault", "signal:SIGSEGV"),
        ("kill", "signal:SIGKILL"),
        ("fork-and-exit", "exit:5"),
    ],
)
def test_a_crash_is_told(start, root, fault, reason):
    worker = start()
    hello(worker)
    with pytest.raises(WorkerFailed) as caught:
        compile_(worker, root, fault=f"compile:{fault}")
    assert (caught.value.status, caught.value.reason) == ("crashed", reason)
    assert isinstance(caught.value.detail["log_tail"], str)
    if fault == "segfault":
        assert "plugins_for_worker" in caught.value.detail["log_tail"]
    assert proctree.state(worker.pid) == ""


def test_a_crash_in_a_slot(prepared):
    worker = prepared("run:exit")
    with pytest.raises(WorkerFailed, match="timed slot ended the process") as caught:
        slot(worker)
    assert caught.value.reason == "exit:3"


def test_a_worker_that_never_speaks(start):
    worker = start(command=[sys.executable, "-c", "print('nothing to say')"])
    with pytest.raises(WorkerFailed) as caught:
        hello(worker)
    assert (caught.value.status, caught.value.reason) == ("crashed", "exit:0")
    assert "nothing to say" in caught.value.detail["log_tail"]


def test_a_worker_that_speaks_nonsense(start):
    code = "import os, sys, time; os.write(int(sys.argv[1]), b'hello, world\\n'); time.sleep(60)"
    worker = start(command=[sys.executable, "-c", code, "{fd}"])
    with pytest.raises(WorkerFailed) as caught:
        hello(worker)
    assert (caught.value.status, caught.value.reason) == ("failed", "protocol")


def test_a_command_that_is_not_there(start):
    with pytest.raises(WorkerFailed, match="cannot be started") as caught:
        start(command=["/no/such/python"])
    assert (caught.value.status, caught.value.reason) == ("failed", "spawn")


def test_a_hang_meets_its_deadline(start, root):
    worker = start()
    hello(worker)
    with pytest.raises(WorkerFailed, match=r"Compiling did not finish within 0\.3 s") as caught:
        compile_(worker, root, deadline_s=0.3, fault="compile:hang")
    assert (caught.value.status, caught.value.reason) == ("timeout", "deadline")
    assert proctree.state(worker.pid) == ""


def test_errors_keep_their_names(start, root):
    worker = start()
    hello(worker)
    with pytest.raises(CompileFailed, match="no kernel") as caught:
        compile_(worker, root, fault="compile:compile-failed")
    assert (caught.value.reason, caught.value.hint) == ("kernel", "Try less.")
    assert "plugins_for_worker" in str(caught.value.__cause__)
    with pytest.raises(RunFailed, match="no program"):
        slot(worker)
    (root / "b1" / "batch.json").write_text(
        json.dumps({"forms": ["torch"], "inputs": [], "outputs": []})
    )
    with pytest.raises(Unsupported):
        compile_(worker, root)


def test_a_flood_of_output_does_no_harm(prepared, tmp_path):
    worker = prepared("run:flood")
    for _ in range(3):
        slot(worker)
    worker.close()
    assert worker.log_truncated
    size = (tmp_path / "worker.log").stat().st_size
    assert size <= LOG_LIMIT_BYTES
    assert b"was cut out here" in (tmp_path / "worker.log").read_bytes()


def test_a_suspended_worker_stands_still(prepared):
    worker = prepared()
    slot(worker)
    worker.suspend()
    worker.suspend()
    assert proctree.state(worker.pid) == "T"
    before = cpu_ticks(worker.pid)
    time.sleep(0.1)
    assert cpu_ticks(worker.pid) == before
    worker.resume()
    worker.resume()
    assert slot(worker)["calls"] >= 3
    worker.suspend()
    assert slot(worker)["calls"] >= 3  # a request resumes
    worker.suspend()
    worker.kill()
    assert proctree.state(worker.pid) == ""


def test_children_are_suspended_too(start, root, tmp_path):
    worker = start()
    hello(worker)
    path = tmp_path / "pid"
    compile_(worker, root, fault="compile:child", argument=str(path))
    pid = read_pid(path)
    worker.suspend()
    deadline = time.monotonic() + 5
    while proctree.state(pid) != "T" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert proctree.state(pid) == "T"
    worker.resume()
    worker.kill()
    assert is_gone(pid)


def test_a_suspended_worker_that_was_killed(prepared):
    worker = prepared()
    worker.suspend()
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerFailed) as caught:
        slot(worker)
    assert caught.value.reason == "signal:SIGKILL" and "from outside" in caught.value.hint
    worker.suspend()
    worker.resume()


def test_the_parent_sleeps_while_a_slot_runs(prepared):
    worker = prepared()
    start_cpu, start_wall = time.process_time(), time.monotonic()
    worker.request("slot", deadline_s=PATIENCE_S, slot_ns=1_500_000_000, calls_min=1)
    used = (time.process_time() - start_cpu) / (time.monotonic() - start_wall)
    assert used < 0.02


def test_a_worker_dies_with_its_parent_even_when_stopped(tmp_path, kit):
    code = """
import os, sys, time
from pathlib import Path
from ngraphbench.environments.kit import worker_command
from ngraphbench.session.process import WorkerProcess
folder = Path(sys.argv[2])
worker = WorkerProcess.spawn(
    worker_command(sys.executable, Path(sys.argv[1])), env=dict(os.environ),
    log=folder / "log", cwd=folder, memory_bytes=1 << 40,
)
worker.request("hello", deadline_s=60, plugin="none:None")
worker.suspend()
print(worker.pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(kit), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert proctree.state(pid) == "T"
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert is_gone(pid)


def test_a_slow_close_is_cut_short(prepared, monkeypatch):
    monkeypatch.setattr("ngraphbench.session.process.CLOSE_S", 0.3)
    worker = prepared("close:hang")
    worker.close()
    assert proctree.state(worker.pid) == ""


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
