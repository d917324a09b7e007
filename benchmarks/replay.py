"""Recorded traces of real machines as drift on the virtual clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scenarios import Drift, Machine

TRACES = Path(__file__).parent / "traces"


@dataclass(frozen=True, slots=True)
class Trace:
    """Log slowdown against the median, at seconds from the start, and what ran on what."""

    at_s: NDArray[np.float64]
    log_slowdown: NDArray[np.float64]
    head: dict[str, str]

    @property
    def length_s(self) -> float:
        return float(self.at_s[-1])


def read_trace(path: Path) -> Trace:
    """Return a trace that ``record_trace.py`` wrote. Raises ValueError where a row is broken."""
    lines = path.read_text().splitlines()
    head = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    rows = [line.split(",") for line in lines if line[:1].isdigit()]
    at_ms, piece_us = np.array(rows, dtype=float).T
    return Trace(at_ms / 1e3, np.log(piece_us / np.median(piece_us)), head)


def replay(trace: Trace, rng: np.random.Generator) -> Drift:
    """Return the trace as drift, from a random moment on; at its end it runs backwards."""
    length_s = trace.length_s
    start_s = rng.uniform(0.0, length_s)

    def drift(now_s: float) -> float:
        place_s = (start_s + now_s) % (2 * length_s)
        place_s = min(place_s, 2 * length_s - place_s)
        return float(np.interp(place_s, trace.at_s, trace.log_slowdown))

    return drift


@dataclass
class ReplayedMachine(Machine):
    """A machine whose noise is in its trace already."""

    def noise(self) -> float:
        return 0.0
