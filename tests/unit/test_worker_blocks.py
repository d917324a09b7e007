"""Solo blocks on a clock that moves only when the program runs or the loop sleeps."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from ngraphbench.errors import RunFailed, Unsupported
from ngraphbench.plugin import Program
from ngraphbench.types import Arrays
from ngraphbench.worker.blocks import BlockRequest, BlockResult, Times, measure_block
from ngraphbench.worker.lanes import run_lanes

MS = 1_000_000


class Time:
    """Virtual time; a sleep lasts ``jitter_ns`` longer than asked, a look at the clock 5 us."""

    def __init__(self, jitter_ns: Callable[[], int] = lambda: 0) -> None:
        self.ns = 0
        self.slept_ns = 0
        self.jitter_ns = jitter_ns

    def now(self) -> int:
        self.ns += 5000
        return self.ns

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        spent = round(seconds * 1e9) + self.jitter_ns()
        self.slept_ns += spent
        self.ns += spent

    @property
    def times(self) -> Times:
        return Times(self.now, self.sleep)


class Timed(Program):
    """Call i takes ``cost_ns(i)``, counted from the first after the re-warm of 20 calls."""

    def __init__(self, time: Time, cost_ns: Callable[[int], int]) -> None:
        self.time = time
        self.cost_ns = cost_ns
        self.calls = 0
        self.syncs = 0
        self.collected = False

    def load(self, inputs: Arrays) -> None: ...

    def run(self) -> None:
        self.time.ns += self.cost_ns(self.calls)
        self.calls += 1
        self.collected |= gc.isenabled()

    def sync(self) -> None:
        self.syncs += 1

    def outputs(self) -> Arrays:
        return {}

    def close(self) -> None: ...


@dataclass
class Warm:
    """Cost of calls once the re-warm, of which each call takes 2 ms, is over."""

    cost_ns: Callable[[int], int]
    rewarm: int = 10

    def __call__(self, call: int) -> int:
        return 2 * MS if call < self.rewarm else self.cost_ns(call - self.rewarm)


def measured(
    cost_ns: Callable[[int], int], *, time: Time | None = None, **request: object
) -> tuple[BlockResult, Timed, Time]:
    time = time or Time()
    program = Timed(time, Warm(cost_ns))
    return measure_block(program, request, times=time.times), program, time


def response(result: BlockResult) -> np.ndarray:
    rows = result.columns()
    return (rows["end_ns"] - rows["due_ns"]) / MS


def service(result: BlockResult) -> np.ndarray:
    rows = result.columns()
    return (rows["end_ns"] - rows["start_ns"]) / MS


def test_tails_are_single_calls_for_a_time() -> None:
    result, program, _ = measured(
        lambda i: 50 * MS if i == 7 else 10 * MS, kind="tails", seconds=1.0
    )
    assert program.syncs == program.calls
    assert not program.collected and gc.isenabled()
    assert len(service(result)) == 96
    assert service(result)[7] == pytest.approx(50, abs=0.02)
    assert np.median(service(result)) == pytest.approx(10, abs=0.02)
    assert result.window_ns == pytest.approx(1e9, rel=0.02)
    assert result.reply()["requests"] == 96


def test_tails_of_tiny_calls_end_early() -> None:
    result, _, _ = measured(lambda i: 1000, kind="tails", seconds=1.0, calls_max=500)
    assert len(service(result)) == 500


def test_paced_requests_start_when_they_are_due() -> None:
    result, _, time = measured(lambda i: 3 * MS, kind="paced", seconds=2.0, rate_per_s=100.0)
    rows = result.columns()
    assert len(rows["due_ns"]) == 200
    assert np.all(np.diff(rows["due_ns"]) == 10 * MS)
    late = rows["start_ns"] - rows["due_ns"]
    assert late.min() >= 0 and late.max() < 20_000
    # The last half millisecond before each is spun, the rest slept.
    assert time.slept_ns == pytest.approx(200 * 6.5 * MS, rel=0.05)
    assert result.stopped == ""


def test_a_request_that_waits_counts_from_when_it_was_due() -> None:
    """A stall of 95 ms at 100/s makes nine requests late, not one."""
    result, _, _ = measured(
        lambda i: 95 * MS if i == 50 else 2 * MS, kind="paced", seconds=2.0, rate_per_s=100.0
    )
    times = response(result)
    assert len(times) == 200
    assert times[50] == pytest.approx(95, abs=0.1)
    # Each of the next ones is due 10 ms later and done 2 ms after the one before.
    expected = [95 - 8 * k for k in range(1, 12)]
    assert times[51:62] == pytest.approx(expected, abs=0.3)
    assert np.all(times[63:] < 2.1)
    assert service(result)[51] == pytest.approx(2, abs=0.02)
    assert np.sum(times > 10) == 11
    assert result.stopped == ""


def test_overload_ends_the_block_early() -> None:
    result, program, _ = measured(lambda i: 50 * MS, kind="paced", seconds=60.0, rate_per_s=30.0)
    assert result.stopped == "overloaded"
    rows = result.columns()
    lag_s = (rows["start_ns"][-1] - rows["due_ns"][-1]) / 1e9
    assert 1.0 < lag_s < 2.0
    assert program.calls < 200


@pytest.mark.parametrize("rate", [30.0, 1000.0])
def test_a_long_stall_is_no_overload(rate: float) -> None:
    result, _, _ = measured(
        lambda i: 3000 * MS if i == 20 else MS // 10,
        kind="paced",
        seconds=10.0,
        rate_per_s=rate,
    )
    assert result.stopped == ""
    assert len(response(result)) == 10 * rate
    assert response(result)[-1] < 1


def test_late_wakers_are_seen_and_do_not_add_up() -> None:
    rng = np.random.default_rng(1)
    time = Time(lambda: int(rng.exponential(2 * MS)))
    result, _, _ = measured(
        lambda i: 3 * MS, time=time, kind="paced", seconds=4.0, rate_per_s=100.0
    )
    rows = result.columns()
    late_ms = (rows["start_ns"] - rows["due_ns"]) / MS
    assert np.mean(late_ms > 0.5) > 0.3
    assert np.all(response(result) == pytest.approx(late_ms + 3, abs=0.02))
    # The schedule is absolute: lateness does not push later requests back.
    assert rows["due_ns"][-1] == 399 * 10 * MS


def test_sustained_gives_slot_means() -> None:
    result, _, _ = measured(
        lambda i: (10 if i < 300 else 20) * MS, kind="sustained", seconds=9.0, slot_s=0.5
    )
    rows = result.columns()
    assert len(rows["calls"]) == 18
    means = (rows["end_ns"] - rows["start_ns"]) / rows["calls"] / MS
    assert means[:6] == pytest.approx(10, abs=0.02)
    assert means[-11:] == pytest.approx(20, abs=0.02)
    assert result.reply()["requests"] == sum(rows["calls"])


def test_what_a_program_raises_passes_and_the_collector_comes_back() -> None:
    def fail(call: int) -> int:
        raise RunFailed("broken", reason="run")

    with pytest.raises(RunFailed, match="broken"):
        measured(fail, kind="tails", seconds=1.0)
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"kind": "burst", "seconds": 1}, "tails, paced"),
        ({"kind": "paced", "seconds": 1}, "rate_per_s"),
        ({"kind": "concurrent", "seconds": 1}, "in_flight"),
    ],
)
def test_requests_are_checked(request_: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        BlockRequest.from_json(request_)


def test_a_program_without_lanes_is_unsupported() -> None:
    with pytest.raises(Unsupported) as caught:
        measured(lambda i: MS, kind="concurrent", seconds=1.0, in_flight=2)
    assert caught.value.reason == "concurrent"


class Lane(Timed):
    """A lane with a clock of its own thread: the shared one must only move forwards."""

    def __init__(self, time: Time, fail_at: int = -1) -> None:
        super().__init__(time, lambda i: MS)
        self.fail_at = fail_at
        self.closed = False
        self.loaded: Arrays = {}

    def load(self, inputs: Arrays) -> None:
        self.loaded = inputs

    def run(self) -> None:
        super().run()
        if self.calls == self.fail_at:
            raise SystemExit(3)

    def outputs(self) -> Arrays:
        return self.loaded

    def close(self) -> None:
        self.closed = True


class Laned(Timed):
    lanes_note = "a note"

    def __init__(self, time: Time, given: int | None = None) -> None:
        super().__init__(time, lambda i: MS)
        self.given = given
        self.made: list[Lane] = []

    def lanes(self, count: int) -> list[Lane]:
        self.made = [Lane(self.time) for _ in range(self.given or count)]
        return self.made


def test_lanes_are_loaded_run_read_and_closed() -> None:
    time = Time()
    program = Laned(time)
    sets: list[Arrays] = [{"x": np.zeros(1)}, {"x": np.ones(1)}]
    request = {"kind": "concurrent", "seconds": 0.2, "in_flight": 3}
    result = measure_block(program, request, inputs=sets, times=time.times)
    assert [out["x"][0] for out in result.outputs] == [0, 1, 0]
    assert all(lane.closed for lane in program.made)
    # Three warm-up calls of each lane are not among the requests.
    assert sum(lane.calls for lane in program.made) == len(service(result)) + 9
    assert result.reply()["lanes"] == 3 and result.note == "a note"
    assert result.window_ns == 200 * MS
    rows = result.columns()
    assert np.all(np.diff(rows["start_ns"]) >= 0) and np.all(rows["start_ns"] < 200 * MS)


def test_fewer_lanes_than_asked_for_are_unsupported() -> None:
    time = Time()
    program = Laned(time, given=1)
    with pytest.raises(Unsupported, match="2 requests in flight"):
        measure_block(
            program,
            {"kind": "concurrent", "seconds": 1, "in_flight": 2},
            inputs=[{}],
            times=time.times,
        )
    assert all(lane.closed for lane in program.made)


@pytest.mark.parametrize("fail_at", [2, 10])
def test_what_one_lane_raises_is_raised_when_all_have_ended(fail_at: int) -> None:
    time = Time()
    lanes = [Lane(time), Lane(time, fail_at=fail_at)]
    with pytest.raises(SystemExit):
        run_lanes(lanes, window_ns=50 * MS, calls_max=1000, now=time.now)


def test_a_lane_makes_its_share_of_calls_at_most() -> None:
    time = Time()
    lanes = [Lane(time), Lane(time)]
    flight = run_lanes(lanes, window_ns=10**12, calls_max=20, now=time.now)
    assert [lane.calls for lane in lanes] == [13, 13]
    assert flight.window_ns <= max(end for _, end in flight.rows) < 10**12
