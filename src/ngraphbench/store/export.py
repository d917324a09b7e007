"""A run as plain tables: ``cells``, a row per case record, and ``slots``, a row per slot.

``docs/data.md`` describes every column. CSV is written line by line, so that the size of a
run does not matter, and no text in it acts on who reads it; Parquet takes polars, which is
imported when it is asked for.
"""

from __future__ import annotations

import csv
import functools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ngraphbench.errors import StoreError, Unavailable
from ngraphbench.records import OPTIONAL_COSTS, empty_costs
from ngraphbench.store.disk import replaced, replaced_text
from ngraphbench.store.journal import uncollected
from ngraphbench.store.samples import COLUMNS
from ngraphbench.types import Json

__all__ = ["CELL_COLUMNS", "FORMS", "SLOT_COLUMNS", "cell_row", "export_run", "inert"]

FORMS = ("csv", "parquet")

_TRIPLES = tuple(
    (name, f"{name}_low", f"{name}_high")
    for name in ("latency_ms", "throughput_per_s", "vs_baseline")
)
_COSTS = (*empty_costs(), *(name for name in OPTIONAL_COSTS if name != "compile_cold_samples_s"))
_ERRORS = ("max_abs", "rel_l2", "smallest_rtol")
_TEXT = (
    *("model", "model_source", "model_args", "compiler", "compiler_options", "device"),
    *("accelerator", "precision", "status", "stage", "reason", "baseline", "verdict", "claim"),
    *("verification", "flags", "weights", "compiler_version", "tool_version", "profile"),
    *("started_at", "samples", "case_id", "session_id"),
)
_WHOLE = ("batch", "threads", "seed", "epochs", "rounds", "calls")

CELL_COLUMNS = (
    *("session_id", "case_id", "model", "model_source", "model_args", "batch", "compiler"),
    *("compiler_options", "compiler_version", "device", "accelerator", "threads", "precision"),
    *("status", "stage", "reason", "flags", "weights", "profile", "seed", "started_at"),
    *("tool_version", "epochs", "rounds", "calls"),
    *(column for triple in _TRIPLES for column in triple),
    *("confidence", "claim", "baseline", "verdict"),
    *_COSTS,
    *("verification", *_ERRORS, "task_metric", "samples"),
)
"""Columns of ``cells``, in order."""

REMEMBERED = 4096

_PLACE = ("session_id", "case_id", "model", "batch", "compiler")
SLOT_COLUMNS = (*_PLACE, *COLUMNS)
"""Columns of ``slots``, in order."""


def cell_row(record: Json) -> dict[str, Any]:
    """Return a case record as one flat row, keyed as in ``CELL_COLUMNS`` and in that order."""
    case, summary = record["case"], record["summary"] or {}
    model, compiler, device = case["model"], case["compiler"], case["device"]
    measurement, versus = record["measurement"] or {}, summary.get("vs_baseline") or {}
    verification, costs = record["verification"] or {}, record["costs"]
    latency = summary.get("latency_ms") or {}
    row: dict[str, Any] = {
        "session_id": record["session_id"],
        "case_id": record["case_id"],
        "model": model["label"],
        "model_source": model["source"],
        "model_args": json.dumps(model["args"]) if model["args"] else "",
        "batch": case["batch"],
        "compiler": record["label"],
        "compiler_options": json.dumps(compiler["options"]) if compiler["options"] else "",
        "compiler_version": record["environment"].get("compiler_version", ""),
        "device": device["name"],
        "accelerator": device["accelerator"],
        "threads": device["threads"],
        "precision": case["precision"],
        "status": record["status"],
        "stage": record["stage"],
        "reason": record["reason"],
        "flags": ";".join(dict.fromkeys([flag["flag"] for flag in record["flags"]])),
        "weights": record["weights"],
        "profile": record["profile"],
        "seed": record["seed"],
        "started_at": record["started_at"],
        "tool_version": record["tool_version"],
        "epochs": measurement.get("epochs"),
        "rounds": measurement.get("rounds"),
        "calls": measurement.get("calls"),
    }
    for name, low, high in _TRIPLES:
        value = summary.get(name) or {}
        row[name], row[low], row[high] = value.get("estimate"), value.get("low"), value.get("high")
    row["confidence"], row["claim"] = latency.get("confidence"), latency.get("claim")
    row["baseline"], row["verdict"] = versus.get("baseline"), versus.get("verdict")
    for key in _COSTS:
        row[key] = costs.get(key)
    row["verification"] = verification.get("verdict")
    for key in _ERRORS:
        row[key] = verification.get(key)
    row["task_metric"] = (verification.get("eval") or {}).get("value")
    row["samples"] = measurement.get("samples")
    return row


FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the start of a formula."""


PICTURES = {
    **{code: 0x2400 + code for code in range(0x20)},
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **dict.fromkeys((*range(0x2028, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
    **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD),
    0x7F: 0x2421,
}
"""What a terminal would obey, and what is written for it: control characters, and those that
break a line or change its direction. Surrogates are what no UTF-8 holds, and names of files may."""


def inert(text: str) -> str:
    """Return ``text`` so that no spreadsheet takes it for a formula, and no terminal obeys it.

    >>> inert("=1+1"), inert("resnet18"), inert("\\x1b[31m")
    ("'=1+1", 'resnet18', '␛[31m')
    """
    # All of them are unprintable, and most text is not.
    shown = text if text.isprintable() else text.translate(PICTURES)
    return f"'{shown}" if text.startswith(FORMULA) else shown


def export_run(root: Path, records: Iterable[Json], folder: Path, *, form: str) -> list[Path]:
    """Return the two files written to ``folder``: ``cells`` and ``slots`` in ``form``.

    ``root`` is the run directory, ``records`` are its case records. Samples that are lost are
    left out. Raises StoreError for files that cannot be written, Unavailable without polars.
    """
    if form not in FORMS:
        raise ValueError(f"A table is {' or '.join(FORMS)}, not {form!r}.")
    polars = _polars() if form == "parquet" else None
    cells, slots = (folder / f"{name}.csv" for name in ("cells", "slots"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if polars is None:
            _write(root, records, cells, slots, keep=inert)
            return [cells, slots]
        with tempfile.TemporaryDirectory(prefix=".tables-", dir=folder) as name:
            plain = [Path(name) / path.name for path in (cells, slots)]
            _write(root, records, *plain, keep=str)
            return [_parquet(polars, path, folder) for path in plain]
    except OSError as error:
        raise StoreError(
            f"The tables cannot be written to {folder}: {error.strerror}.",
            reason="write",
            hint="Free some space, fix the permissions, or give another folder.",
        ) from error


def _write(
    root: Path,
    records: Iterable[Json],
    cells: Path,
    slots: Path,
    *,
    keep: Callable[[str], str],
) -> None:
    with uncollected(), replaced_text(cells) as one, replaced_text(slots) as other:
        # Most text of a run occurs in many of its rows.
        keep = functools.lru_cache(maxsize=REMEMBERED)(keep)
        table = csv.writer(one, lineterminator="\n")
        rows = csv.writer(other, lineterminator="\n")
        table.writerow(CELL_COLUMNS)
        rows.writerow(SLOT_COLUMNS)
        for record in records:
            row = cell_row(record)
            table.writerow([keep(v) if isinstance(v, str) else v for v in row.values()])
            if row["samples"]:
                place = [keep(v) if isinstance(v := row[key], str) else v for key in _PLACE]
                rows.writerows([*place, *slot] for slot in _slots(root / row["samples"]))


def _slots(path: Path) -> Iterator[list[str]]:
    """Yield the rows of a sample file in the order of ``COLUMNS``; a torn one is left out."""
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return
    lines = text.split("\n")[:-1]
    rows = _whole(csv.reader(lines))
    header = next(rows, [])
    for row in rows:
        if len(row) == len(header):
            found = dict(zip(header, row, strict=True))
            yield [found.get(name, "") for name in COLUMNS]


def _whole(reader: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield the rows of a reader without those that are no row of a table."""
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            continue


def _polars() -> Any:
    try:
        import polars
    except ImportError as error:
        raise Unavailable(
            f"Parquet is written by polars, which cannot be imported: {error}.",
            reason="import",
            hint="pip install 'ngraphbench[tables]', or write --csv.",
        ) from error
    return polars


def _parquet(polars: Any, path: Path, folder: Path) -> Path:
    """Return the Parquet file made of a CSV file, in ``folder``."""
    target = folder / f"{path.stem}.parquet"
    names = CELL_COLUMNS if path.stem == "cells" else SLOT_COLUMNS
    schema = {name: _type(polars, name) for name in names}
    with replaced(target) as partial:
        polars.scan_csv(path, schema=schema).sink_parquet(partial)
    return target


_SLOT_WHOLE = ("epoch", "round", "position", "calls", "slot_ns", "first_ns", "cpu_ns", "nivcsw")


def _type(polars: Any, name: str) -> Any:
    if name in (*_TEXT, "mode", "sub_ns"):
        return polars.String
    return polars.Int64 if name in (*_WHOLE, *_SLOT_WHOLE) else polars.Float64
