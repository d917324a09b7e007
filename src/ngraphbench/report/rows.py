"""What the page's tables show: groups, cells, costs, sessions, environments."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import quote

from ngraphbench.analysis.tables import Cell, Group, Interval
from ngraphbench.analysis.verdict import Verdict
from ngraphbench.records import FAILURES
from ngraphbench.report.scene import Scene, anchor, tags_of
from ngraphbench.report.wording import MARKS, cost, figure, plus_minus
from ngraphbench.types import Json

__all__ = [
    "cost_table",
    "environment_rows",
    "group_row",
    "href",
    "order_rows",
    "session_row",
]

ORDERS = 200
"""Orders of two models that are shown; reversals come first."""

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


def href(home: str, path: object) -> str:
    """Return a relative link into the run directory, or "" for a path that leads out of it."""
    text = str(path or "")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or text.startswith("/"):
        return ""
    target = "/".join(parts if home == "." else [home, *parts])
    return quote(target.encode("utf-8", "surrogateescape"))


def group_row(group: Group, answer: Verdict, link: Callable[[object], str]) -> Json:
    """Return what the page shows of a group: its verdict, and a row per candidate."""
    rates = [cell.throughput for cell in group.cells if cell.throughput]
    base = group.base.throughput if group.base else None
    full = max((rate.high for rate in rates if math.isfinite(rate.high)), default=1.0)
    axis = _log_axis([cell.speedup for cell in group.cells if cell.speedup])
    first = group.cells[0].record
    return {
        "title": group.title,
        "batch": group.batch,
        "baseline": group.baseline,
        "answer": answer,
        "tags": tags_of(group),
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
) -> SimpleNamespace:
    record = cell.record
    rate, speedup = cell.throughput, cell.speedup
    is_base = cell.label == group.baseline
    samples = (record["measurement"] or {}).get("samples", "")
    return SimpleNamespace(
        id=anchor(cell),
        tags=tags_of(group, cell.label),
        model=group.title,
        batch=group.batch,
        label=cell.label,
        status=cell.status,
        reason=record["reason"],
        stage=record["stage"],
        failed=cell.status in FAILURES,
        refused=cell.partly_compiled,
        top=cell.label in answer.top and answer.outcome != "unresolved",
        is_base=is_base,
        rate=figure(rate.estimate) if rate else "",
        spread=plus_minus(rate) if rate else "",
        bar=_marks(rate, lambda value: _percent(value / full)),
        speedup=None if is_base else speedup,
        speedup_at=None if is_base else _marks(speedup, axis),
        mark=cell.mark,
        sign=MARKS.get(cell.mark, ""),
        latency=figure(cell.latency.estimate) if cell.latency else "",
        flags=record["flags"],
        verification=record["verification"],
        coverage=_pairs(record["coverage"]),
        costs=record["costs"],
        command=record["command"],
        samples=samples,
        samples_href=link(samples),
        log=record["log"],
        log_href=link(record["log"]),
    )


def _percent(share: float) -> float:
    return round(100.0 * min(1.0, max(0.0, share)), 2) if math.isfinite(share) else 0.0


def _marks(interval: Interval | None, place: Callable[[float], float]) -> SimpleNamespace | None:
    """Return where on an axis, in percent, an estimate and its interval's ends stand."""
    if interval is None:
        return None
    return SimpleNamespace(
        at=place(interval.estimate), low=place(interval.low), high=place(interval.high)
    )


def _log_axis(ratios: Sequence[Interval | None]) -> Callable[[float], float]:
    """Return a map of ratios to percent of a logarithmic axis that holds 1 and all of them."""
    ends = [end for ratio in ratios if ratio for end in (ratio.low, ratio.high)]
    logs = [0.0, *(math.log(end) for end in ends if end > 0 and math.isfinite(end))]
    low, high = min(logs), max(logs)
    margin = 0.08 * (high - low) + 0.02
    low, span = low - margin, high - low + 2 * margin
    return lambda ratio: _percent((math.log(ratio) - low) / span) if ratio > 0 else 0.0


def order_rows(scene: Scene) -> Json:
    """Return the orders that could be told, with places on one axis."""
    scene = scene.newest
    paired = [order for order in scene.orders if order.reason != "unpaired"]
    shown = paired[:ORDERS]
    axis = _log_axis([r for o in shown for r in (o.under_baseline, o.under_compiler)])
    rows = [
        {
            "order": order,
            "tags": replace(scene.tags(order.model_a, order.compiler, order.batch), model=""),
            "baseline_at": _marks(order.under_baseline, axis),
            "compiler_at": _marks(order.under_compiler, axis),
        }
        for order in shown
    ]
    return {"rows": rows, "one_at": axis(1.0), "left_out": len(paired) - len(shown)}


def cost_table(cells: Sequence[SimpleNamespace]) -> Json:
    """Return the costs that were measured at all, one row per cell."""
    used = [key for key in COSTS if any(cell.costs.get(key) is not None for cell in cells)]
    return {
        "heads": [COSTS[key] for key in used],
        "rows": [
            {"cell": cell, "values": [cost(key, cell.costs) for key in used]}
            for cell in cells
            if any(cell.costs.get(key) is not None for key in used)
        ],
    }


def session_row(session: Json, link: Callable[[object], str]) -> Json:
    """Return what a session says of itself, its host and its control."""
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


def environment_rows(cells: Sequence[Cell]) -> list[Json]:
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
