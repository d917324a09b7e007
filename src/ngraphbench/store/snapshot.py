"""Snapshots: a run trimmed to what comparing needs, as one file that fits beside the code.

It holds the records and the slots' values, and none of this machine's paths.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngraphbench.errors import StoreError
from ngraphbench.store.disk import make_folders, write_whole
from ngraphbench.summary import Samples
from ngraphbench.types import Json

__all__ = ["Snapshot", "is_snapshot", "read_snapshot", "write_snapshot"]

KIND = "ngraphbench-snapshot"
VERSION = 1
COLUMNS = ("epoch", "round", "call_ns")
DIGITS = 6
"""Of a slot's value: noise is ten thousand times as large as what this rounds off."""
_HINT = "Make one with `ngb compare --save FILE RUN`."


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stored run: its case and session records, and samples by the path their records give.

    ``current`` holds session and case id of the records that count; others stood beside them.
    """

    records: list[Json]
    sessions: list[Json]
    slots: dict[str, Samples]
    current: list[tuple[str, str]]

    def read(self, path: str) -> Samples:
        """Return the columns that comparing needs. Raises StoreError where there are none."""
        if path not in self.slots:
            raise StoreError(f"The snapshot holds no samples {path}.", reason="missing")
        return self.slots[path]


def is_snapshot(path: Path) -> bool:
    """Return whether ``path`` is a file, as a snapshot is, and no run directory."""
    return path.is_file()


def write_snapshot(
    path: Path,
    records: Sequence[Json],
    sessions: Sequence[Json],
    read: Callable[[str], Samples],
    *,
    current: Sequence[tuple[str, str]],
) -> Path:
    """Write a run as one file and return its path. ``current`` as in ``Snapshot``.

    Raises StoreError where samples cannot be read or the file cannot be written.
    """
    used = {session for session, _ in current}
    kept = [record for record in records if record["session_id"] in used]
    slots: dict[str, dict[str, list[float]]] = {}
    for record in kept:
        if record["measurement"]:
            name = record["measurement"]["samples"]
            slots[name] = _columns(read(name))
    whole = {
        "kind": KIND,
        "version": VERSION,
        "records": [_trimmed(record) for record in kept],
        "current": [list(key) for key in current],
        "sessions": [session for session in sessions if session["session_id"] in used],
        "samples": slots,
    }
    make_folders(path.parent)
    write_whole(path, json.dumps(whole, separators=(",", ":")) + "\n")
    return path


def _columns(samples: Samples) -> dict[str, list[float]]:
    found = {name: np.asarray(samples[name]).tolist() for name in COLUMNS}
    found["call_ns"] = [float(f"{value:.{DIGITS}g}") for value in found["call_ns"]]
    return found


def _trimmed(record: Json) -> Json:
    """Return a record without what names this machine's files, or is not compared."""
    case = record["case"]
    model = {**case["model"], "path": "", "checkpoint": "", "inputs_file": ""}
    model.pop("evaluation", None)
    kept = {**record, "case": {**case, "model": model}}
    kept |= {"command": "", "log": "", "detail": {}, "message": ""}
    environment = {**record["environment"], "variables": {}}
    return {**kept, "environment": environment, "verification": None}


def read_snapshot(path: Path) -> Snapshot:
    """Return the snapshot in a file. Raises StoreError when it holds something else."""
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(
            f"{path} cannot be read: {error}.", reason="corrupt", hint=_HINT
        ) from error
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise StoreError(f"{path} is no snapshot of a run.", reason="not-a-run", hint=_HINT)
    if found.get("version") != VERSION:
        raise StoreError(
            f"{path} is a snapshot of version {found.get('version')}; this tool reads {VERSION}.",
            reason="newer",
            hint="Make it anew with `ngb compare --save`, or use the tool that wrote it.",
        )
    try:
        slots: dict[str, Samples] = {
            name: {column: np.array(values[column], dtype=_dtype(column)) for column in COLUMNS}
            for name, values in found["samples"].items()
        }
        current = [(str(session), str(case)) for session, case in found["current"]]
        return Snapshot(list(found["records"]), list(found["sessions"]), slots, current)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"{path} is a broken snapshot: {error!r}.", reason="corrupt", hint=_HINT
        ) from error


def _dtype(column: str) -> type:
    return float if column == "call_ns" else np.int64
