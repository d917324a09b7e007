"""The journal: one JSON record per line, only ever appended to."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ngraphbench.errors import StoreError
from ngraphbench.records import SCHEMA_VERSION
from ngraphbench.redaction import own_redaction
from ngraphbench.store.disk import append_synced, cut_to, make_folders
from ngraphbench.types import Json

__all__ = ["Journal", "uncollected"]

Key: TypeAlias = tuple[str, str, str]

CHUNK_LINES = 64


class Journal:
    """The records in the file at ``path``, which need not exist yet.

    Reading never changes the file, so that a run can be looked at while it goes on. The
    one writer cuts off a torn last line before its first append.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: set[Key] | None = None

    def read(self) -> list[Json]:
        """Return every record, oldest first; a torn last line is left out.

        Raises StoreError, with file and line, for any other line that is not a record,
        and for records of a newer version of this tool.
        """
        return self._read()[0]

    def append(self, records: Sequence[Json]) -> list[Json]:
        """Write ``records`` in one go, on disk when this returns; return those written.

        A record that is there already (same kind, session and case) is left out. Numbers
        that are not finite become null. Raises StoreError.
        """
        known = self._prepare()
        fresh: list[Json] = []
        keys: set[Key] = set()
        for record in records:
            if (key := _key(record)) not in known | keys:
                keys.add(key)
                fresh.append(record)
        if not fresh:
            return []
        data = b"".join(_line(record) for record in fresh)
        try:
            append_synced(self.path, data)
        except StoreError:
            # What reached the disk is unknown: look again before the next append.
            self._known = None
            raise
        known |= keys
        return fresh

    def _prepare(self) -> set[Key]:
        if self._known is None:
            records, complete_bytes = self._read()
            if self.path.exists():
                cut_to(self.path, complete_bytes)
            else:
                make_folders(self.path.parent)
            self._known = {_key(record) for record in records}
        return self._known

    def stream(self) -> Iterator[Json]:
        """Yield every record, oldest first, holding one at a time. Raises as ``read`` does."""
        for record, _ in self._lines():
            if record is not None:
                yield record

    def numbered(self) -> Iterator[tuple[int, Json]]:
        """Yield every record with its line, counted from 1. Raises as ``read`` does."""
        for number, (record, _) in enumerate(self._lines(), start=1):
            if record is not None:
                yield number, record

    def _read(self) -> tuple[list[Json], int]:
        """Return the records, and the size in bytes of the lines that hold them."""
        records: list[Json] = []
        complete_bytes = 0
        with uncollected():
            for record, size_bytes in self._lines():
                complete_bytes += size_bytes
                if record is not None:
                    records.append(record)
        return records, complete_bytes

    def _lines(self) -> Iterator[tuple[Json | None, int]]:
        """Yield the record of each whole line, None for a blank one, and its size in bytes."""
        bad = 0
        try:
            with self.path.open("rb") as file:
                for number, (line, record) in enumerate(_parsed(file), start=1):
                    if not line.endswith(b"\n"):
                        # It was being written.
                        return
                    if bad:
                        raise self._corrupt(bad)
                    if record is not None:
                        self._check_version(record, number)
                    elif line.strip():
                        if _value(line) is not None:
                            raise self._corrupt(number)
                        # The last line may be torn and yet end in a line break.
                        bad = number
                        continue
                    yield record, len(line)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(
                f"The journal {self.path} cannot be read: {error.strerror}.", reason="read"
            ) from error

    def _corrupt(self, number: int) -> StoreError:
        return StoreError(
            f"{self.path}:{number}: this line is not a record.",
            reason="corrupt",
            hint="Something else wrote to the journal; remove the line to go on.",
        )

    def _check_version(self, record: Json, number: int) -> None:
        version = record.get("schema_version")
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path}:{number}: a record of schema {version}; this version of"
                f" ngraphbench reads up to {SCHEMA_VERSION}.",
                reason="version",
                hint="Use the version that wrote it, or a newer one.",
            )


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from walking records: while they are made, and right after.

    Records hold no cycles, and walking them takes as long as parsing them does.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            # Through the frozen, all that is young becomes old, which is seldom walked. What
            # the program froze itself would be thawed.
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _key(record: Json) -> Key:
    return (record["kind"], record["session_id"], record.get("case_id", ""))


def _parsed(file: Iterable[bytes]) -> Iterator[tuple[bytes, Json | None]]:
    """Yield each line with its record, None for a line that holds none.

    Lines that are parsed as one array share the names of their keys, which are most of what
    a record weighs. Where that does not give a record for each, lines are parsed one by one.
    """
    lines = iter(file)
    while chunk := list(islice(lines, CHUNK_LINES)):
        found = _value(b"[" + b",".join(chunk) + b"]")
        values = found if isinstance(found, list) else []
        if len(values) != len(chunk) or not all(map(_is_record, values)):
            values = [value if _is_record(value := _value(line)) else None for line in chunk]
        yield from zip(chunk, values, strict=True)


def _value(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_record(value: Any) -> bool:
    is_record = isinstance(value, dict) and isinstance(value.get("kind"), str)
    return is_record and isinstance(value.get("session_id"), str)


def _line(record: Json) -> bytes:
    try:
        text = json.dumps(
            own_redaction().value(_plain(record)), separators=(",", ":"), allow_nan=False
        )
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"The {record['kind']} record of session {record['session_id']} is not JSON: {error}.",
            reason="not-json",
        ) from error
    return text.encode("ascii") + b"\n"


def _plain(value: Any) -> Any:
    """Return ``value`` with numpy scalars as Python's and non-finite numbers as None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
