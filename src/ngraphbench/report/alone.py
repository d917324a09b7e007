"""What solo blocks gave, as small tables that the terminal and the page share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ngraphbench.analysis.tables import Cell, Evidence, Interval
from ngraphbench.blocksummary import PERCENTILES, fewest_calls
from ngraphbench.report.charts import Tags
from ngraphbench.report.scene import tags_of
from ngraphbench.report.wording import figure, plus_minus
from ngraphbench.types import Json

__all__ = ["BlockRow", "BlockTable", "block_tables"]

NONE = "–"


@dataclass(frozen=True, slots=True)
class BlockRow:
    """One candidate's line: ``values`` as under the table's ``heads``."""

    model: str
    batch: int
    label: str
    values: tuple[str, ...]
    tags: Tags


@dataclass(frozen=True, slots=True)
class BlockTable:
    """A table of one kind of block; ``notes`` are what must be said below it."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[BlockRow, ...]
    notes: tuple[str, ...] = ()


def block_tables(evidence: Evidence) -> list[BlockTable]:
    """Return the tables of all that was measured alone; none where nothing was."""
    tables = [_tails(evidence), _paced(evidence), _concurrent(evidence), _sustained(evidence)]
    return [table for table in tables if table is not None]


def _blocks(cell: Cell, kind: str) -> list[Json]:
    return [block for block in cell.record.get("blocks") or () if block["kind"] == kind]


def _table(
    evidence: Evidence,
    kind: str,
    title: Callable[[Sequence[Json]], str],
    heads: Sequence[str],
    values: Callable[[list[Json]], tuple[str, ...]],
    notes: Callable[[Sequence[Json]], Sequence[str]],
) -> BlockTable | None:
    rows, found = [], []
    for group in evidence.groups:
        for cell in group.cells:
            blocks = _blocks(cell, kind)
            if blocks:
                told, tags = values(blocks), tags_of(group, cell.label)
                rows.append(BlockRow(group.title, group.batch, cell.label, told, tags))
                found += blocks
    if not rows:
        return None
    said = dict.fromkeys([*notes(found), *_problems(rows, found)])
    return BlockTable(title(found), tuple(heads), tuple(rows), tuple(said))


def _problems(rows: Sequence[BlockRow], blocks: Sequence[Json]) -> list[str]:
    """Return what went wrong or must be known, once each."""
    told = [
        f"{block['status']}: {block['message'] or block['reason']}"
        for block in blocks
        if block["status"] not in ("ok", "overloaded") and (block["message"] or block["reason"])
    ]
    return [*told, *(block["note"] for block in blocks if block["note"])]


def _percentiles(found: Json | None) -> list[str]:
    """Return the percentiles; only the last is so uncertain that its interval matters here."""
    *common, rare = (found.get(name) if found else None for name in PERCENTILES)
    return [*(figure(value["estimate"]) if value else NONE for value in common), _spelled(rare)]


def _spelled(value: Json | None) -> str:
    if value is None:
        return NONE
    interval = Interval.from_json(value)
    return f"{figure(interval.estimate)} {plus_minus(interval)}"


def _few_calls(blocks: Sequence[Json], key: str) -> list[str]:
    lacking = {
        name
        for block in blocks
        if block[key] is not None
        for name in PERCENTILES
        if name not in block[key]
    }
    return [
        f"{name} needs {fewest_calls(quantile)} calls."
        for name, quantile in PERCENTILES.items()
        if name in lacking
    ]


def _tails(evidence: Evidence) -> BlockTable | None:
    def values(blocks: list[Json]) -> tuple[str, ...]:
        (block,) = blocks
        return (*_percentiles(block["service_ms"]), _count(block))

    return _table(
        evidence,
        "tails",
        lambda _: "Calls back to back, alone: ms",
        (*PERCENTILES, "calls"),
        values,
        lambda blocks: _few_calls(blocks, "service_ms"),
    )


def _count(block: Json) -> str:
    return f"{block['requests']:,}" if block["launches"] else str(block["status"])


def _paced(evidence: Evidence) -> BlockTable | None:
    def values(blocks: list[Json]) -> tuple[str, ...]:
        (block,) = blocks
        return (*_percentiles(block["response_ms"]), _missed(block), _count(block))

    def notes(blocks: Sequence[Json]) -> list[str]:
        said = ["Response from when a request was due; missed: later than the next one was due."]
        if any(block["status"] == "overloaded" for block in blocks):
            said.append("overloaded: it cannot keep up, so a response would only tell how long.")
        return said + _few_calls(blocks, "response_ms")

    return _table(
        evidence,
        "paced",
        lambda blocks: f"Requests at {blocks[0]['rate_per_s']:g}/s, alone: response ms",
        (*PERCENTILES, "missed", "calls"),
        values,
        notes,
    )


def _missed(block: Json) -> str:
    if block["status"] == "overloaded":
        return "overloaded"
    if block["missed"] is None:
        return NONE
    share = 100 * block["missed_share"]["estimate"]
    return f"{block['missed']} ({figure(share)}%)" if block["missed"] else "0"


def _concurrent(evidence: Evidence) -> BlockTable | None:
    numbers = sorted(
        {b["in_flight"] for cell in evidence.cells for b in _blocks(cell, "concurrent")}
    )

    def values(blocks: list[Json]) -> tuple[str, ...]:
        by_number = {block["in_flight"]: block for block in blocks}
        return tuple(_rate(by_number.get(number)) for number in numbers)

    return _table(
        evidence,
        "concurrent",
        lambda _: "Requests in flight, alone: items/s",
        [str(number) for number in numbers],
        values,
        lambda _: (),
    )


def _rate(block: Json | None) -> str:
    if block is None:
        return NONE
    return _spelled(block["throughput_per_s"]) if block["launches"] else str(block["status"])


def _sustained(evidence: Evidence) -> BlockTable | None:
    def values(blocks: list[Json]) -> tuple[str, ...]:
        (block,) = blocks
        found = block["sustained"]
        if found is None:
            return (NONE, NONE, NONE, str(block["status"]))
        after_s, celsius = found["throttled_after_s"], found["start_celsius"]
        return (
            figure(found["start_ms"]),
            _spelled(found["equilibrium_ms"]),
            f"after {after_s:.0f} s" if after_s is not None else "no",
            f"{celsius:.0f} °C" if celsius is not None else NONE,
        )

    return _table(
        evidence,
        "sustained",
        lambda blocks: f"Sustained for {max(b['seconds'] for b in blocks):.0f} s, alone: ms",
        ("start", "last third", "slowed down", "began at"),
        values,
        lambda _: (),
    )
