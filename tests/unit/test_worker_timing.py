from __future__ import annotations

import gc
import math

import pytest

from ngraphbench.plugin import Program
from ngraphbench.worker.timing import SlotRequest, clock_resolution_ns, measure_slot, time_calls

MS = 1_000_000
US = 1_000


class Clock:
    """A clock that moves when the program runs, and ``tick_ns`` at each read."""

    def __init__(self, tick_ns: int = 1) -> None:
        self.ns = 0
        self.reads = 0
        self.tick_ns = tick_ns

    def __call__(self) -> int:
        self.ns += self.tick_ns
        self.reads += 1
        return self.ns


class FakeProgram(Program):
    """Call i takes ``cost_ns(i)``; ``sync_ns`` is the price of each sync."""

    def __init__(self, clock: Clock, cost_ns, sync_ns: int = 0) -> None:
        self.clock = clock
        self.cost_ns = cost_ns if callable(cost_ns) else lambda _: cost_ns
        self.sync_ns = sync_ns
        self.calls = 0
        self.syncs = 0
        self.collected = False

    def load(self, inputs):
        raise AssertionError("A slot runs, and does nothing else.")

    def run(self) -> None:
        self.clock.ns += self.cost_ns(self.calls)
        self.calls += 1
        self.collected |= gc.isenabled()

    def sync(self) -> None:
        self.clock.ns += self.sync_ns
        self.syncs += 1

    def outputs(self):
        raise AssertionError("A slot runs, and does nothing else.")

    def close(self) -> None:
        raise AssertionError("A slot runs, and does nothing else.")


def slot(cost_ns, *, sync_ns: int = 0, tick_ns: int = 1, **request):
    clock = Clock(tick_ns)
    program = FakeProgram(clock, cost_ns, sync_ns)
    asked = {"mode": "sync", "slot_ns": 100 * MS, "calls_min": 3, "rewarm_calls": 3} | request
    return measure_slot(program, asked, now=clock), program


@pytest.mark.parametrize("cost_ns", [20 * US, 300 * US, 2 * MS, 7 * MS, 9 * MS, 15 * MS])
def test_a_slot_is_long_enough_and_parted(cost_ns):
    got, _ = slot(cost_ns)
    assert got["slot_ns"] >= 100 * MS
    assert got["slot_ns"] < 100 * MS + max(2 * cost_ns, 11 * MS)
    assert got["calls"] == pytest.approx(got["slot_ns"] / cost_ns, abs=1)
    assert len(got["sub_ns"]) >= 5
    assert got["call_ns"] == pytest.approx(cost_ns, rel=1e-3)


def test_groups_last_ten_milliseconds():
    got, _ = slot(1 * MS)
    assert len(got["sub_ns"]) == 10


def test_long_calls_stand_alone():
    got, program = slot(60 * MS)
    assert got["calls"] == 3 and len(got["sub_ns"]) == 3
    assert program.calls == 6


def test_one_clock_read_per_group():
    clock = Clock()
    program = FakeProgram(clock, 1 * US)
    clock_resolution_ns(clock)
    before = clock.reads
    got = measure_slot(program, {"slot_ns": 100 * MS, "calls_min": 3}, now=clock)
    assert got["calls"] > 90_000
    assert clock.reads - before < 10 * len(got["sub_ns"]) + 60


def test_the_first_call_is_kept_apart():
    got, _ = slot(lambda i: 50 * MS if i == 0 else 1 * MS)
    assert got["first_ns"] == pytest.approx(50 * MS, rel=1e-6)
    assert got["call_ns"] == pytest.approx(1 * MS, rel=1e-3)


def test_slow_warm_up_is_not_timed():
    got, _ = slot(lambda i: 5 * MS if i < 3 else 1 * MS, rewarm_calls=3)
    assert max(got["sub_ns"]) == pytest.approx(1 * MS, rel=1e-3)


def test_an_outlier_does_not_move_the_value():
    got, program = slot(lambda i: 200 * MS if i == 40 else 1 * MS, slot_ns=300 * MS)
    assert program.calls > 60
    assert got["call_ns"] == pytest.approx(1 * MS, rel=1e-3)


def test_calibration_recovers_from_a_slow_first_call():
    got, _ = slot(lambda i: 40 * MS if i == 0 else 10 * US, rewarm_calls=1)
    assert len(got["sub_ns"]) <= 11
    assert got["slot_ns"] >= 100 * MS


def test_sync_mode_syncs_each_call_and_queued_once_per_group():
    got, program = slot(100 * US, sync_ns=50 * US)
    assert program.syncs == program.calls
    assert got["call_ns"] == pytest.approx(150 * US, rel=1e-3)
    got, program = slot(100 * US, sync_ns=50 * US, mode="queued")
    assert program.syncs < program.calls / 20
    assert got["call_ns"] == pytest.approx(100 * US, rel=0.02)


def test_the_budget_wins():
    got, program = slot(400 * MS, budget_ns=1000 * MS, calls_min=10)
    assert got["calls"] == 1 and program.calls == 2
    got, program = slot(5000 * MS, budget_ns=1 * MS, calls_min=3)
    assert got["calls"] == 1 and program.calls == 2


def test_calls_max_is_obeyed():
    got, _ = slot(1 * MS, calls_max=7)
    assert got["calls"] == 7


def test_a_coarse_timer_makes_longer_groups():
    got, _ = slot(100 * US, tick_ns=30 * US, slot_ns=1000 * MS)
    assert all(sub > 0 for sub in got["sub_ns"])
    assert got["slot_ns"] / len(got["sub_ns"]) >= 30 * MS


def test_a_clock_that_stands_still_is_survived():
    clock = Clock(tick_ns=0)
    assert clock_resolution_ns(clock) >= 1
    got = measure_slot(FakeProgram(clock, 1 * MS), {"slot_ns": 20 * MS}, now=clock)
    assert got["calls"] >= 20


def test_the_collector_is_off_and_comes_back():
    assert gc.isenabled()
    _, program = slot(1 * MS)
    assert gc.isenabled() and not program.collected


def test_what_a_program_raises_passes_and_restores():
    def fail(call):
        if call == 5:
            raise ValueError("broken")
        return 1 * MS

    with pytest.raises(ValueError, match="broken"):
        slot(fail)
    assert gc.isenabled()


def test_the_real_clock():
    class Spin(FakeProgram):
        def run(self) -> None:
            math.factorial(200)

    program = Spin(Clock(), 0)
    got = measure_slot(program, {"slot_ns": 5 * MS, "group_ns": 1 * MS})
    assert got["slot_ns"] >= 5 * MS and got["cpu_ns"] > 0 and got["rss_bytes"] > 1 << 20
    assert got["nivcsw"] >= 0
    times = time_calls(program, 4)
    assert len(times) == 4 and min(times) > 0


def test_requests_are_checked():
    assert SlotRequest.from_json({"calls_max": 0, "budget_ns": None}) == SlotRequest()
    with pytest.raises(ValueError, match="sync or queued"):
        SlotRequest.from_json({"mode": "paced"})
