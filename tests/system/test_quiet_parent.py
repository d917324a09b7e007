"""While a slot runs, nobody else works: client, agent and guard together stay below one percent."""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
from fake_runs import client, compiler, fake_plan, small_profile
from processes import processes_of, wait_until

from ngraphbench import agent
from ngraphbench.plan import Plan
from ngraphbench.session.process import WorkerProcess

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_lock")]

LIMIT = 0.01
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def plan_of(folder: Path, slot_ms: int) -> Plan:
    candidates = [compiler(work_us=50), compiler(work_us=200)]
    return fake_plan(folder, candidates, profile=small_profile(slot_ms=slot_ms))


@pytest.mark.parametrize("slot_ms", [100, 500])
def test_the_agent_sleeps_while_a_slot_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slot_ms: int
) -> None:
    # This thread alone: vendors that earlier tests loaded have pools of their own here.
    spent: list[float] = []
    request = WorkerProcess.request

    def watched(self: WorkerProcess, op: str, **more: Any) -> Any:
        began, cpu_began = time.perf_counter(), time.thread_time()
        try:
            return request(self, op, **more)
        finally:
            if op == "slot":
                cpu_s = time.thread_time() - cpu_began
                spent.append(cpu_s / (time.perf_counter() - began))

    monkeypatch.setattr(WorkerProcess, "request", watched)
    (session,) = plan_of(tmp_path, slot_ms).sessions
    run = tmp_path / "run"
    run.mkdir()
    message = json.dumps({"run": str(run), "session": session.to_json()})
    assert json.loads(agent.run(message, emit=lambda event: None))["finished"]
    share = statistics.median(spent)
    print(f"agent: {share:.3%} of a CPU in {len(spent)} slots of {slot_ms} ms")
    assert len(spent) == 24
    assert share < LIMIT / 2


def test_client_and_guard_sleep_while_rounds_run(tmp_path: Path) -> None:
    running = client(tmp_path / "run", plan_of(tmp_path, 100))
    assert running.stdout is not None
    seen: list[tuple[float, float]] = []
    guards: list[int] = []
    for line in running.stdout:
        if json.loads(line)["event"] == "round":
            named = processes_of(tmp_path).items() if not guards else ()
            guards += [pid for pid, command in named if "guard.py" in command]
            cpu_s = sum(map(cpu_seconds, (running.pid, *guards)))
            seen.append((cpu_s, time.perf_counter()))
    running.stdout.close()
    assert running.wait(60) == 0
    assert len(guards) == 1
    # Between the first round and the last, all of them with every slot and canary.
    cpu_s, wall_s = (last - first for first, last in zip(seen[0], seen[-1], strict=True))
    print(f"client and guard: {cpu_s / wall_s:.3%} of {wall_s:.1f} s")
    assert cpu_s / wall_s < LIMIT / 2
    assert wait_until(lambda: not processes_of(tmp_path))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process: in ns where the kernel says it, else in its ticks."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
