"""What an agent of a fleet costs: idle, and inside the slots of a session that it runs.

A scheduler, an agent and a client on loopback, over mutual TLS, with the settings that they have
by default. Inside slots it is the worker that looks: right before a slot's first call and right
after its last it reads how much CPU time the agent, the process of the session and its guard have
used, all their threads together. What is still running at the first look counts as inside.

    python benchmarks/quiet.py [ROUNDS IDLE_S [SLOT_MS]]

SLOT_MS is how long a slot shall be timed, by default as in the profile `default`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngraphbench.compilers.fake import FakeCompiler, FakeProgram
from ngraphbench.types import Device, Json, OptionValue
from ngraphbench.worker import loop
from ngraphbench.workload import Workload

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests" / "system"
IDLE_LIMIT, SLOT_LIMIT = 0.005, 0.001
TOLD = "in this slot: "
REST_S = 15.0
"""What an agent does once it is connected is over by then."""


class Watching(FakeCompiler):
    """A fake compiler in whose slots somebody looks at those who should sleep."""

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> FakeProgram:
        watch_slots(bystanders())
        return super().compile(workload, device, options)


def watch_slots(pids: Mapping[str, int]) -> None:
    """Have this worker print what each of those processes spends in each of its slots, in ns."""
    measure = loop.measure_slot

    def watched(program: Any, request: Json) -> Json:
        before, began_ns = spent_ns(pids), time.perf_counter_ns()
        answer = measure(program, request)
        wall_ns, after = time.perf_counter_ns() - began_ns, spent_ns(pids)
        found = {who: after[who] - before[who] for who in pids}
        print(TOLD + json.dumps({"wall": wall_ns, "timed": answer["slot_ns"], **found}))
        return answer

    loop.measure_slot = watched


def bystanders() -> dict[str, int]:
    """Return the processes that should sleep now: those above this worker, and the guard."""
    session = os.getppid()
    found = {"session": session}
    above = parent_of(session)
    while above > 1 and "agent" not in found:
        if "--scheduler" in command_of(above):
            found["agent"] = above
        above = parent_of(above)
    for task in Path(f"/proc/{session}/task").iterdir():
        for child in (task / "children").read_text().split():
            if "guard.py" in command_of(int(child)):
                found["guard"] = int(child)
    return found


def spent_ns(pids: Mapping[str, int]) -> dict[str, int]:
    """Return the CPU time of processes in ns, that of all threads which they have now."""
    return {who: process_ns(pid) for who, pid in pids.items()}


def process_ns(pid: int) -> int:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def idle_share(pid: int, seconds: float) -> float:
    """Return the CPU time of a process over wall time."""
    time.sleep(REST_S)
    cpu_ns, began_ns = process_ns(pid), time.perf_counter_ns()
    time.sleep(seconds)
    return (process_ns(pid) - cpu_ns) / (time.perf_counter_ns() - began_ns)


def run_session(fleet: Any, folder: Path, rounds: int, slot_ms: int = 0) -> list[dict[str, int]]:
    """Return what was seen in each slot of a session of two programs."""
    from dataclasses import asdict, replace

    from fake_runs import compiler
    from fleet_runs import fleet_plan, run_fleet

    from ngraphbench.engines.remote import Patience
    from ngraphbench.profiles import PROFILES

    profile = replace(PROFILES["default"], epochs=1, rounds_min=rounds, rounds_max=rounds)
    if slot_ms:
        profile = replace(profile, slot_ns=slot_ms * 1_000_000)
    candidates = [compiler("quiet:Watching", work_us=us) for us in (200, 1000)]
    plan = fleet_plan(folder, fleet.names, compilers=candidates, profile=profile)
    run_fleet(folder / "run", plan, {**fleet.described, "patience": asdict(Patience())})
    logs = (folder / "run").rglob("*.log")
    lines = [line for log in logs for line in log.read_text().splitlines()]
    return [json.loads(line.removeprefix(TOLD)) for line in lines if line.startswith(TOLD)]


def main(rounds: int, idle_s: float, slot_ms: int = 0) -> int:
    """Return 0 when both shares are below their limits."""
    sys.path[:0] = [str(HERE), str(TESTS)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    from clusters import Fleet

    with tempfile.TemporaryDirectory(prefix="ngb-quiet-") as name:
        fleet = Fleet(Path(name), ["a"])
        try:
            fleet.start()
            idle = idle_share(fleet.processes["agent-a"].pid, idle_s)
            slots = run_session(fleet, Path(name), rounds, slot_ms)
        finally:
            fleet.stop()
    print(f"idle agent: {idle:.3%} of one CPU in {idle_s:g} s (limit {IDLE_LIMIT:.1%})")
    share = tell_slots(slots)
    return int(idle > IDLE_LIMIT or share > SLOT_LIMIT)


def tell_slots(slots: list[dict[str, int]]) -> float:
    """Print who spent what inside the slots; return the share of all of them together."""
    wall_ns = sum(slot["wall"] for slot in slots)
    timed_ns = sum(slot["timed"] for slot in slots)
    each_ms = (wall_ns / len(slots) / 1e6, timed_ns / len(slots) / 1e6)
    print(f"{len(slots)} slots of {each_ms[0]:.0f} ms on average, {each_ms[1]:.0f} ms of it timed")
    names = [name for name in slots[0] if name not in ("wall", "timed")]
    total_ns = 0
    for name in names:
        spent = [slot[name] for slot in slots]
        awake = sum(map(bool, spent))
        total_ns += sum(spent)
        each_us = sum(spent) / len(slots) / 1e3
        print(f"  {name}: {sum(spent) / wall_ns:.4%}, {each_us:.1f} us a slot, awake in {awake}")
    print(
        f"  together: {total_ns / wall_ns:.4%} of one CPU, {total_ns / timed_ns:.4%} of what is"
        f" timed (limit {SLOT_LIMIT:.1%})"
    )
    return total_ns / timed_ns


if __name__ == "__main__":
    sys.exit(main(*(map(int, sys.argv[1:]) if len(sys.argv) > 1 else (200, 60))))
