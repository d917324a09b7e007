"""Orders of models in figures that somebody else measured: a table, without samples.

Such figures were not paired, and carry no intervals: what they show is told as ``unpaired``,
and never as a reversal that was established.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations

from ngraphbench.errors import SpecError, nearest
from ngraphbench.types import Json

__all__ = ["COLUMNS", "Figures", "UnpairedOrder", "read_figures", "unpaired_orders"]

COLUMNS = ("model", "batch", "baseline", "compiled")
"""Columns that a table must have; the last two are throughputs, in any one unit."""

OPTIONAL = ("compiler", "device")


@dataclass(frozen=True, slots=True)
class Figures:
    """One row of a table: throughput of a model without and with compilation."""

    model: str
    batch: int
    baseline: float
    compiled: float
    compiler: str = "compiled"
    device: str = ""


@dataclass(frozen=True, slots=True)
class UnpairedOrder:
    """The order of two models in such a table; ratios are throughput of A over that of B.

    ``swapped``: the figures are in the other order with compilation than without. The
    ``verdict`` is always ``unpaired``.
    """

    model_a: str
    model_b: str
    batch: int
    compiler: str
    device: str
    baseline_ratio: float
    compiled_ratio: float
    verdict: str = "unpaired"

    @property
    def swapped(self) -> bool:
        return (self.baseline_ratio - 1.0) * (self.compiled_ratio - 1.0) < 0.0

    @property
    def strength(self) -> float:
        """How far both orders are from a tie, as the smaller log ratio."""
        return min(abs(math.log(self.baseline_ratio)), abs(math.log(self.compiled_ratio)))

    def to_json(self) -> Json:
        return {**asdict(self), "swapped": self.swapped}

    @property
    def sentence(self) -> str:
        """One sentence without a full stop, for people."""
        verb = "would swap places" if self.swapped else "keep their order"
        where = f" on {self.device}" if self.device else ""
        return (
            f"{self.model_a} and {self.model_b} {verb} under {self.compiler} at batch"
            f" {self.batch}{where}: {self.baseline_ratio:.2f}x without compilation,"
            f" {self.compiled_ratio:.2f}x with it (unpaired)"
        )


def read_figures(text: str, *, name: str) -> list[Figures]:
    """Return the rows of a CSV table with the columns model, batch, baseline, compiled.

    ``compiler`` and ``device`` may be there, other columns are left alone; ``name`` is what
    errors call the table. Raises SpecError for a column that is missing, with the nearest
    one found, and for a row that cannot be understood, with its line.
    """
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    try:
        return _rows(reader, name)
    except csv.Error as error:
        # Such as a field of more than 131,072 characters: a quotation mark that is never closed.
        raise _bad(f"{name}:{reader.line_num + 1}", str(error)) from error


def _rows(reader: csv.DictReader[str], name: str) -> list[Figures]:
    found = [str(column).strip() for column in reader.fieldnames or ()]
    reader.fieldnames = found
    for column in COLUMNS:
        if column not in found:
            raise SpecError(
                f"{name} has no column {column!r}; it has {', '.join(found) or 'none'}.",
                reason="columns",
                hint=nearest(column, found) or f"The first line must name {', '.join(COLUMNS)}.",
            )
    rows = [_figures(row, f"{name}:{reader.line_num}") for row in reader]
    if not rows:
        raise SpecError(f"{name} has no rows.", reason="empty", hint="One row per model and batch.")
    _check_unique(rows, name)
    return rows


def unpaired_orders(rows: Sequence[Figures]) -> list[UnpairedOrder]:
    """Return one order per pair of models that share batch size, compiler and device.

    Those that swap come first, the strongest of them first.
    """
    gathered: dict[tuple[int, str, str], list[Figures]] = {}
    for row in rows:
        gathered.setdefault((row.batch, row.compiler, row.device), []).append(row)
    orders = [
        UnpairedOrder(a.model, b.model, *key, a.baseline / b.baseline, a.compiled / b.compiled)
        for key, alike in gathered.items()
        for a, b in combinations(alike, 2)
    ]
    return sorted(orders, key=lambda order: (not order.swapped, -order.strength))


def _figures(row: Json, place: str) -> Figures:
    extra = {key: text.strip() for key in OPTIONAL if (text := row.get(key))}
    try:
        batch = int(row["batch"])
        baseline, compiled = float(row["baseline"]), float(row["compiled"])
    except (TypeError, ValueError):
        raise _bad(place, "batch, baseline and compiled must be numbers") from None
    if batch < 1 or not all(math.isfinite(rate) and rate > 0.0 for rate in (baseline, compiled)):
        raise _bad(place, "batch and throughputs must be above 0")
    if not str(row["model"]).strip():
        raise _bad(place, "there is no model")
    if {"\0", "\n", "\r"} & set(row["model"].strip()):
        # A NUL byte, or lines that a quotation mark swallowed.
        raise _bad(place, "the model's name holds a NUL byte or a line break")
    return Figures(str(row["model"]).strip(), batch, baseline, compiled, **extra)


def _bad(place: str, what: str) -> SpecError:
    return SpecError(
        f"{place}: {what}.", reason="row", hint="Leave out rows of what was not measured."
    )


def _check_unique(rows: Iterable[Figures], name: str) -> None:
    seen = set()
    for row in rows:
        place = (row.model, row.batch, row.compiler, row.device)
        if place in seen:
            raise SpecError(
                f"{name} has {row.model} at batch {row.batch} twice.",
                reason="twice",
                hint="Tell rows apart by the columns compiler and device.",
            )
        seen.add(place)
