"""Records: the only thing that is stored or sent. One JSON object per line of a journal.

Two kinds: ``case`` (one cell of one session) and ``session`` (what was measured side by
side, on which host, with which controls). ``store/schema.json`` is their JSON Schema.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Literal, TypeAlias, get_args

from ngraphbench.types import Json

__all__ = [
    "FAILURES",
    "MEASURED",
    "OPTIONAL_COSTS",
    "PARTLY_COMPILED",
    "SCHEMA_VERSION",
    "STAGES",
    "STATUSES",
    "USER_REASONS",
    "Stage",
    "Status",
    "empty_costs",
    "interval",
    "measured",
    "now_utc",
]

SCHEMA_VERSION = 1

Status: TypeAlias = Literal[
    "ok",
    "wrong",
    "unverifiable",
    "unstable",
    "unsupported",
    "unavailable",
    "failed",
    "timeout",
    "oom",
    "crashed",
    "skipped",
]
Stage: TypeAlias = Literal[
    "plan", "export", "environment", "probe", "compile", "load", "verify", "measure"
]

STATUSES: tuple[Status, ...] = get_args(Status)
STAGES: tuple[Stage, ...] = get_args(Stage)

FAILURES: frozenset[str] = frozenset({"wrong", "failed", "timeout", "oom", "crashed"})
"""Statuses that make the exit code 1."""

USER_REASONS: frozenset[str] = frozenset({"input", "input-shape", "inputs-file", "eval", "metric"})
"""Reasons that name the user's inputs: when no cell got further, the exit code is 2."""

MEASURED: frozenset[str] = frozenset({"ok", "unverifiable", "unstable"})
"""Statuses of cells whose timing may be shown as a result."""

PARTLY_COMPILED = "partly-compiled"
"""Flag of a cell whose figure is not that of the compiler alone, so it is not ranked."""


def measured(record: Json) -> bool:
    """Return whether a case record holds a timing that may be shown as a result."""
    return record["kind"] == "case" and record["status"] in MEASURED


def now_utc() -> str:
    """Return the current time in UTC, ISO 8601, to the millisecond, ending in ``Z``."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def interval(estimate: float, low: float, high: float, confidence: float, claim: str) -> Json:
    """Return an estimate with its interval; ``claim`` is ``artefact`` or ``compiler``."""
    return {
        "estimate": estimate,
        "low": low,
        "high": high,
        "confidence": confidence,
        "claim": claim,
    }


OPTIONAL_COSTS = (
    "tuning_s",
    "compile_cold_samples_s",
    "artifact_load_s",
    "leak_bytes_per_1000_calls",
)
"""Cost keys that a record has only where they were measured; older records have none."""


def empty_costs() -> dict[str, Any]:
    """Return every cost key that each record has, with None: not measured."""
    return dict.fromkeys(
        (
            "export_s",
            "environment_s",
            "import_s",
            "compile_cold_s",
            "compile_warm_s",
            "load_s",
            "first_run_s",
            "runs_until_steady",
            "artifact_bytes",
            "peak_rss_bytes",
            "device_memory_bytes",
            "energy_joules",
        )
    )
