"""Sample files: CSV, one row per slot, one file per case of a session.

What solo blocks gave stands in a file beside it, one row per request.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ngraphbench.errors import StoreError
from ngraphbench.store.disk import append_synced, cut_torn_line, make_folders, write_whole
from ngraphbench.types import Array

__all__ = [
    "BLOCK_COLUMNS",
    "COLUMNS",
    "append_samples",
    "block_file",
    "drop_unfinished_epochs",
    "read_samples",
    "sample_file",
]

COLUMNS = (
    *("epoch", "round", "position", "mode", "calls", "slot_ns"),
    *("call_ns", "first_ns", "cpu_ns", "nivcsw", "sub_ns"),
)

BLOCK_COLUMNS = (*("epoch", "kind", "in_flight", "index", "calls", "due_ns", "start_ns", "end_ns"),)
"""A row is a request, or with ``calls`` above 1 a slot of a sustained block. Times count from
the start of the block."""

_TEXT = {"mode", "kind"}
_WHOLE = {"epoch", "round", "position", "calls", "slot_ns", "first_ns", "cpu_ns", "nivcsw"}
_WHOLE |= set(BLOCK_COLUMNS) - _TEXT


def sample_file(key: str) -> str:
    """Return the name of the sample file of a candidate: a case id, or such as ``sentinel``."""
    return f"{key[:16]}.csv"


def block_file(key: str) -> str:
    """Return the name of the file that holds what a candidate's solo blocks gave."""
    return f"{key[:16]}-blocks.csv"


def read_samples(path: Path) -> dict[str, Any]:
    """Return the columns of a sample file by name, one entry per slot.

    Whole numbers are int64 arrays, ``mode`` and ``kind`` arrays of text, ``sub_ns`` a list of
    float64 arrays, the rest float64 arrays. A torn last row is left out.

    Raises StoreError, with file and line, for a missing file and any other bad row.
    """
    header, rows = _read_rows(path)
    wanted = BLOCK_COLUMNS if "in_flight" in header else COLUMNS
    if missing := [name for name in wanted if name not in header]:
        raise _bad_row(path, 1, f"there is no column {missing[0]}")
    columns: dict[str, Any] = {}
    for i, name in enumerate(header):
        cells = [row[i] for row in rows]
        try:
            columns[name] = _column(name, cells)
        except (ValueError, OverflowError):
            raise _bad_cell(path, name, cells) from None
    return columns


def append_samples(
    path: Path, rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str] = COLUMNS
) -> None:
    """Append rows, keyed as in ``columns``; they are on disk when this returns.

    A new file gets its header; a torn last row is removed first. Raises StoreError.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        if set(row) != set(columns):
            wrong = sorted(set(row) ^ set(columns))
            raise StoreError(f"A sample row has or lacks {', '.join(wrong)}.", reason="columns")
        writer.writerow([_text(name, row[name]) for name in columns])
    make_folders(path.parent)
    cut_torn_line(path)
    is_empty = not path.exists() or path.stat().st_size == 0
    header = ",".join(columns) + "\n" if is_empty else ""
    append_synced(path, (header + text.getvalue()).encode("utf-8"))


def drop_unfinished_epochs(path: Path, epochs_done: int) -> None:
    """Remove the rows of epochs from number ``epochs_done`` on; epochs count from 0.

    The file is replaced as a whole; a missing file stays missing. Raises StoreError.
    """
    if not path.exists():
        return
    header, rows = _read_rows(path)
    epoch = header.index("epoch") if "epoch" in header else -1
    if epoch < 0:
        raise _bad_row(path, 1, "there is no column epoch")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for number, row in enumerate(rows, start=2):
        if not row[epoch].isdecimal():
            raise _bad_row(path, number, f"epoch cannot be {row[epoch]!r}")
        if int(row[epoch]) < epochs_done:
            writer.writerow(row)
    write_whole(path, text.getvalue())


def _read_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return header and complete rows; the numbers of fields agree."""
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise StoreError(
            f"The samples {path} cannot be read: {error.strerror}.", reason="read"
        ) from error
    lines = text.split("\n")
    # After the last line break stands nothing, or a row that was being written.
    lines.pop()
    try:
        rows = [_fields(line) for line in lines]
    except csv.Error as error:
        raise _bad_line(path, lines, error) from error
    if not rows:
        return list(COLUMNS), []
    header, *body = rows
    for number, row in enumerate(body, start=2):
        if len(row) != len(header):
            if number == len(rows):
                return header, body[:-1]
            raise _bad_row(path, number, f"{len(row)} fields, not {len(header)}")
    return header, body


def _fields(line: str) -> list[str]:
    # A reader per line costs much, and nothing that is written here is quoted.
    special = '"' in line or "\r" in line or not line
    return next(csv.reader([line]), []) if special else line.split(",")


def _bad_line(path: Path, lines: Sequence[str], error: csv.Error) -> StoreError:
    """Return what to raise about the first line that is no row."""
    for number, line in enumerate(lines, start=1):
        try:
            _fields(line)
        except csv.Error:
            return _bad_row(path, number, str(error))
    raise AssertionError("Every line is a row.")


def _bad_cell(path: Path, name: str, cells: Sequence[str]) -> StoreError:
    """Return what to raise about the first of a column's cells that cannot be read."""
    for number, cell in enumerate(cells, start=2):
        try:
            _column(name, [cell])
        except (ValueError, OverflowError):
            return _bad_row(path, number, f"{name} cannot be {cell[:80]!r}")
    raise AssertionError(f"Every cell of {name} can be read.")


def _bad_row(path: Path, number: int, what: str) -> StoreError:
    return StoreError(
        f"{path}:{number}: {what}.",
        reason="corrupt",
        hint="Something else wrote to the samples; measure the session again.",
    )


def _column(name: str, cells: Sequence[str]) -> Any:
    """Return a column's values. Raises ValueError or OverflowError where a cell has none."""
    if name in _TEXT:
        return np.array(cells, dtype=str)
    if name in _WHOLE:
        return np.array(list(map(int, cells)), dtype=np.int64)
    if name != "sub_ns":
        return _finite(cells)
    # All rows are read as one array: one for each took most of the time of a file.
    parts = [cell.split(";") if cell else [] for cell in cells]
    values = _finite([text for row in parts for text in row])
    return [values[start:end] for start, end in pairwise(accumulate(map(len, parts), initial=0))]


def _finite(cells: Sequence[str]) -> Array:
    values = np.array(list(map(float, cells)), dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(cells)
    return values


def _text(name: str, value: Any) -> str:
    if name in _TEXT:
        return str(value)
    if name == "sub_ns":
        return ";".join(repr(float(part)) for part in value)
    return str(int(value)) if name in _WHOLE else repr(float(value))
