"""What a deployment must keep to, and whether a measured cell does: pass, fail or undecided.

A constraint that its interval does not decide is ``undecided``, and so never a pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from ngraphbench.analysis.tables import Cell, Interval
from ngraphbench.blocksummary import PERCENTILES, fewest_calls
from ngraphbench.types import Json

__all__ = ["MEMORY_MARGIN", "Check", "Constraints", "State", "checks_of", "state_of"]

Finding: TypeAlias = Literal["pass", "fail", "undecided"]
State: TypeAlias = Literal["passes", "fails", "undecided"]

MEMORY_MARGIN = 0.05
"""Peak memory is one number without an interval: closer to the limit than this, it is open."""

MAX_DROP = 0.01
"""How much of a task metric may be lost unless the user says."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """Limits; None is no limit. ``rate_per_s`` are calls per second, whatever the batch size.

    ``p99_ms`` is of responses at that rate, or of calls back to back where there is none.
    ``tolerance`` bounds the relative L2 error of the outputs; ``max_drop`` how far a task
    metric may be from the uncompiled model's, where a labelled set was given.
    """

    p99_ms: float | None = None
    rate_per_s: float | None = None
    min_throughput_per_s: float | None = None
    max_memory_bytes: int | None = None
    tolerance: float | None = None
    max_drop: float | None = None

    def to_json(self) -> Json:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Constraints:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Check:
    """Whether one constraint is kept, and by how much it is missed, in words."""

    name: str
    verdict: Finding
    text: str


def checks_of(cell: Cell, wanted: Constraints) -> tuple[Check, ...]:
    """Return one check per constraint of a cell that has a result, outputs first."""
    checks = [_outputs(cell)]
    if wanted.tolerance is not None:
        checks.append(_tolerance(cell, wanted.tolerance))
    if _evaluation(cell) is not None:
        checks.append(_task(cell, MAX_DROP if wanted.max_drop is None else wanted.max_drop))
    if wanted.rate_per_s is not None:
        checks.append(_rate(cell, wanted.rate_per_s))
    if wanted.p99_ms is not None:
        checks.append(_p99(cell, wanted.p99_ms, wanted.rate_per_s))
    if wanted.min_throughput_per_s is not None:
        checks.append(_throughput(cell, wanted.min_throughput_per_s))
    if wanted.max_memory_bytes is not None:
        checks.append(_memory(cell, wanted.max_memory_bytes))
    return tuple(checks)


def state_of(checks: tuple[Check, ...]) -> State:
    """Return ``fails`` if any constraint is surely missed, ``passes`` if all are surely kept."""
    found = {check.verdict for check in checks}
    if "fail" in found:
        return "fails"
    return "undecided" if "undecided" in found else "passes"


def _outputs(cell: Cell) -> Check:
    if cell.status == "ok":
        return Check("outputs", "pass", "outputs are right")
    told = _evaluation(cell)
    if told is not None and told["value"] is not None:
        return Check("outputs", "pass", "judged by the task metric")
    reason = cell.record["message"] or "there is no dependable reference for its outputs"
    return Check("outputs", "undecided", str(reason))


def _tolerance(cell: Cell, limit: float) -> Check:
    found = (cell.record["verification"] or {}).get("rel_l2")
    if found is None:
        return Check("tolerance", "undecided", "the error of its outputs is not known")
    told = f"relative error {found:.2g}, limit {limit:g}"
    if found <= limit:
        return Check("tolerance", "pass", told)
    return Check("tolerance", "fail", f"{told}: {found / limit:.3g} times too large")


def _evaluation(cell: Cell) -> Json | None:
    found: Json | None = (cell.record["verification"] or {}).get("eval")
    return found


def _task(cell: Cell, drop: float) -> Check:
    told = _evaluation(cell) or {}
    value, reference = told.get("value"), told.get("reference")
    name = str(told.get("metric", "metric"))
    if value is None or reference is None:
        return Check("eval", "undecided", str(told.get("problem") or f"{name} was not computed"))
    # Of a metric of the user's nobody knows here whether more is better.
    lost = reference - value if name == "top1" else abs(reference - value)
    text = f"{name} {value:.4g} on {told['items']} items, {reference:.4g} uncompiled"
    if lost <= drop + 1e-12:
        return Check("eval", "pass", text)
    return Check("eval", "fail", f"{text}: {lost:.3g} off, limit {drop:g}")


def _block(cell: Cell, kind: str) -> Json | None:
    blocks = cell.record.get("blocks") or ()
    return next((block for block in blocks if block["kind"] == kind), None)


def _rate(cell: Cell, rate_per_s: float) -> Check:
    block, latency = _block(cell, "paced"), cell.latency
    if block is not None and block["rate_per_s"] == rate_per_s:
        if block["status"] == "ok":
            return Check("rate", "pass", f"keeps up with {rate_per_s:g}/s")
        if block["status"] == "overloaded":
            missed = block["missed_share"]
            late = f", {100 * missed['estimate']:.0f} % of responses late" if missed else ""
            return Check("rate", "fail", f"cannot keep up with {rate_per_s:g}/s{late}")
        return Check("rate", "undecided", f"at {rate_per_s:g}/s: {_why(block)}")
    if latency is not None and latency.low * rate_per_s > 1e3:
        most = 1e3 / latency.low
        text = f"a call takes {_ms(latency)}, so at most {most:.3g} of {rate_per_s:g}/s"
        return Check("rate", "fail", text)
    return Check("rate", "undecided", f"not measured at {rate_per_s:g}/s")


def _why(block: Json) -> str:
    return str(block["message"] or block["reason"] or block["status"])


def _p99(cell: Cell, limit_ms: float, rate_per_s: float | None) -> Check:
    block = _block(cell, "tails" if rate_per_s is None else "paced")
    key = "service_ms" if rate_per_s is None else "response_ms"
    where = "" if rate_per_s is None else f" at {rate_per_s:g}/s"
    if block is not None and block["status"] == "overloaded":
        return Check("p99", "fail", f"no p99{where}: responses wait ever longer")
    found = (block or {}).get(key) or {}
    if "p99" in found:
        value = Interval.from_json(found["p99"])
        return _bounded("p99", value, limit_ms, f"p99{where} {_ms(value)}", unit="ms")
    latency = cell.latency
    if latency is not None and latency.low > limit_ms:
        # The median of responses is no lower than a typical call alone.
        over = _percent_over(latency.estimate, limit_ms)
        text = f"a typical call alone takes {_ms(latency)}, {over} over {limit_ms:g} ms"
        return Check("p99", "fail", text)
    if block is None:
        return Check("p99", "undecided", f"p99{where} was not measured")
    calls, needed = block["requests"], fewest_calls(PERCENTILES["p99"])
    lack = f"{calls} calls, a p99 needs {needed}" if calls < needed else _why(block)
    return Check("p99", "undecided", f"p99{where} is not known: {lack}")


def _bounded(name: str, value: Interval, limit: float, text: str, *, unit: str) -> Check:
    """Return whether a value is below its limit: by the end of its interval, or undecided."""
    told = f"{text}, limit {limit:g} {unit}"
    if value.high <= limit:
        return Check(name, "pass", told)
    if value.low > limit:
        return Check(name, "fail", f"{told}: {_percent_over(value.estimate, limit)} over")
    return Check(name, "undecided", f"{told}: the interval holds the limit")


def _throughput(cell: Cell, limit: float) -> Check:
    value = cell.throughput
    if value is None:
        return Check("throughput", "undecided", "its throughput is not known")
    told = f"{value.estimate:.4g}/s ({value.low:.4g}-{value.high:.4g}), at least {limit:g}/s wanted"
    if value.low >= limit:
        return Check("throughput", "pass", told)
    if value.high < limit:
        short = 100 * (1 - value.estimate / limit)
        return Check("throughput", "fail", f"{told}: {short:.2g} % short")
    return Check("throughput", "undecided", f"{told}: the interval holds the limit")


def _memory(cell: Cell, limit: int) -> Check:
    costs = cell.record["costs"]
    # The host's memory and the device's are limited alike.
    parts = [costs.get("peak_rss_bytes"), costs.get("device_memory_bytes")]
    known = [int(part) for part in parts if part is not None]
    if not known:
        return Check("memory", "undecided", "its peak memory is not known")
    peak = max(known)
    told = f"peak memory {_mib(peak)}, limit {_mib(limit)}"
    if abs(peak / limit - 1) < MEMORY_MARGIN:
        return Check("memory", "undecided", f"{told}: closer than {100 * MEMORY_MARGIN:.0f} %")
    if peak > limit:
        return Check("memory", "fail", f"{told}: {_percent_over(peak, limit)} over")
    return Check("memory", "pass", told)


def _percent_over(value: float, limit: float) -> str:
    """Return by how much, with two digits, and never as a power of ten.

    >>> _percent_over(1.005, 1.0), _percent_over(903.0, 33.0)
    ('0.5 %', '2,636 %')
    """
    percent = 100 * (value / limit - 1)
    return f"{percent:,.0f} %" if percent >= 10 else f"{percent:.2g} %"


def _ms(value: Interval) -> str:
    return f"{value.estimate:.3g} ms ({value.low:.3g}-{value.high:.3g})"


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"
