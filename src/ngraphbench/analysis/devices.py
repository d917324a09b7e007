"""Does what is faster on one device stay faster on another?

Two compilers of one model, or two models under one compiler, are ordered by the paired rounds of
one session on each device. Nothing is compared between devices but those two orders.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple, TypeAlias

from ngraphbench.analysis.reversal import Order, comparable
from ngraphbench.analysis.tables import Cell, Evidence, Group, Interval, Read
from ngraphbench.summary import verdict as judge
from ngraphbench.types import Json

__all__ = ["Crossing", "crossings", "crossings_of"]

Kind: TypeAlias = Literal["compilers", "models"]


@dataclass(frozen=True, slots=True)
class Crossing:
    """The order of A and B on two devices.

    ``kind`` says what A and B are, ``shared`` is the model or the compiler that both have.
    ``ratios`` are throughput of A over throughput of B on each device, ``power_modes`` what the
    devices were set to. ``reason`` says why an order is unresolved: ``interval`` or ``untrusted``.
    """

    kind: Kind
    a: str
    b: str
    shared: str
    batch: int
    precision: str
    devices: tuple[str, str]
    session_ids: tuple[str, str]
    power_modes: tuple[str | None, str | None]
    verdict: Order
    ratios: tuple[Interval, Interval]
    reason: str = ""

    @property
    def strength(self) -> float:
        """How far both orders are from a tie, as the smaller log ratio."""
        return min(abs(math.log(one.estimate)) if one.estimate > 0 else 0.0 for one in self.ratios)

    @property
    def sentence(self) -> str:
        """One sentence without a full stop, for people."""
        shared = f"for {self.shared}" if self.kind == "compilers" else f"under {self.shared}"
        places = [
            f"{device} ({mode})" if mode else device
            for device, mode in zip(self.devices, self.power_modes, strict=True)
        ]
        names, where = f"{self.a} and {self.b}", f"{shared} at batch {self.batch}"
        verb = {
            "reversed": f"{names} swap places between devices {where}",
            "kept": f"{names} keep their order on both devices {where}",
            "tie": f"{names} tie on one of two devices {where}",
            "unresolved": f"The order of {names} is unresolved on one of two devices {where}",
        }[self.verdict]
        times = ", ".join(
            f"{ratio.times} on {place}" for ratio, place in zip(self.ratios, places, strict=True)
        )
        return f"{verb}: the first has so many times the throughput of the second: {times}"


class _Pair(NamedTuple):
    """A and B in one session, and what that session is."""

    group: Group
    a: Cell
    b: Cell
    names: tuple[Kind, str, str, str]


def crossings(records: Sequence[Json], sessions: Sequence[Json], read: Read) -> list[Crossing]:
    """Return one verdict per pair and two devices that measured it, most decisive first."""
    return crossings_of(Evidence(records, sessions, read))


def crossings_of(evidence: Evidence) -> list[Crossing]:
    """Return what ``crossings`` does, of an evidence that is there."""
    places: dict[tuple[object, ...], dict[str, _Pair]] = {}
    for key, pair in _pairs(evidence):
        # Of several sessions on one device the last one counts.
        places.setdefault(key, {})[pair.group.device] = pair
    found = [
        crossing
        for by_device in places.values()
        for one, other in combinations(by_device.values(), 2)
        if (crossing := _judged(evidence, one, other)) is not None
    ]
    rank = {"reversed": 0, "kept": 1, "tie": 2, "unresolved": 3}
    return sorted(found, key=lambda crossing: (rank[crossing.verdict], -crossing.strength))


def _pairs(evidence: Evidence) -> Iterator[tuple[tuple[object, ...], _Pair]]:
    """Yield every two cells of one session that differ in model or compiler alone."""
    by_session: dict[str, list[Group]] = {}
    for group in evidence.groups:
        by_session.setdefault(group.session_id, []).append(group)
        cells = sorted(comparable(group).items())
        # Batch, precision and shapes; threads may be other ones on another device.
        alike = group.setting[:3]
        for (first, a), (second, b) in combinations(cells, 2):
            names: tuple[Kind, str, str, str] = ("compilers", first, second, _label(group))
            yield ("compilers", group.model, first, second, *alike), _Pair(group, a, b, names)
    for groups in by_session.values():
        for one, other in combinations(sorted(groups, key=lambda group: group.model), 2):
            if one.setting != other.setting or one.model == other.model:
                continue
            left, right = comparable(one), comparable(other)
            for label in sorted(left.keys() & right.keys()):
                names = ("models", _label(one), _label(other), label)
                key = ("models", label, one.model, other.model, *one.setting[:3])
                yield key, _Pair(one, left[label], right[label], names)


def _label(group: Group) -> str:
    return str(group.cells[0].record["case"]["model"]["label"])


def _judged(evidence: Evidence, one: _Pair, other: _Pair) -> Crossing | None:
    ratios: list[Interval] = []
    orders: set[str] = set()
    for pair in (one, other):
        comparison = evidence.compare(pair.b, pair.a)
        if comparison is None:
            return None
        ratios.append(Interval.from_comparison(comparison))
        orders.add(judge(comparison, evidence.profile(pair.group.session_id).tie))
    sessions = (one.group.session_id, other.group.session_id)
    verdict, reason = _verdict(orders)
    if any(evidence.untrusted(session_id) for session_id in sessions):
        verdict, reason = "unresolved", "untrusted"
    kind, a, b, shared = one.names
    return Crossing(
        kind=kind,
        a=a,
        b=b,
        shared=shared,
        batch=one.group.batch,
        precision=one.group.precision,
        devices=(one.group.device, other.group.device),
        session_ids=sessions,
        power_modes=(_mode(evidence, sessions[0]), _mode(evidence, sessions[1])),
        verdict=verdict,
        ratios=(ratios[0], ratios[1]),
        reason=reason,
    )


def _verdict(orders: set[str]) -> tuple[Order, str]:
    if "unresolved" in orders:
        return "unresolved", "interval"
    if "tie" in orders:
        return "tie", ""
    return ("reversed" if len(orders) == 2 else "kept"), ""


def _mode(evidence: Evidence, session_id: str) -> str | None:
    host = (evidence.sessions.get(session_id) or {}).get("host") or {}
    mode = host.get("power_mode")
    return None if mode is None else str(mode)
