"""Records put side by side: what belongs together, and what may be compared.

An ``Evidence`` holds the records, sessions and samples of one run. A ``Cell`` is one case
record; a ``Group`` is what one session measured of one model at one batch size.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ngraphbench.case import Case, CompilerRef, Limits, Session
from ngraphbench.errors import StoreError
from ngraphbench.profiles import PROFILES, Profile
from ngraphbench.records import PARTLY_COMPILED, measured
from ngraphbench.stats import Launch
from ngraphbench.store.journal import uncollected
from ngraphbench.summary import Comparison, Samples, compare, launch_of, prior_of, round_logs
from ngraphbench.types import VENDOR_THREADS, Json

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
        return cls(*(float(data[key]) for key in ("estimate", "low", "high", "confidence")))

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


@dataclass(frozen=True, slots=True)
class Cell:
    """One case record, with what tables need of it."""

    record: Json

    @property
    def key(self) -> tuple[str, str]:
        return self.record["session_id"], self.record["case_id"]

    @property
    def label(self) -> str:
        """The candidate as tables name it; unique within a group."""
        return str(self.record["label"] or self.compiler)

    @property
    def compiler(self) -> str:
        return CompilerRef.from_json(self.record["case"]["compiler"]).text

    @property
    def target(self) -> str:
        """Where the compiler's plugin is, as ``module:attribute``."""
        return str(self.record["case"]["compiler"]["target"])

    @property
    def status(self) -> str:
        return str(self.record["status"])

    @property
    def measured(self) -> bool:
        """Whether it holds a timing that may be shown as a result."""
        return measured(self.record) and self.record["summary"] is not None

    @property
    def ranked(self) -> bool:
        """Whether it may stand in a ranking: right outputs, as far as known, steady, compiled."""
        return self.measured and self.status in ("ok", "unverifiable") and not self.partly_compiled

    @property
    def partly_compiled(self) -> bool:
        """Whether too much of the model ran outside what the compiler made."""
        return PARTLY_COMPILED in self.flags

    @property
    def dropped(self) -> bool:
        """Whether it left a race, surely slower than another one."""
        return "dropped" in self.flags

    @property
    def throughput(self) -> Interval | None:
        return self._interval("throughput_per_s")

    @property
    def latency(self) -> Interval | None:
        return self._interval("latency_ms")

    @property
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

    @property
    def flags(self) -> list[str]:
        return list(dict.fromkeys(flag["flag"] for flag in self.record["flags"]))

    def _interval(self, key: str) -> Interval | None:
        value = self.record["summary"].get(key) if self.measured and not self.bimodal else None
        return Interval.from_json(value) if value else None


@dataclass(frozen=True, slots=True)
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

    @property
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
        self.memory: dict[object, Any] = {}
        self._read = read
        self._samples: dict[tuple[str, str], Samples | None] = {}
        self._logs: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
        self._launch: dict[str, Launch] = {}
        self._compared: dict[tuple[object, ...], Comparison | None] = {}
        self._places = {
            (group.title, group.batch, group.session_id, group.precision): group
            for group in self.groups
        }

    def group(self, title: str, batch: int, session_id: str, precision: str) -> Group | None:
        """Return the group that tables call so, or None."""
        return self._places.get((title, batch, session_id, precision))

    def profile(self, session_id: str) -> Profile:
        """Return the profile of a session; the quick one where it is not known."""
        session = self.sessions.get(session_id)
        return Profile.from_json(session["profile"]) if session else PROFILES["quick"]

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

    def logs(self, cell: Cell) -> dict[tuple[int, int], float]:
        """Return a cell's log ns per call by (epoch, round); empty where there are no samples."""
        if cell.key not in self._logs:
            samples = self.samples(cell)
            self._logs[cell.key] = round_logs(samples) if samples is not None else {}
        return self._logs[cell.key]

    def compare(self, a: Cell, b: Cell, confidence: float | None = None) -> Comparison | None:
        """Return time of ``a`` over time of ``b`` by paired rounds.

        None where they were not measured side by side. ``confidence`` is the session's
        own unless given.
        """
        session_id = a.record["session_id"]
        left, right = self.samples(a), self.samples(b)
        if left is None or right is None or session_id != b.record["session_id"]:
            return None
        level = self.profile(session_id).confidence if confidence is None else confidence
        key = (a.key, b.key, level)
        if key not in self._compared:
            launch = self.launch(session_id)
            self._compared[key] = compare(left, right, confidence=level, launch=launch)
        return self._compared[key]

    def launch(self, session_id: str) -> Launch:
        """Return how much processes of a session differ from launch to launch."""
        if session_id not in self._launch:
            cells = [cell for cell in self.cells if cell.record["session_id"] == session_id]
            known = [samples for samples in map(self.samples, cells) if samples is not None]
            prior = prior_of(self.sessions.get(session_id))
            self._launch[session_id] = launch_of(known, prior)
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
        name = _Names([cell.record for cell in self.cells])
        gathered: dict[tuple[object, ...], list[Cell]] = {}
        for cell in self.cells:
            key = (*name.settings(cell.record), cell.record["session_id"])
            gathered.setdefault(key, []).append(cell)
        models = {record_model: i for i, record_model in enumerate(name.models)}
        groups = [self._group(name, cells) for cells in gathered.values()]
        return sorted(groups, key=lambda group: (models[group.model], group.title, group.batch))

    def _group(self, name: _Names, cells: list[Cell]) -> Group:
        first = cells[0].record
        case = first["case"]
        session = self.sessions.get(first["session_id"])
        ordered = sorted(cells, key=_order)
        return Group(
            title=name.title(first),
            model=case["model"]["content"],
            batch=case["batch"],
            device=name.device(case),
            precision=case["precision"],
            session_id=first["session_id"],
            baseline=_baseline(session, ordered),
            setting=name.settings(first)[1:],
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
    throughput = cell.throughput
    return not cell.measured, -throughput.estimate if throughput else 0.0, cell.label


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


class _Names:
    """Titles of groups: the model's label, plus whatever else varies in the run."""

    _KEYS = ("precision", "shapes", "device", "threads")

    def __init__(self, records: Sequence[Json]) -> None:
        cases = [record["case"] for record in records]
        self.models = list(dict.fromkeys(case["model"]["content"] for case in cases))
        labels = {case["model"]["content"]: case["model"]["label"] for case in cases}
        self._shared = {label for label, n in Counter(labels.values()).items() if n > 1}
        self._settings = {id(record): self._read(record["case"]) for record in records}
        columns = list(zip(*self._settings.values(), strict=True))[2:]
        varies = [len(set(column)) > 1 for column in columns]
        self._several = dict(zip(self._KEYS, varies, strict=False))
        self._parts: dict[tuple[object, ...], list[str]] = {}
        for record in records:
            parts = self._parts.setdefault(self.settings(record), [])
            if record["session_id"] not in parts:
                parts.append(record["session_id"])

    def settings(self, record: Json) -> tuple[object, ...]:
        """Return what a group has in common, whichever the session."""
        return self._settings[id(record)]

    def _read(self, case: Json) -> tuple[object, ...]:
        settings = tuple(self._setting(case, key) for key in self._KEYS)
        return case["model"]["content"], case["batch"], *settings

    def title(self, record: Json) -> str:
        case = record["case"]
        label = str(case["model"]["label"])
        if case["model"]["label"] in self._shared:
            label += f"~{case['model']['content'][:4]}"
        extra = [self._setting(case, key) for key, several in self._several.items() if several]
        parts = self._parts[self.settings(record)]
        if len(parts) > 1:
            extra.append(f"part {parts.index(record['session_id']) + 1}")
        extra = [text for text in extra if text]
        return f"{label} [{', '.join(extra)}]" if extra else label

    @staticmethod
    def device(case: Json) -> str:
        device = case["device"]
        return f"{device['name']}/{device['accelerator']}"

    @staticmethod
    def _setting(case: Json, key: str) -> str:
        if key == "device":
            return _Names.device(case)
        if key == "threads":
            threads = case["device"]["threads"]
            return f"{threads} threads" if threads else f"{VENDOR_THREADS} threads"
        value = case[key]
        return value if isinstance(value, str) else json.dumps(value) if value else ""
