"""How long a run goes on, and who leads so far: what a display tells while it is measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from ngraphbench.analysis.tables import Cell
from ngraphbench.report.wording import figure
from ngraphbench.types import Json

__all__ = ["Best", "Pace", "duration", "session_left_s"]


def duration(seconds: float) -> str:
    """Return a duration as ``8 s``, ``3 min`` or ``2.5 h``.

    >>> [duration(s) for s in (8, 180, 9000)]
    ['8 s', '3 min', '2.5 h']
    """
    seconds = max(0.0, float(seconds))
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def session_left_s(event: Json) -> float | None:
    """Return how long a session's rounds may still take at most, over all its launches.

    ``event`` is that of a round, which tells of its own launch alone. None where it does not.
    """
    left_s = event.get("left_s")
    if left_s is None:
        return None
    launches = max(0, int(event.get("epochs", 1)) - int(event.get("epoch", 0)) - 1)
    return float(left_s) + launches * (float(event.get("elapsed_s", 0.0)) + float(left_s))


@dataclass(slots=True)
class Pace:
    """How long a session takes, of those that ended while it was watched."""

    first: int = 0
    began_s: float = 0.0

    def session(self, index: int, of: int, now_s: float) -> float | None:
        """Return the seconds that this session and those after it may take; None at first."""
        if self.first == 0 or index <= self.first:
            self.first, self.began_s = index, now_s
            return None
        return (now_s - self.began_s) / (index - self.first) * (of - index + 1)


@dataclass(slots=True)
class Best:
    """The fastest candidate per model and batch size, of the records that have come.

    It is who leads, and no verdict: that one comes with the table.
    """

    _leaders: dict[str, tuple[float, str]] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)

    def add(self, record: Json) -> None:
        """Take a record; one without a result is left out."""
        if record.get("kind") != "case":
            return
        cell = Cell(record)
        if not cell.ranked or cell.throughput is None:
            return
        case, rate = record["case"], cell.throughput.estimate
        place = f"{case['model']['label']} b={case['batch']}"
        if rate > self._leaders.get(place, (0.0, ""))[0]:
            versus = record["summary"]["vs_baseline"]
            times = cell.speedup.times if cell.speedup else ""
            than = f", {times} {versus['baseline']}" if times and versus else ""
            self._leaders[place] = (rate, f"{place}: {cell.label} {figure(rate)}/s{than}")

    def news(self) -> list[str]:
        """Return a line for each leader that was not told yet."""
        fresh = {
            place: line
            for place, (_, line) in self._leaders.items()
            if self._told.get(place) != line
        }
        self._told |= fresh
        return list(fresh.values())
