"""Records put side by side: what belongs together, and what may be compared.

An ``Evidence`` holds the records, sessions and samples of one run. A ``Cell`` is one case
record; a ``Group`` is what one session measured of one model at one batch size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from ngraphbench.analysis.titles import Titles
from ngraphbench.case import Case, CompilerRef, Limits, Session
from ngraphbench.errors import StoreError
from ngraphbench.profiles import PROFILES, Profile
from ngraphbench.records import PARTLY_COMPILED, measured
from ngraphbench.stats import Launch
from ngraphbench.store.journal import uncollected
from ngraphbench.summary import (
    NO_LOGS,
    Comparison,
    Logs,
    Samples,
    compare_logs,
    launch_of_logs,
    prior_of,
    round_logs,
)
from ngraphbench.types import Json

__all__ = ["Cell", "Evidence", "Group", "Interval", "Read", "join"]

Read: TypeAlias = Callable[[str], Samples]
"""Returns the columns of a sample file, given its path in the run directory."""


def join(names: Sequence[str]) -> str:
    """Return names as a person lists them.

    >>> join(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and what surrounds it with ``confidence``."""

    estimate: float
    low: float
    high: float
    confidence: float

    @classmethod
    def from_json(cls, data: Json) -> Interval:
        estimate, low, high = float(data["estimate"]), float(data["low"]), float(data["high"])
        return cls(estimate, low, high, float(data["confidence"]))

    @classmethod
    def from_comparison(cls, value: Comparison) -> Interval:
        return cls(value.estimate, value.low, value.high, value.confidence)

    def scaled(self, factor: float) -> Interval:
        """Return the interval of ``factor`` times the value; ``factor`` is above 0."""
        ends = (self.estimate * factor, self.low * factor, self.high * factor)
        return Interval(*ends, self.confidence)

    @property
    def decimals(self) -> int:
        """How many decimals are worth showing: as many as make the interval's ends differ."""
        width = self.high - self.low
        if not math.isfinite(width) or width <= 0.0:
            return 2
        return min(3, max(0 if self.estimate >= 100 else 1, math.ceil(-math.log10(width))))

    @property
    def half_percent(self) -> float:
        """Half the width in percent of the estimate."""
        return 50.0 * (self.high - self.low) / self.estimate if self.estimate else math.inf

    @property
    def times(self) -> str:
        """The estimate as a factor, such as ``2.1x``."""
        return f"{self.estimate:.{self.decimals}f}x"

    @property
    def range(self) -> str:
        """The interval, such as ``1.9-2.3``."""
        return f"{self.low:.{self.decimals}f}-{self.high:.{self.decimals}f}"


@dataclass(frozen=True)
class Cell:
    """One case record, with what tables need of it.

    ``label`` is the candidate as tables name it, unique within a group. A ``measured`` cell
    holds a timing that may be shown as a result, a ``ranked`` one may stand in a ranking: right
    outputs, as far as known, steady, compiled.
    """

    record: Json
    key: tuple[str, str] = field(init=False, repr=False, compare=False)
    label: str = field(init=False, repr=False, compare=False)
    status: str = field(init=False, repr=False, compare=False)
    flags: tuple[str, ...] = field(init=False, repr=False, compare=False)
    measured: bool = field(init=False, repr=False, compare=False)
    ranked: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # All of it at once, as of many records each look is a wait for memory.
        record, write = self.record, object.__setattr__
        status = str(record["status"])
        flags = tuple(dict.fromkeys([flag["flag"] for flag in record["flags"]]))
        has_result = measured(record) and record["summary"] is not None
        right = has_result and status in ("ok", "unverifiable")
        write(self, "key", (record["session_id"], record["case_id"]))
        write(self, "label", str(record["label"] or self.compiler))
        write(self, "status", status)
        write(self, "flags", flags)
        write(self, "measured", has_result)
        write(self, "ranked", right and PARTLY_COMPILED not in flags)

    @property
    def compiler(self) -> str:
        return CompilerRef.from_json(self.record["case"]["compiler"]).text

    @property
    def target(self) -> str:
        """Where the compiler's plugin is, as ``module:attribute``."""
        return str(self.record["case"]["compiler"]["target"])

    @property
    def partly_compiled(self) -> bool:
        """Whether too much of the model ran outside what the compiler made."""
        return PARTLY_COMPILED in self.flags

    @property
    def dropped(self) -> bool:
        """Whether it left a race, surely slower than another one."""
        return "dropped" in self.flags

    @cached_property
    def throughput(self) -> Interval | None:
        return self._interval("throughput_per_s")

    @cached_property
    def latency(self) -> Interval | None:
        return self._interval("latency_ms")

    @cached_property
    def speedup(self) -> Interval | None:
        """Time of the baseline over time of this: above 1, this is faster."""
        return None if self._verdict == "unstable(bimodal)" else self._interval("vs_baseline")

    @property
    def mark(self) -> str:
        """The verdict against the baseline, without its reason, or an empty string."""
        return self._verdict.partition("(")[0]

    @property
    def _verdict(self) -> str:
        versus = self.record["summary"]["vs_baseline"] if self.measured else None
        return str(versus["verdict"]) if versus else ""

    @property
    def bimodal(self) -> bool:
        """Whether it has two speeds, so that any single figure would lie."""
        return self.status == "unstable" and "bimodal" in self.flags

    def _interval(self, key: str) -> Interval | None:
        value = self.record["summary"].get(key) if self.measured and not self.bimodal else None
        return Interval.from_json(value) if value else None


@dataclass(frozen=True)
class Group:
    """What one session measured of one model at one batch size, fastest first.

    ``title`` names the model so that no other group of the run reads the same, apart
    from its batch size; ``model`` is its identity; ``baseline`` a cell's label. ``setting``
    is what it shares with groups of other models that it may be compared with.
    """

    title: str
    model: str
    batch: int
    device: str
    precision: str
    session_id: str
    baseline: str
    setting: tuple[object, ...]
    cells: tuple[Cell, ...]

    @cached_property
    def base(self) -> Cell | None:
        """The baseline's cell, if it may be compared with."""
        cells = [cell for cell in self.cells if cell.label == self.baseline and cell.ranked]
        return cells[0] if cells else None

    @property
    def failures(self) -> list[Cell]:
        return [cell for cell in self.cells if not cell.measured]


class Evidence:
    """The records, sessions and samples of one run; each sample file is read once.

    ``memory`` is where analyses keep what they would work out again.
    """

    def __init__(self, records: Sequence[Json], sessions: Sequence[Json], read: Read) -> None:
        self.sessions: dict[str, Json] = {s["session_id"]: s for s in sessions}
        with uncollected():
            self.cells = [Cell(record) for record in _current(records)]
            self.groups = self._make_groups()
            self._by_session: dict[str, list[Cell]] = {}
            for cell in self.cells:
                self._by_session.setdefault(cell.record["session_id"], []).append(cell)
        self.memory: dict[object, Any] = {}
        self._read = read
        self._samples: dict[tuple[str, str], Samples | None] = {}
        self._logs: dict[tuple[str, str], Logs] = {}
        self._launch: dict[str, Launch] = {}
        self._profiles: dict[str, Profile] = {}
        self._compared: dict[tuple[object, ...], Comparison | None] = {}
        self._places = {
            (group.title, group.batch, group.session_id, group.precision): group
            for group in self.groups
        }

    def without(self, keys: Collection[tuple[str, str]]) -> Evidence:
        """Return the evidence as it is without the cells of these keys."""
        records = [cell.record for cell in self.cells if cell.key not in keys]
        return Evidence(records, list(self.sessions.values()), self._read)

    def group(self, title: str, batch: int, session_id: str, precision: str) -> Group | None:
        """Return the group that tables call so, or None."""
        return self._places.get((title, batch, session_id, precision))

    def profile(self, session_id: str) -> Profile:
        """Return the profile of a session; the quick one where it is not known."""
        if session_id not in self._profiles:
            session = self.sessions.get(session_id)
            found = Profile.from_json(session["profile"]) if session else PROFILES["quick"]
            self._profiles[session_id] = found
        return self._profiles[session_id]

    def raced(self, session_id: str) -> bool:
        """Return whether candidates that were surely slower left early."""
        session = self.sessions.get(session_id) or {}
        return bool(session.get("conditions", {}).get("best"))

    def epochs(self, session_id: str) -> int:
        session = self.sessions.get(session_id)
        return int(session["epochs_done"]) if session else 1

    def untrusted(self, session_id: str) -> bool:
        """Return whether a session failed its own A/A control."""
        session = self.sessions.get(session_id) or {}
        flags = {flag["flag"] for flag in session.get("flags", ())}
        return "untrusted" in flags or bool((session.get("sentinel") or {}).get("excludes_one"))

    def samples(self, cell: Cell) -> Samples | None:
        """Return a cell's samples, or None where there are none (any more)."""
        if cell.key not in self._samples:
            self._samples[cell.key] = self._load(cell)
        return self._samples[cell.key]

    def logs(self, cell: Cell) -> Logs:
        """Return a cell's log ns per call by (epoch, round); empty where there are no samples."""
        if cell.key not in self._logs:
            samples = self.samples(cell)
            self._logs[cell.key] = round_logs(samples) if samples is not None else NO_LOGS
        return self._logs[cell.key]

    def compare(self, a: Cell, b: Cell, confidence: float | None = None) -> Comparison | None:
        """Return time of ``a`` over time of ``b`` by paired rounds.

        None where they were not measured side by side. ``confidence`` is the session's
        own unless given.
        """
        session_id = a.record["session_id"]
        left, right = self.logs(a), self.logs(b)
        if not left or not right or session_id != b.record["session_id"]:
            return None
        level = self.profile(session_id).confidence if confidence is None else confidence
        key = (a.key, b.key, level)
        if key not in self._compared:
            launch = self.launch(session_id)
            self._compared[key] = compare_logs(left, right, confidence=level, launch=launch)
        return self._compared[key]

    def cells_of(self, session_id: str) -> Sequence[Cell]:
        """Return the cells of one session."""
        return self._by_session.get(session_id, ())

    def launch(self, session_id: str) -> Launch:
        """Return how much processes of a session differ from launch to launch."""
        if session_id not in self._launch:
            cells = self.cells_of(session_id)
            known = [logs for logs in map(self.logs, cells) if logs]
            prior = prior_of(self.sessions.get(session_id))
            self._launch[session_id] = launch_of_logs(known, prior)
        return self._launch[session_id]

    def _load(self, cell: Cell) -> Samples | None:
        measurement = cell.record["measurement"]
        if not measurement:
            return None
        try:
            return self._read(measurement["samples"])
        except (OSError, StoreError, KeyError, ValueError):
            return None

    def _make_groups(self) -> list[Group]:
        titles = Titles([cell.record for cell in self.cells])
        gathered: dict[tuple[object, ...], list[Cell]] = {}
        for cell in self.cells:
            key = (*titles.settings(cell.record), cell.record["session_id"])
            gathered.setdefault(key, []).append(cell)
        models = {record_model: i for i, record_model in enumerate(titles.models)}
        groups = [self._group(titles, cells) for cells in gathered.values()]
        return sorted(groups, key=lambda group: (models[group.model], group.title, group.batch))

    def _group(self, titles: Titles, cells: list[Cell]) -> Group:
        first = cells[0].record
        case = first["case"]
        session = self.sessions.get(first["session_id"])
        ordered = sorted(cells, key=_order)
        return Group(
            title=titles.title(first),
            model=case["model"]["content"],
            batch=case["batch"],
            device=titles.device(case),
            precision=case["precision"],
            session_id=first["session_id"],
            baseline=_baseline(session, ordered),
            setting=titles.settings(first)[1:],
            cells=tuple(ordered),
        )


def _current(records: Sequence[Json]) -> list[Json]:
    """Return the case records that count: a failure that was retried later does not."""
    cases: dict[tuple[str, str], Json] = {}
    for record in records:
        if record["kind"] == "case":
            cases[record["session_id"], record["case_id"]] = record
    final = {r["case_id"]: id(r) for r in cases.values() if r["status"] != "skipped"}
    return [r for r in cases.values() if measured(r) or final.get(r["case_id"], id(r)) == id(r)]


def _order(cell: Cell) -> tuple[bool, float, str]:
    known = cell.measured and not cell.bimodal
    rate = cell.record["summary"].get("throughput_per_s") if known else None
    return not cell.measured, -float(rate["estimate"]) if rate else 0.0, cell.label


def _baseline(session: Json | None, cells: Sequence[Cell]) -> str:
    """Return the label of the cell that ``cells`` are compared with, by the session's rule.

    Where that cell is not among them it is the name of the baseline.
    """
    recorded = (cell.record["summary"]["vs_baseline"] for cell in cells if cell.measured)
    for versus in filter(None, recorded):
        return str(versus["baseline"])
    wished = session["baseline"] if session else "eager"
    cases = tuple(Case.from_json(cell.record["case"]) for cell in cells)
    group = Session(cases, wished, PROFILES["quick"], Limits())
    case = group.baseline_case(cases[0])
    same = (cell.label for cell in cells if case and cell.record["case_id"] == case.case_id)
    return next(same, wished)
