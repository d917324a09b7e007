"""What a row of sensor readings says: was this host throttled, and how warm was it.

Pure functions. Nothing is ever discarded for it: a small device is throttled in use, too.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ngraphbench.environments.nvml import REASONS
from ngraphbench.environments.thermal import Reading
from ngraphbench.types import Json

__all__ = ["Row", "describe", "frequencies_khz", "throttle_flags"]

FREQUENCY_SHARE = 0.90
"""Median frequency at the end over that at the start, below which it is flagged."""

SLOPE_FREQUENCY_SHARE = 0.97
SLOPE_RISE_C = 3.0
"""Warmer by this much while the frequency fell below that share of its start."""

READINGS_MIN = 6
PI_NOW = {0: "under-voltage", 1: "frequency capped", 2: "throttled", 3: "soft temperature limit"}
PI_SINCE_BOOT = 16

Row = tuple[float | None, float | None]
"""Frequency in kHz and temperature in degrees Celsius, once a round."""


def throttle_flags(readings: Sequence[Reading], *, source: str | None) -> list[Json]:
    """Return the flag ``throttled`` with all that says so; empty when nothing does.

    ``readings`` are those of one launch, oldest first; ``source`` is where frequencies come
    from.
    """
    if len(readings) < 2:
        return []
    rows = [(reading.frequency_khz, reading.temperature_c) for reading in readings]
    told = [*_counted(readings), *_slower(rows, source), *_pi(readings), *_gpu(readings)]
    alerts = {name for reading in readings for name in reading.alerts}
    told += [f"{name} was on" for name in sorted(alerts)]
    return [{"flag": "throttled", "detail": "; ".join(told)}] if told else []


def frequencies_khz(rows: Sequence[Row], source: str | None) -> list[float]:
    """Return the frequencies that are evidence: none where ``cpuinfo`` never moved.

    Virtual machines show the frequency they were started with, whatever the host does.
    """
    found = [khz for khz, _ in rows if khz is not None]
    return [] if source == "cpuinfo" and len(set(found)) < 2 else found


def describe(rows: Sequence[Row], *, source: str | None) -> Json:
    """Return frequency at the start and end, and lowest and highest temperature, or None."""
    clocks = frequencies_khz(rows, source)
    warmth = [celsius for _, celsius in rows if celsius is not None]
    start, end = _ends(clocks) if clocks else (0.0, 0.0)
    return {
        "frequency_khz": {"start": start, "end": end} if clocks else None,
        "frequency_source": source if clocks else None,
        "temperature_c": {"min": min(warmth), "max": max(warmth)} if warmth else None,
    }


def _ends(values: Sequence[float]) -> tuple[float, float]:
    third = max(1, len(values) // 3)
    return statistics.median(values[:third]), statistics.median(values[-third:])


def _counted(readings: Sequence[Reading]) -> list[str]:
    counts = [r.throttles for r in readings if r.throttles is not None]
    grown = counts[-1] - counts[0] if counts else 0
    return [f"the throttle counters grew by {grown}"] if grown > 0 else []


def _slower(rows: Sequence[Row], source: str | None) -> list[str]:
    clocks = frequencies_khz(rows, source)
    if len(clocks) < READINGS_MIN:
        return []
    start, end = _ends(clocks)
    share = end / start if start else 1.0
    seen = f"the frequency fell from {start / 1e6:.2f} to {end / 1e6:.2f} GHz"
    if share < FREQUENCY_SHARE:
        return [seen]
    warmth = [celsius for _, celsius in rows if celsius is not None]
    if len(warmth) < READINGS_MIN:
        return []
    cool, warm = _ends(warmth)
    if share < SLOPE_FREQUENCY_SHARE and warm - cool >= SLOPE_RISE_C:
        return [f"{seen} while it warmed from {cool:.0f} to {warm:.0f} degrees"]
    return []


def _pi(readings: Sequence[Reading]) -> list[str]:
    bits = [r.pi_bits for r in readings if r.pi_bits is not None]
    if not bits:
        return []
    # What is on now, and what has come on since the first reading, if only between two.
    seen = (bits[-1] & ~bits[0]) >> PI_SINCE_BOOT
    for word in bits:
        seen |= word
    names = [name for bit, name in PI_NOW.items() if seen >> bit & 1]
    return [f"the firmware tells of {', '.join(names)}"] if names else []


def _gpu(readings: Sequence[Reading]) -> list[str]:
    seen = 0
    for reading in readings:
        seen |= reading.gpu.reasons or 0
    told = [f"GPU: {name}" for bit, name in REASONS.items() if seen & bit]
    held = [r.gpu.throttled_ns for r in readings if r.gpu.throttled_ns is not None]
    if held and held[-1] > held[0]:
        told.append(f"GPU: heat held the clock down for {(held[-1] - held[0]) / 1e6:.0f} ms")
    return told
