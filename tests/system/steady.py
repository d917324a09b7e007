"""Records without what is up to the machine: whether a program ran steadily beside others."""

from __future__ import annotations

from collections.abc import Iterable

from ngraphbench.types import Json

__all__ = ["as_steady", "is_calm"]


def as_steady(record: Json) -> Json:
    """Return the record as it would be, had no step or second mode been seen in its slots.

    All other outcomes stay: a test that expects a measured cell still fails on one that was not.
    """
    if record["status"] != "unstable":
        return record
    found = record["verification"] or {}
    if found.get("verdict") == "unverifiable":
        return {**record, "status": "unverifiable", "reason": found["reason"]}
    return {**record, "status": "ok", "reason": "", "message": ""}


def is_calm(records: Iterable[Json], sessions: Iterable[Json]) -> bool:
    """Return whether the machine let a run be judged: all steady, and no control failed."""
    controls = (session["sentinel"] or {} for session in sessions)
    steady = all(record["status"] != "unstable" for record in records)
    return steady and not any(control.get("excludes_one") for control in controls)
