"""Solo blocks: calls that are timed one by one while every other worker is suspended.

Percentiles need calls in an undisturbed row, which interleaved slots cannot give. A block is
of one kind:

- ``tails``: calls back to back, each ended by a sync.
- ``paced``: requests that are due at a fixed rate. A response counts from when it was due, so
  a request that waits behind a slow one is late too (no coordinated omission); service
  counts from when it started. The loop sleeps, then spins for the last half millisecond
  before a request is due: that costs 0.5 ms of one CPU per request (1.5 % of a CPU at 30
  requests/s, all of one above 2000/s), and keeps that CPU awake.
- ``concurrent``: several requests in flight, see ``lanes``.
- ``sustained``: calls back to back for minutes, as means of slots of a second.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from statistics import median
from typing import Any

import numpy as np

from ngraphbench.errors import Unsupported
from ngraphbench.plugin import Program, RunsConcurrently
from ngraphbench.types import Array, Arrays, Json
from ngraphbench.worker.lanes import run_lanes
from ngraphbench.worker.timing import Clock, collector_off

__all__ = [
    "KINDS",
    "ROWS",
    "BlockRequest",
    "BlockResult",
    "Times",
    "lane_outputs",
    "measure_block",
]

ROWS = "block.npz"
"""The file, in the folder that a request names, in which a block's rows travel."""

KINDS = ("tails", "paced", "concurrent", "sustained")

SPIN_NS = 500_000
REWARM_CALLS = 3
REWARM_NS = 20_000_000
OVERLOAD_LAG_NS = 1_000_000_000
OVERLOAD_PERIODS = 20
OVERLOAD_LOOK = 32
OVERLOAD_LOOK_NS = 500_000_000


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """One block: its kind, how long, and what the kind needs.

    ``rate_per_s`` is that of ``paced``, ``in_flight`` that of ``concurrent``, ``slot_s`` the
    length of ``sustained``'s slots. ``calls_max`` ends a block of very short calls early.
    """

    kind: str
    seconds: float
    rate_per_s: float = 0.0
    in_flight: int = 0
    slot_s: float = 1.0
    calls_max: int = 20_000

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BlockRequest:
        """Return the request; keys that are absent or null keep their defaults.

        Raises ValueError for an unknown kind, or one that lacks its rate or number.
        """
        given = {key: data[key] for key in _REQUEST_KEYS if data.get(key) is not None}
        asked = cls(**given)
        if asked.kind not in KINDS:
            raise ValueError(f"A block is {', '.join(KINDS)}, not {asked.kind!r}.")
        if asked.kind == "paced" and not asked.rate_per_s > 0:
            raise ValueError("A paced block needs a rate_per_s above zero.")
        if asked.kind == "concurrent" and asked.in_flight < 1:
            raise ValueError("A concurrent block needs in_flight of at least 1.")
        return asked

    def to_json(self) -> Json:
        return asdict(self)


_REQUEST_KEYS = tuple(field.name for field in fields(BlockRequest))


@dataclass(frozen=True, slots=True)
class Times:
    """A clock and how to sleep by it: arguments, so that tests need not wait."""

    now: Clock = time.perf_counter_ns
    sleep: Callable[[float], None] = time.sleep

    def wait_until(self, due_ns: int) -> None:
        """Return at ``due_ns``, or at once when that is past."""
        left_ns = due_ns - self.now()
        if left_ns > SPIN_NS:
            self.sleep((left_ns - SPIN_NS) / 1e9)
        while self.now() < due_ns:
            pass


@dataclass(slots=True)
class BlockResult:
    """What one block gave: a row per request, or per slot of ``sustained``.

    ``due_ns``, ``start_ns`` and ``end_ns`` count from the block's start; ``calls`` is 1 but
    for slots. ``stopped`` names why it ended early: ``overloaded`` or nothing. ``outputs``
    holds what each lane computed last.
    """

    due_ns: array[int] = field(default_factory=lambda: array("q"))
    start_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    calls: array[int] = field(default_factory=lambda: array("q"))
    stopped: str = ""
    note: str = ""
    window_ns: int = 0
    cpu_ns: int = 0
    outputs: list[Arrays] = field(default_factory=list)

    def add(self, due_ns: int, start_ns: int, end_ns: int, calls: int = 1) -> None:
        self.due_ns.append(due_ns)
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.calls.append(calls)

    def columns(self) -> dict[str, Array]:
        """Return the rows as int64 arrays by name."""
        names = ("due_ns", "start_ns", "end_ns", "calls")
        return {name: np.array(getattr(self, name), dtype=np.int64) for name in names}

    def reply(self) -> Json:
        """Return what the protocol answers; the rows travel by file."""
        return {
            "requests": int(sum(self.calls)),
            "stopped": self.stopped,
            "note": self.note,
            "window_ns": self.window_ns,
            "cpu_ns": self.cpu_ns,
            "lanes": len(self.outputs),
        }


def lane_outputs(place: int) -> str:
    """Return the name of the file that holds what one lane of a concurrent block computed."""
    return f"lane-{place}.npz"


def measure_block(
    program: Program,
    request: Mapping[str, Any],
    *,
    inputs: Sequence[Arrays] = (),
    times: Times | None = None,
) -> BlockResult:
    """Return one block of ``program``, which must be loaded.

    ``inputs`` are the input sets that the lanes of a concurrent block share out in turn.
    Raises Unsupported where the program cannot hold requests in flight, ValueError for a
    request that makes no sense; whatever the program raises passes through.
    """
    asked, times = BlockRequest.from_json(request), times or Times()
    if asked.kind == "concurrent":
        return _concurrent(program, asked, inputs, times)
    loops = {"tails": _tails, "paced": _paced, "sustained": _sustained}
    result = BlockResult()
    with collector_off():
        _rewarm(program, times.now)
        cpu_ns = time.process_time_ns()
        loops[asked.kind](program, asked, result, times)
        result.cpu_ns = time.process_time_ns() - cpu_ns
    return result


def _rewarm(program: Program, now: Clock) -> None:
    began, done = now(), 0
    while done < REWARM_CALLS or now() - began < REWARM_NS:
        program.run()
        program.sync()
        done += 1
        if now() - began >= 10 * REWARM_NS:
            return


def _tails(program: Program, asked: BlockRequest, result: BlockResult, times: Times) -> None:
    run, sync, now, add = program.run, program.sync, times.now, result.add
    began = now()
    end, stop = began, began + round(asked.seconds * 1e9)
    calls = 0
    while end < stop and calls < asked.calls_max:
        start = now()
        run()
        sync()
        end = now()
        add(start - began, start - began, end - began)
        calls += 1
    result.window_ns = end - began


def _paced(program: Program, asked: BlockRequest, result: BlockResult, times: Times) -> None:
    run, sync, now, add = program.run, program.sync, times.now, result.add
    period_ns = 1e9 / asked.rate_per_s
    count = max(1, min(asked.calls_max, round(asked.seconds * asked.rate_per_s)))
    # The first request is due soon, not now: it must be waited for like the others.
    began = now() + round(min(period_ns, 1e7))
    end = looked = began
    for index in range(count):
        due = began + round(index * period_ns)
        times.wait_until(due)
        start = now()
        run()
        sync()
        end = now()
        add(due - began, start - began, end - began)
        if index % OVERLOAD_LOOK == OVERLOAD_LOOK - 1 or end - looked > OVERLOAD_LOOK_NS:
            looked = end
            if _overloaded(result, period_ns):
                result.stopped = "overloaded"
                break
    result.window_ns = end - began


def _overloaded(result: BlockResult, period_ns: float) -> bool:
    """Return whether the queue only grows: far behind, and most calls longer than the period.

    A single long stall, after which the queue is worked off, is no overload.
    """
    lag_ns = result.start_ns[-1] - result.due_ns[-1]
    if lag_ns < max(OVERLOAD_LAG_NS, OVERLOAD_PERIODS * period_ns):
        return False
    rows = zip(result.start_ns, result.end_ns, strict=True)
    return median(end - start for start, end in rows) > period_ns


def _sustained(program: Program, asked: BlockRequest, result: BlockResult, times: Times) -> None:
    run, sync, now = program.run, program.sync, times.now
    slot_ns = round(asked.slot_s * 1e9)
    began = now()
    end, stop = began, began + round(asked.seconds * 1e9)
    while end < stop:
        start, calls = now(), 0
        due = min(start + slot_ns, stop)
        while True:
            run()
            sync()
            end = now()
            calls += 1
            if end >= due:
                break
        result.add(start - began, start - began, end - began, calls)
    result.window_ns = end - began


def _concurrent(
    program: Program, asked: BlockRequest, inputs: Sequence[Arrays], times: Times
) -> BlockResult:
    if not isinstance(program, RunsConcurrently):
        raise Unsupported(
            "This program holds one request at a time.",
            reason="concurrent",
            hint="Its plugin has no RunsConcurrently.",
        )
    lanes = list(program.lanes(asked.in_flight))
    result = BlockResult(note=str(getattr(program, "lanes_note", "")))
    try:
        if len(lanes) != asked.in_flight:
            raise Unsupported(
                f"{asked.in_flight} requests in flight were asked for, the program gives"
                f" {len(lanes)}.",
                reason="concurrent",
            )
        for place, lane in enumerate(lanes):
            lane.load(inputs[place % len(inputs)])
        with collector_off():
            cpu_ns = time.process_time_ns()
            flight = run_lanes(
                lanes,
                window_ns=round(asked.seconds * 1e9),
                calls_max=asked.calls_max,
                now=times.now,
            )
            result.cpu_ns = time.process_time_ns() - cpu_ns
        for start_ns, end_ns in flight.rows:
            result.add(start_ns, start_ns, end_ns)
        result.window_ns = flight.window_ns
        result.outputs = [dict(lane.outputs()) for lane in lanes]
    finally:
        for lane in lanes:
            lane.close()
    return result
