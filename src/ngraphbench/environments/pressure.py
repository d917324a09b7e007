"""Counters of the kernel that tell whether something else wanted the CPU, read around slots.

Each is None where the system does not keep it; none of them needs a privilege.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ngraphbench.environments.systemfiles import ROOT, read_text, throttled_count
from ngraphbench.types import Json

__all__ = ["PRESSURE_LIMIT", "STEAL_LIMIT", "Counters", "pressure_flags", "read_counters"]

PRESSURE_LIMIT = 0.20
"""Share of wall time in which some task waited for a CPU (PSI), above which it is flagged."""

STEAL_LIMIT = 0.02
"""Share of CPU time that a hypervisor took away, above which it is flagged."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since boot: stalled and throttled time in us, ticks, and the wall clock in ns."""

    wall_ns: int
    stalled_us: int | None = None
    stolen_ticks: int | None = None
    all_ticks: int | None = None
    throttled: int | None = None


def read_counters(wall_ns: int, *, root: Path = ROOT) -> Counters:
    """Return the counters now; ``wall_ns`` is the reading of the clock that goes with them."""
    stolen, ticks = _ticks(root)
    return Counters(
        wall_ns=wall_ns,
        stalled_us=_stalled_us(root),
        stolen_ticks=stolen,
        all_ticks=ticks,
        throttled=throttled_count(root=root),
    )


def pressure_flags(before: Counters, after: Counters) -> list[Json]:
    """Return the flags that the difference of two readings gives; empty when all was quiet."""
    found: list[Json] = []
    wall_us = (after.wall_ns - before.wall_ns) / 1000
    stalled = _grown(before.stalled_us, after.stalled_us)
    if stalled is not None and wall_us > 0 and stalled / wall_us > PRESSURE_LIMIT:
        share = min(1.0, stalled / wall_us)
        text = f"tasks waited for a CPU in {share:.0%} of the time: other work ran here"
        found.append({"flag": "interference", "detail": text})
    stolen = _grown(before.stolen_ticks, after.stolen_ticks)
    ticks = _grown(before.all_ticks, after.all_ticks)
    if stolen is not None and ticks and stolen / ticks > STEAL_LIMIT:
        text = f"the hypervisor took {stolen / ticks:.0%} of the CPU time"
        found.append({"flag": "steal", "detail": text})
    throttled = _grown(before.throttled, after.throttled)
    if throttled:
        text = f"the CPU quota stopped this group {throttled} times; use fewer threads"
        found.append({"flag": "quota", "detail": text})
    return found


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _stalled_us(root: Path) -> int | None:
    match = re.search(
        r"^some .*total=(\d+)", read_text(root / "proc/pressure/cpu") or "", re.MULTILINE
    )
    return int(match[1]) if match else None


def _ticks(root: Path) -> tuple[int | None, int | None]:
    """Return stolen and all ticks of the first line of /proc/stat."""
    fields = (read_text(root / "proc/stat") or "").partition("\n")[0].split()[1:]
    if len(fields) < 8:
        return None, None
    ticks = [int(field) for field in fields[:8]]
    # Guest time is counted in user time already, so the fields after steal are left out.
    return ticks[7], sum(ticks)
