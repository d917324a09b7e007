"""One self-contained page: the answer first, then the evidence, then what it does not tell.

The page holds nothing that is not in records or derived from samples. Every string is
escaped, links can only lead into the run directory, and nothing is fetched or scripted.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from ngraphbench import __version__
from ngraphbench.analysis.reversal import Reversal, reversals
from ngraphbench.analysis.tables import Cell, Evidence, Group, Interval, Read
from ngraphbench.analysis.verdict import Verdict, headline_sentences, verdicts
from ngraphbench.analysis.versions import version_verdicts
from ngraphbench.errors import NGraphBenchError, StoreError
from ngraphbench.records import FAILURES
from ngraphbench.report.alone import block_tables
from ngraphbench.report.wording import (
    FLAGS,
    MARKS,
    STATUSES,
    cautions,
    cost,
    evaluation_lines,
    figure,
    flags_used,
    plus_minus,
    session_notes,
    visible,
)
from ngraphbench.types import Json

__all__ = ["write_report"]

MESSAGE_LENGTH = 4000
WEAK_CONTROL_PERCENT = 10.0
"""An A/A interval wider than this would hide what the run wants to tell."""

COSTS = {
    "export_s": "export",
    "environment_s": "environment",
    "import_s": "import",
    "tuning_s": "tuning",
    "compile_cold_s": "compile, cold",
    "compile_warm_s": "compile, warm",
    "artifact_load_s": "load artefact",
    "load_s": "load inputs",
    "first_run_s": "first run",
    "runs_until_steady": "runs until steady",
    "artifact_bytes": "artefact",
    "peak_rss_bytes": "peak memory",
    "leak_bytes_per_1000_calls": "growth/1000 calls",
    "device_memory_bytes": "device memory",
    "energy_joules": "energy",
}


def write_report(
    path: Path,
    records: Sequence[Json],
    sessions: Sequence[Json],
    read: Read,
    *,
    title: str,
    root: Path | None = None,
) -> None:
    """Write the page to ``path``; ``root`` is the run directory (by default the page's own).

    The page appears whole or not at all. Raises StoreError when it cannot be written, and
    NGraphBenchError without jinja2.
    """
    home = os.path.relpath(root or path.parent, path.parent)
    page = _page(records, sessions, functools.cache(read), title=title, home=home)
    text = _render(page)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise StoreError(
            f"The report {path} cannot be written: {error.strerror}.",
            reason="write",
            hint="Give a file in a folder that is there, with --html.",
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _render(page: Json) -> str:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise NGraphBenchError(
            "The HTML report needs jinja2, which is not installed here.",
            reason="missing-jinja2",
            hint="Run: pip install 'ngraphbench[report]'",
        ) from error
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html").render(page)


def _shown(value: Any) -> Any:
    """Make strings safe to look at; markup that the template itself made stays."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value, keep="\n\t")
    return value


def _page(
    records: Sequence[Json], sessions: Sequence[Json], read: Read, *, title: str, home: str
) -> Json:
    evidence = Evidence(records, sessions, read)
    answers = verdicts(records, sessions, read)
    orders = reversals(records, sessions, read)
    link = functools.partial(_href, home)
    groups = [
        _group(evidence, group, answer, link)
        for group, answer in zip(evidence.groups, answers, strict=True)
    ]
    cells = [row for group in groups for row in group["rows"]]
    return {
        "title": title,
        "version": __version__,
        "headline": headline_sentences(answers, orders),
        "answers": answers,
        "groups": groups,
        "cells": cells,
        "failures": [row for row in cells if not row["rate"]],
        "versions": version_verdicts(evidence),
        "orders": _orders(orders),
        "unpaired": sum(order.reason == "unpaired" for order in orders),
        "verified": [row for row in cells if row["verification"]],
        "evaluations": evaluation_lines(evidence),
        "alone": block_tables(evidence),
        "costs": _costs(cells),
        "flags": [(flag, FLAGS.get(flag, "see the record")) for flag in flags_used(evidence)],
        "statuses": [(s, m) for s, m in STATUSES.items() if s in {r["status"] for r in cells}],
        "cautions": cautions(evidence),
        "notes": session_notes(evidence),
        "sessions": [_session(session, link) for session in evidence.sessions.values()],
        "environments": _environments(evidence.cells),
        "counts": _counts(evidence),
    }


def _counts(evidence: Evidence) -> str:
    """Return the run in figures, such as ``16 cells: 13 ok, 1 crashed, 2 wrong``."""
    by_status = {s: sum(cell.status == s for cell in evidence.cells) for s in STATUSES}
    parts = ", ".join(f"{count} {status}" for status, count in by_status.items() if count)
    count = len(evidence.cells)
    return f"{count} {'cell' if count == 1 else 'cells'}: {parts}" if count else "no cells"


def _href(home: str, path: object) -> str:
    """Return a relative link into the run directory, or "" for a path that leads out of it."""
    parts = PurePosixPath(str(path or "")).parts
    if not parts or ".." in parts or parts[0].startswith("/"):
        return ""
    target = str(PurePosixPath(home, *parts))
    return quote(target.encode("utf-8", "surrogateescape"))


def _group(
    evidence: Evidence, group: Group, answer: Verdict, link: Callable[[object], str]
) -> Json:
    rates = [cell.throughput for cell in group.cells if cell.throughput]
    base = group.base.throughput if group.base else None
    full = max((rate.high for rate in rates if math.isfinite(rate.high)), default=1.0)
    ratios = [cell.speedup for cell in group.cells if cell.speedup]
    axis = _log_axis(ratios)
    first = group.cells[0].record
    return {
        "title": group.title,
        "batch": group.batch,
        "baseline": group.baseline,
        "answer": answer,
        "facts": [group.device, group.precision, f"weights {first['weights']}"],
        "base_at": _percent(base.estimate / full) if base else None,
        "one_at": axis(1.0),
        "rows": [
            _row(group, cell, answer, full=full, axis=axis, link=link) for cell in group.cells
        ],
    }


def _row(
    group: Group,
    cell: Cell,
    answer: Verdict,
    *,
    full: float,
    axis: Callable[[float], float],
    link: Callable[[object], str],
) -> Json:
    record = cell.record
    rate, speedup = cell.throughput, cell.speedup
    is_base = cell.label == group.baseline
    samples = (record["measurement"] or {}).get("samples", "")
    return {
        "id": f"cell-{group.session_id[:16]}-{record['case_id'][:16]}",
        "model": group.title,
        "batch": group.batch,
        "label": cell.label,
        "status": cell.status,
        "reason": record["reason"],
        "stage": record["stage"],
        "message": _message(record),
        "hint": record["detail"].get("hint", ""),
        "failed": cell.status in FAILURES,
        "refused": cell.partly_compiled,
        "top": cell.label in answer.top and answer.outcome != "unresolved",
        "is_base": is_base,
        "rate": figure(rate.estimate) if rate else "",
        "spread": plus_minus(rate) if rate else "",
        "bar": _marks(rate, lambda value: _percent(value / full)),
        "speedup": None if is_base else speedup,
        "speedup_at": None if is_base else _marks(speedup, axis),
        "mark": cell.mark,
        "sign": MARKS.get(cell.mark, ""),
        "latency": figure(cell.latency.estimate) if cell.latency else "",
        "flags": record["flags"],
        "verification": record["verification"],
        "coverage": _pairs(record["coverage"]),
        "costs": record["costs"],
        "command": record["command"],
        "samples": samples,
        "samples_href": link(samples),
        "log": record["log"],
        "log_href": link(record["log"]),
    }


def _message(record: Json) -> str:
    message = str(record["message"]).strip()
    return message if len(message) <= MESSAGE_LENGTH else message[:MESSAGE_LENGTH] + " … (cut)"


def _percent(share: float) -> float:
    return round(100.0 * min(1.0, max(0.0, share)), 2) if math.isfinite(share) else 0.0


def _marks(interval: Interval | None, place: Callable[[float], float]) -> Json | None:
    """Return where on an axis, in percent, an estimate and its interval's ends stand."""
    if interval is None:
        return None
    keys = ("at", "low", "high")
    values = (interval.estimate, interval.low, interval.high)
    return {key: place(value) for key, value in zip(keys, values, strict=True)}


def _log_axis(ratios: Sequence[Interval | None]) -> Callable[[float], float]:
    """Return a map of ratios to percent of a logarithmic axis that holds 1 and all of them."""
    ends = [end for ratio in ratios if ratio for end in (ratio.low, ratio.high)]
    logs = [0.0, *(math.log(end) for end in ends if end > 0 and math.isfinite(end))]
    low, high = min(logs), max(logs)
    margin = 0.08 * (high - low) + 0.02
    low, span = low - margin, high - low + 2 * margin
    return lambda ratio: _percent((math.log(ratio) - low) / span) if ratio > 0 else 0.0


def _orders(orders: Sequence[Reversal]) -> Json:
    shown = [order for order in orders if order.reason != "unpaired"]
    axis = _log_axis([r for o in shown for r in (o.under_baseline, o.under_compiler)])
    rows = [
        {
            "order": order,
            "baseline_at": _marks(order.under_baseline, axis),
            "compiler_at": _marks(order.under_compiler, axis),
        }
        for order in shown
    ]
    return {"rows": rows, "one_at": axis(1.0)}


def _costs(cells: Sequence[Json]) -> Json:
    """Return the costs that were measured at all, one row per cell."""
    used = [key for key in COSTS if any(cell["costs"].get(key) is not None for cell in cells)]
    return {
        "heads": [COSTS[key] for key in used],
        "rows": [
            {"cell": cell, "values": [cost(key, cell["costs"]) for key in used]}
            for cell in cells
            if any(cell["costs"].get(key) is not None for key in used)
        ],
    }


def _session(session: Json, link: Callable[[object], str]) -> Json:
    host = {key.replace("_", " "): value for key, value in session["host"].items()}
    sentinel = session["sentinel"]
    launch = session["launch_sd"]
    facts = {
        "started": session["started_at"],
        "finished": session["finished_at"],
        "status": session["status"],
        "profile": session["profile"]["name"],
        "loop": session["mode"],
        "claim": session.get("conditions", {}).get("claim", "artefact"),
        "launches done": session["epochs_done"],
        "launch spread (sd)": f"{100 * launch:.2g} %" if launch is not None else None,
        "seed": session["seed"],
        "baseline": session["baseline"],
        "tool": session["tool_version"],
    }
    control = Interval.from_json(sentinel) if sentinel else None
    return {
        "id": session["session_id"],
        "facts": _pairs(facts) + _pairs(host),
        "canaries": [
            (name, f"{100 * canary['spread']:.1f} %")
            for name, canary in (session["canaries"] or {}).items()
            if canary and canary.get("spread") is not None
        ],
        "control": control,
        "control_fails": bool(sentinel and sentinel["excludes_one"]),
        "control_is_weak": bool(control and control.half_percent > WEAK_CONTROL_PERCENT),
        "control_href": link(sentinel["samples"]) if sentinel else "",
        "flags": session["flags"],
    }


def _pairs(facts: Json | None) -> list[tuple[str, str]]:
    """Return what is known of ``facts`` as pairs of text."""
    return [(str(k), _plain(v)) for k, v in (facts or {}).items() if v is not None and v != ""]


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)


def _environments(cells: Sequence[Cell]) -> list[Json]:
    """Return each different environment once, with the candidates that ran in it."""
    found: dict[str, Json] = {}
    for cell in cells:
        environment = cell.record["environment"]
        if environment:
            key = json.dumps([cell.compiler, environment], sort_keys=True)
            found.setdefault(
                key,
                {
                    "label": cell.label,
                    "python": environment.get("python", ""),
                    "version": environment.get("compiler_version", ""),
                    "packages": _pairs(environment.get("packages")),
                    "variables": _pairs(environment.get("variables")),
                    "lock": environment.get("lock", ""),
                },
            )
    return list(found.values())
