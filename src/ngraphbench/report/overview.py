"""A run of very many cells, summed up in one pass over its records; samples are not read.

A cell is kept as the few values that sums are made of, so that 100,000 of them fit easily.
Speed-ups are as recorded, each with its own interval; what is said over models is a median
and a range of models, and no interval of anything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ngraphbench.analysis.tables import Cell
from ngraphbench.analysis.titles import shape_text
from ngraphbench.records import FAILURES
from ngraphbench.report.charts import Chart, Mark, Panel, Rule, Tags, category_axis, log_axis
from ngraphbench.report.palette import Palette
from ngraphbench.report.plots.costs import slot_of
from ngraphbench.report.scene import AS_IT_IS
from ngraphbench.types import Json

__all__ = ["Entry", "Overview", "count_table", "overview", "spread_chart"]

OUTCOMES = ("faster", "tie", "unresolved", "slower", "unstable", "baseline", "no result")
EXAMPLES = 12
"""Largest gains and losses that are shown, each with its evidence."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept of a case record; ``ratio`` is its speed-up as estimate, low, high."""

    model: str
    compiler: str
    device: str
    batch: int
    shape: str
    place: tuple[object, ...]
    status: str
    reason: str
    stage: str
    mark: str
    ratio: tuple[float, float, float] | None
    verified: str
    samples: str
    log: str
    command: str

    @property
    def outcome(self) -> str:
        """One of ``OUTCOMES``."""
        if self.status not in ("ok", "unverifiable", "unstable"):
            return "no result"
        if self.status == "unstable" or self.mark == "unstable":
            return "unstable"
        return self.mark or "baseline"

    @property
    def tags(self) -> Tags:
        return Tags(self.model, self.compiler, self.device, str(self.batch), self.shape)


@dataclass(slots=True)
class Overview:
    """Entries that count, and the sessions they belong to."""

    entries: list[Entry]
    sessions: list[Json]
    baselines: set[str] = field(default_factory=set)
    weights: set[str] = field(default_factory=set)
    flags: Counter[str] = field(default_factory=Counter)

    @property
    def labels(self) -> list[str]:
        """Every candidate, sorted."""
        return sorted({entry.compiler for entry in self.entries})

    @property
    def palette(self) -> Palette:
        return Palette.of(self.labels, self.baselines)

    def leaders(self) -> tuple[Counter[str], int]:
        """Return how often each candidate has the highest resolved speed-up, and of how many.

        Those whose intervals reach that of the highest share the lead: with recorded
        intervals alone, that two of them differ cannot be shown more sharply.
        """
        best: dict[tuple[object, ...], list[Entry]] = {}
        places = set()
        for entry in self.entries:
            places.add(entry.place)
            if entry.ratio and entry.mark == "faster" and entry.status != "unstable":
                best.setdefault(entry.place, []).append(entry)
        found: Counter[str] = Counter()
        for rivals in best.values():
            low = max((e.ratio for e in rivals if e.ratio), key=lambda ratio: ratio[0])[1]
            found.update(e.compiler for e in rivals if e.ratio and e.ratio[2] >= low)
        return found, len(places)

    def outcomes(self) -> list[tuple[str, list[tuple[str, int, float]]]]:
        """Return the outcomes of each candidate, with counts and shares in percent."""
        counts: dict[str, Counter[str]] = {label: Counter() for label in self.labels}
        for entry in self.entries:
            counts[entry.compiler][entry.outcome] += 1
        return [
            (label, [(name, n[name], 100 * n[name] / n.total()) for name in OUTCOMES if n[name]])
            for label, n in counts.items()
        ]

    def reasons(self) -> list[tuple[Entry, int]]:
        """Return each way in which a candidate has no result, with an example and how often."""
        counts: Counter[tuple[str, ...]] = Counter()
        first: dict[tuple[str, ...], Entry] = {}
        for entry in self.entries:
            if entry.outcome == "no result":
                key = (entry.compiler, entry.status, entry.reason, entry.stage)
                counts[key] += 1
                first.setdefault(key, entry)
        found = [(first[key], count) for key, count in counts.most_common()]
        return sorted(found, key=lambda one: one[0].status not in FAILURES)

    def extremes(self) -> tuple[list[Entry], list[Entry]]:
        """Return the largest gains and the largest losses that are resolved."""
        decided = [e for e in self.entries if e.ratio and e.mark in ("faster", "slower")]
        decided.sort(key=lambda e: -e.ratio[0] if e.ratio else 0.0)
        losses = [e for e in reversed(decided) if e.mark == "slower"]
        return [e for e in decided if e.mark == "faster"][:EXAMPLES], losses[:EXAMPLES]


def overview(records: Iterable[Json]) -> Overview:
    """Return what a stream of records comes to; of a cell that was retried, the last."""
    cases: dict[tuple[str, str], Entry] = {}
    sessions: dict[str, Json] = {}
    found = Overview([], [])
    texts: dict[str, str] = {}
    for record in records:
        if record["kind"] == "session":
            sessions[record["session_id"]] = record
            continue
        entry = _entry(record, texts)
        cases[record["session_id"], record["case_id"]] = entry
        found.weights.add(str(record["weights"]))
        found.flags.update({str(flag["flag"]) for flag in record["flags"]})
        versus = (record["summary"] or {}).get("vs_baseline")
        if versus:
            found.baselines.add(str(versus["baseline"]))
    final = {case: session for session, case in cases if cases[session, case].status != "skipped"}
    found.entries = [
        entry
        for (session, case), entry in cases.items()
        if entry.outcome != "no result" or final.get(case, session) == session
    ]
    found.sessions = list(sessions.values())
    return found


def _entry(record: Json, texts: dict[str, str]) -> Entry:
    """Return what is kept of a record; ``texts`` are those that many records share."""
    case, cell = record["case"], Cell(record)
    device = f"{case['device']['name']}/{case['device']['accelerator']}"
    device = texts.setdefault(device, device)
    shape = shape_text(case["shapes"]) or AS_IT_IS
    speedup = cell.speedup if cell.ranked else None
    settings = (device, case["precision"], str(case["shapes"]), case["device"]["threads"])
    return Entry(
        model=str(case["model"]["label"]),
        compiler=cell.label,
        device=device,
        batch=int(case["batch"]),
        shape=texts.setdefault(shape, shape),
        place=(record["session_id"], case["model"]["content"], case["batch"], *settings),
        status="partly compiled" if cell.partly_compiled else cell.status,
        reason=str(record["reason"]),
        stage=str(record["stage"]),
        mark=cell.mark,
        ratio=(speedup.estimate, speedup.low, speedup.high) if speedup else None,
        verified=str((record["verification"] or {}).get("verdict", "")),
        samples=str((record["measurement"] or {}).get("samples", "")),
        log=str(record["log"]),
        command=str(record["command"]),
    )


def spread_chart(found: Overview) -> Chart | None:
    """Return the speed-ups over all models: a row per batch size, a panel per device."""
    known: dict[tuple[str, int, str], list[float]] = {}
    for entry in found.entries:
        if entry.ratio and entry.compiler not in found.baselines:
            key = (entry.device, entry.batch, entry.compiler)
            known.setdefault(key, []).append(entry.ratio[0])
    if not known:
        return None
    palette = found.palette
    ranges = {key: np.percentile(values, (10, 50, 90)) for key, values in known.items()}
    ends = [float(end) for values in ranges.values() for end in values if math.isfinite(end)]
    axis = log_axis("times as fast as the baseline", [1.0, *ends], ending="x")
    labels = [label for label in palette.numbers if any(key[2] == label for key in known)]
    panels = []
    for device in sorted({key[0] for key in known}):
        batches = sorted({key[1] for key in known if key[0] == device})
        marks = [
            Mark(
                x=float(middle),
                low=float(low),
                high=float(high),
                y=slot_of(batches.index(batch), label, labels),
                series=label,
                tip=f"{label}, batch {batch}: median {middle:.3g}x over {len(known[key])} cells;"
                f" one in ten below {low:.3g}x, one in ten above {high:.3g}x",
                note=f"{len(known[key])} cells",
                tags=Tags("", label, device, str(batch)),
            )
            for key, (low, middle, high) in sorted(ranges.items())
            for _, batch, label in (key,)
            if key[0] == device
        ]
        panels.append(
            Panel(
                title=device,
                x=axis,
                y=category_axis("", [f"batch {batch}" for batch in batches]),
                marks=tuple(marks),
                rules=(Rule("x", 1.0),),
                value="x",
                rows=len(batches) * len(labels),
                tags=Tags(device=device),
            )
        )
    return Chart(
        name="speedup",
        title="Speed-up over the baseline, over all models",
        lead="The median over models, and the range that holds eight of ten of them: how models"
        " differ, not how sure a figure is. Log scale.",
        panels=tuple(panels),
        series=tuple(labels),
        heads=("device", "compiler", "speed-up", "batch"),
        palette=palette.numbers,
    )


def count_table(found: Overview) -> tuple[Sequence[str], list[tuple[str, Tags, list[str]]]]:
    """Return heads and a row per model: cells with a result per candidate, and the best median.

    The models with the most cells without a result come first.
    """
    labels = found.labels
    by_model: dict[str, dict[str, list[Entry]]] = {}
    for entry in found.entries:
        by_model.setdefault(entry.model, {}).setdefault(entry.compiler, []).append(entry)
    rows = []
    for model, by_label in by_model.items():
        values, lacking = [], 0
        for label in labels:
            entries = by_label.get(label, [])
            done = sum(entry.outcome != "no result" for entry in entries)
            lacking += len(entries) - done
            ratios = [entry.ratio[0] for entry in entries if entry.ratio]
            median = f" · {float(np.median(ratios)):.2f}x" if ratios else ""
            values.append(f"{done}/{len(entries)}{median}" if entries else "")
        rows.append((lacking, model, Tags(model=model), values))
    rows.sort(key=lambda row: (-row[0], row[1]))
    return labels, [(model, tags, values) for _, model, tags, values in rows]
