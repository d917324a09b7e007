"""The timed loops: the only place that holds a clock to a program.

A slot is re-warmed untimed, then timed in sub-batches of calls; its value is the median of
the sub-batches' means. The loops read the clock once per sub-batch, allocate nothing and
run with Python's garbage collector off.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from ngraphbench.plugin import Program
from ngraphbench.types import Json

__all__ = [
    "Clock",
    "SlotRequest",
    "clock_resolution_ns",
    "collector_off",
    "measure_slot",
    "rss_bytes",
    "time_calls",
]

Clock: TypeAlias = Callable[[], int]
TimedCalls: TypeAlias = Callable[[Program, int, Clock], int]

GROUPS_WANTED = 5
RESOLUTIONS_PER_GROUP = 1000
UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """How to time one slot; a limit of 0 or None is no limit.

    ``budget_ns`` bounds the whole slot with its re-warm, as far as whole calls allow.
    """

    mode: str = "sync"
    slot_ns: int = 100_000_000
    calls_min: int = 3
    calls_max: int = UNLIMITED
    rewarm_calls: int = 3
    group_ns: int = 10_000_000
    budget_ns: int = UNLIMITED

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SlotRequest:
        """Return the request; keys that are absent or null keep their defaults.

        Raises ValueError for an unknown mode.
        """
        given = {key: data[key] for key in _REQUEST_KEYS if data.get(key) is not None}
        for key in ("calls_max", "budget_ns"):
            given[key] = given.get(key) or UNLIMITED
        if given.get("mode", "sync") not in ("sync", "queued"):
            raise ValueError(f"A slot's mode is sync or queued, not {given['mode']!r}.")
        return cls(**given)

    def to_json(self) -> Json:
        return asdict(self)


_REQUEST_KEYS = tuple(field.name for field in fields(SlotRequest))


def measure_slot(
    program: Program,
    request: Mapping[str, Any],
    *,
    now: Clock = time.perf_counter_ns,
) -> Json:
    """Return one slot of ``program``, as the protocol's ``slot`` answers it.

    ``slot_ns`` is the wall time of all timed calls, ``call_ns`` the median of the means in
    ``sub_ns``, ``first_ns`` the first, untimed call after idling; ``cpu_ns`` (all threads)
    and ``nivcsw`` cover the timed part. Whatever the program raises passes through.
    """
    asked = SlotRequest.from_json(request)
    with collector_off():
        return _slot(program, asked, now)


@contextmanager
def collector_off() -> Iterator[None]:
    """Keep Python's garbage collector off meanwhile."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def time_calls(program: Program, calls: int, *, now: Clock = time.perf_counter_ns) -> list[int]:
    """Return the wall ns of each of ``calls`` calls, each ended by a sync."""
    run, sync = program.run, program.sync
    times = [0] * calls
    with collector_off():
        for index in range(calls):
            start = now()
            run()
            sync()
            times[index] = now() - start
    return times


@lru_cache(maxsize=8)
def clock_resolution_ns(now: Clock = time.perf_counter_ns) -> int:
    """Return the smallest step seen of a clock, in ns; that of perf_counter if it stands still."""
    smallest = UNLIMITED
    last = now()
    for _ in range(1000):
        read = now()
        if read > last:
            smallest = min(smallest, read - last)
        last = read
    if smallest == UNLIMITED:
        return max(1, round(time.get_clock_info("perf_counter").resolution * 1e9))
    return smallest


def rss_bytes() -> int:
    """Return this process's resident memory in bytes, 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def _sync_calls(program: Program, calls: int, now: Clock) -> int:
    run, sync = program.run, program.sync
    start = now()
    for _ in repeat(None, calls):
        run()
        sync()
    return now() - start


def _queued_calls(program: Program, calls: int, now: Clock) -> int:
    run, sync = program.run, program.sync
    start = now()
    for _ in repeat(None, calls):
        run()
    sync()
    return now() - start


def _slot(program: Program, asked: SlotRequest, now: Clock) -> Json:
    timed: TimedCalls = _sync_calls if asked.mode == "sync" else _queued_calls
    floor_ns = RESOLUTIONS_PER_GROUP * clock_resolution_ns(now)
    began = now()
    first_ns = _sync_calls(program, 1, now)
    call_ns = _rewarm(program, asked, timed=timed, first_ns=first_ns, began=began, now=now)

    calls = slot_ns = 0
    sub_ns: list[float] = []
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    cpu_ns = time.process_time_ns()
    while slot_ns < asked.slot_ns or calls < asked.calls_min:
        left = min((asked.budget_ns - (now() - began)) // call_ns, asked.calls_max - calls)
        if left < 1 and calls:
            break
        size, goal_ns = _group_plan(asked, call_ns=call_ns, floor_ns=floor_ns)
        done, spent_ns = _group(
            program, timed=timed, size=size, goal_ns=goal_ns, limit=max(1, left), now=now
        )
        sub_ns.append(spent_ns / done)
        calls += done
        slot_ns += spent_ns
        call_ns = max(1, spent_ns // done)
    cpu_ns = time.process_time_ns() - cpu_ns
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - switches
    return {
        "calls": calls,
        "slot_ns": slot_ns,
        "call_ns": median(sub_ns),
        "first_ns": first_ns,
        "cpu_ns": cpu_ns,
        "nivcsw": switches,
        "sub_ns": sub_ns,
        "rss_bytes": rss_bytes(),
    }


def _rewarm(
    program: Program,
    asked: SlotRequest,
    *,
    timed: TimedCalls,
    first_ns: int,
    began: int,
    now: Clock,
) -> int:
    # Calls of microseconds need more than a few of them to wake caches and clocks, so the
    # re-warm also lasts one group; doubling makes its last part long enough to calibrate on.
    done, size, call_ns = 1, 1, max(1, first_ns)
    spent_ns = now() - began
    while done < asked.rewarm_calls or spent_ns < asked.group_ns:
        wanted = max(asked.rewarm_calls - done, -(-(asked.group_ns - spent_ns) // call_ns))
        size = max(1, min(size, wanted))
        if spent_ns + (size + 1) * call_ns > asked.budget_ns:
            break
        call_ns = max(1, timed(program, size, now) // size)
        done += size
        size *= 2
        spent_ns = now() - began
    return call_ns


def _group_plan(asked: SlotRequest, *, call_ns: int, floor_ns: int) -> tuple[int, int]:
    """Return how many calls make a sub-batch, and how long it must last at least (ns)."""
    goal_ns = max(asked.group_ns, floor_ns)
    size = -(-goal_ns // call_ns)
    if GROUPS_WANTED * size * call_ns > asked.slot_ns:
        fewest = -(-floor_ns // call_ns)
        size = max(1, fewest, asked.slot_ns // (GROUPS_WANTED * call_ns))
        goal_ns = max(floor_ns, size * call_ns // 2)
    return size, goal_ns


def _group(
    program: Program, *, timed: TimedCalls, size: int, goal_ns: int, limit: int, now: Clock
) -> tuple[int, int]:
    """Return (calls, ns) of one sub-batch: ``size`` calls, more if they were too short."""
    size = min(size, limit)
    spent_ns = timed(program, size, now)
    done = size
    while spent_ns < goal_ns and done < limit:
        # At most eight times as many at once: the estimate may rest on a single call.
        more = -(-(goal_ns - spent_ns) * done // spent_ns) if spent_ns > 0 else done
        more = min(max(1, more), 8 * done, limit - done)
        spent_ns += timed(program, more, now)
        done += more
    return done, spent_ns
