"""Sample files: CSV, one row per slot, one file per case of a session.

What solo blocks gave stands in a file beside it, one row per request.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngraphbench.errors import StoreError
from ngraphbench.store.disk import append_synced, cut_torn_line, write_whole
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
    columns: dict[str, Any] = {}
    for i, name in enumerate(header):
        convert = _converter(name)
        values = []
        for number, row in enumerate(rows, start=2):
            try:
                values.append(convert(row[i]))
            except (ValueError, OverflowError) as error:
                raise _bad_row(path, number, f"{name} cannot be {row[i]!r}") from error
        columns[name] = values if name == "sub_ns" else np.array(values, dtype=_dtype(name))
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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        cut_torn_line(path)
        is_empty = not path.exists() or path.stat().st_size == 0
        header = ",".join(columns) + "\n" if is_empty else ""
        append_synced(path, (header + text.getvalue()).encode("utf-8"))
    except OSError as error:
        raise StoreError(
            f"The samples {path} cannot be written: {error.strerror}.",
            reason="write",
            hint="Free some space or fix the permissions, then run again to resume.",
        ) from error


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
    rows = [next(csv.reader([line]), []) for line in lines]
    if not rows:
        return list(COLUMNS), []
    header, *body = rows
    for number, row in enumerate(body, start=2):
        if len(row) != len(header):
            if number == len(rows):
                return header, body[:-1]
            raise _bad_row(path, number, f"{len(row)} fields, not {len(header)}")
    return header, body


def _bad_row(path: Path, number: int, what: str) -> StoreError:
    return StoreError(
        f"{path}:{number}: {what}.",
        reason="corrupt",
        hint="Something else wrote to the samples; measure the session again.",
    )


def _converter(name: str) -> Callable[[str], Any]:
    if name in _TEXT:
        return str
    if name == "sub_ns":
        return _floats
    return int if name in _WHOLE else float


def _floats(text: str) -> Array:
    return np.array([float(part) for part in text.split(";")] if text else [], dtype=np.float64)


def _dtype(name: str) -> type[Any]:
    return str if name in _TEXT else np.int64 if name in _WHOLE else np.float64


def _text(name: str, value: Any) -> str:
    if name in _TEXT:
        return str(value)
    if name == "sub_ns":
        return ";".join(repr(float(part)) for part in value)
    return str(int(value)) if name in _WHOLE else repr(float(value))
