"""What a worker may use, and what it leaves behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from workers import MIB, PATIENCE_S, compile_, hello, is_gone, read_pid, slot

from ngraphbench.errors import WorkerFailed
from ngraphbench.session import process, proctree
from ngraphbench.session.memorygroup import groups_folder

pytest_plugins = ("workers",)


def test_memory_without_end(start, root):
    worker = start(memory_bytes=300 * MIB)
    hello(worker)
    with pytest.raises(WorkerFailed, match="limit is 300 MiB") as caught:
        compile_(worker, root, fault="compile:memory")
    assert (caught.value.status, caught.value.reason) == ("oom", "memory")
    assert caught.value.detail["found_bytes"] > 300 * MIB
    assert worker.peak_rss_bytes > 300 * MIB
    assert proctree.state(worker.pid) == ""


def test_memory_without_end_in_a_slot(prepared):
    worker = prepared("run:memory", memory_bytes=300 * MIB)
    with pytest.raises(WorkerFailed, match="300 MiB") as caught:
        slot(worker)
    assert (caught.value.status, caught.value.reason) == ("oom", "memory")
    assert proctree.state(worker.pid) == ""


def test_memory_refused_inside(start, root):
    worker = start()
    hello(worker)
    with pytest.raises(WorkerFailed) as caught:
        compile_(worker, root, fault="compile:bad-alloc")
    assert (caught.value.status, caught.value.reason) == ("oom", "memory")
    assert compile_(worker, root)["ok"]


@pytest.mark.parametrize("fault", ["child", "daemon"])
def test_what_the_worker_started_goes_with_it(start, root, tmp_path, fault):
    worker = start()
    hello(worker)
    path = tmp_path / "pid"
    compile_(worker, root, fault=f"compile:{fault}", argument=str(path))
    pid = read_pid(path)
    assert proctree.state(pid) not in ("", "Z")
    if fault == "child":
        assert pid in proctree.descendants(worker.pid)
        assert pid in proctree._descendants_by_parent(worker.pid)
    worker.kill()
    worker.kill()
    assert is_gone(pid)
    assert proctree.state(worker.pid) == ""


def in_a_group() -> None:
    if groups_folder() is None:
        pytest.skip("this user may make no memory groups here")


def test_a_worker_that_was_let_go_on_is_not_searched_for_children_in_its_slot(
    prepared, monkeypatch
):
    worker = prepared()
    worker.suspend()
    searched, looked = [], []
    with monkeypatch.context() as patched:
        patched.setattr(process, "WATCH_IN_SLOT_S", 0.01)
        patched.setattr(process, "WATCH_IN_GROUP_S", 0.01)
        patched.setattr(process, "TREE_EVERY_S", PATIENCE_S)
        patched.setattr(proctree, "descendants", lambda pid: searched.append(pid) or [])
        patched.setattr(proctree, "rss_bytes", lambda pid: looked.append(pid) or 0)
        worker.request("slot", deadline_s=PATIENCE_S, slot_ns=100_000_000)
    assert looked
    assert not searched


@pytest.mark.parametrize("grouped", [True, False])
def test_memory_is_looked_at_seldom_in_a_slot_where_the_kernel_keeps_the_limit(
    prepared, monkeypatch, grouped
):
    if grouped:
        in_a_group()
    else:
        monkeypatch.setattr("ngraphbench.session.memorygroup.groups_folder", lambda: None)
    worker = prepared()
    looked = []
    with monkeypatch.context() as patched:
        patched.setattr(process, "WATCH_IN_SLOT_S", 0.01)
        patched.setattr(process, "WATCH_IN_GROUP_S", PATIENCE_S)
        patched.setattr(proctree, "rss_bytes", lambda pid: looked.append(pid) or 0)
        worker.request("slot", deadline_s=PATIENCE_S, slot_ns=100_000_000)
    assert bool(looked) != grouped


def test_a_slot_that_hangs_meets_its_deadline_however_seldom_it_is_looked_at(prepared, monkeypatch):
    worker = prepared("run:hang")
    monkeypatch.setattr(process, "WATCH_IN_SLOT_S", 600.0)
    monkeypatch.setattr(process, "WATCH_IN_GROUP_S", 600.0)
    with pytest.raises(WorkerFailed, match=r"did not finish within 0\.3 s") as caught:
        slot(worker, deadline_s=0.3)
    assert (caught.value.status, caught.value.reason) == ("timeout", "deadline")


def test_the_kernel_stops_what_watching_is_too_slow_for(start, root, monkeypatch):
    in_a_group()
    monkeypatch.setattr("ngraphbench.session.process.WATCH_S", 600.0)
    worker = start(memory_bytes=256 * MIB)
    hello(worker)
    with pytest.raises(WorkerFailed) as caught:
        compile_(worker, root, fault="compile:memory-at-once")
    assert (caught.value.status, caught.value.reason) == ("oom", "memory")
    assert "256 MiB" in caught.value.message
    assert groups_left() == []


def groups_left() -> list[Path]:
    folder = groups_folder()
    return list(folder.glob(f"ngb-test-{os.getpid()}-*")) if folder else []


@pytest.mark.parametrize("fault", ["compile:daemon", "compile:bare-daemon"])
def test_what_stays_behind_is_told_and_ended(start, root, tmp_path, fault):
    if fault == "compile:bare-daemon":
        in_a_group()
    worker = start()
    hello(worker)
    compile_(worker, root, fault=fault, argument=str(tmp_path / "pid"))
    pid = read_pid(tmp_path / "pid")
    worker.close()
    assert is_gone(pid)
    assert worker.leftovers == "1 process"
    assert groups_left() == []


def test_shared_memory_that_stays_behind_is_told_and_removed(start, root):
    worker = start()
    hello(worker)
    compile_(worker, root, fault="compile:shared-memory")
    left = Path(f"/dev/shm/ngb-left-{worker.pid}")
    assert left.exists()
    worker.close()
    assert not left.exists()
    assert worker.leftovers == "4 MiB of shared memory"
