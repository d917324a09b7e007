"""Does the faster of two architectures stay the faster one under a compiler?

Only models measured in one session can tell: their rounds are paired. Everything is a
pure function of records and samples.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

from ngraphbench.analysis.tables import Cell, Evidence, Group, Interval, Read
from ngraphbench.summary import verdict as judge
from ngraphbench.types import Json

__all__ = [
    "MOST_UNPAIRED",
    "Order",
    "Reversal",
    "comparable",
    "reversals",
    "reversals_of",
    "unpaired_count",
]

MOST_UNPAIRED = 10_000
"""So many orders of which nothing can be said are listed; more are only counted."""

Order: TypeAlias = Literal["kept", "reversed", "tie", "unresolved"]


@dataclass(frozen=True, slots=True)
class Reversal:
    """The order of two models under their baseline and under one compiler.

    ``under_baseline`` and ``under_compiler`` are throughput of A over throughput of B,
    None where they were not measured side by side. ``reason`` says why an order is
    unresolved: ``interval``, ``unpaired`` or ``untrusted``.
    """

    model_a: str
    model_b: str
    batch: int
    device: str
    precision: str
    session_id: str
    compiler: str
    baseline: str
    verdict: Order
    reason: str = ""
    under_baseline: Interval | None = None
    under_compiler: Interval | None = None

    @property
    def strength(self) -> float:
        """How far both orders are from a tie, as the smaller log ratio."""
        ratios = (self.under_baseline, self.under_compiler)
        return min((abs(math.log(r.estimate)) if r and r.estimate > 0 else 0.0) for r in ratios)

    @property
    def sentence(self) -> str:
        """One sentence without a full stop, for people."""
        where = f"under {self.compiler} at batch {self.batch}"
        names = f"{self.model_a} and {self.model_b}"
        if self.reason == "untrusted":
            return f"the order of {names} {where} is untrusted: its session failed the A/A control"
        if self.under_baseline is None or self.under_compiler is None:
            return f"{names} were not measured side by side {where}"
        verb = {
            "reversed": f"{names} swap places {where}",
            "kept": f"{names} keep their order {where}",
            "tie": f"{names} tie {where} or in {self.baseline}",
            "unresolved": f"The order of {names} is unresolved {where}",
        }[self.verdict]
        return (
            f"{verb}: the first has {self.under_baseline.times} the throughput of the second "
            f"in {self.baseline}, {self.under_compiler.times} under {self.compiler}"
        )


def reversals(records: Sequence[Json], sessions: Sequence[Json], read: Read) -> list[Reversal]:
    """Return one verdict per pair of models, batch size and compiler, most decisive first.

    Pairs that never stood in one session come last, as ``unresolved`` (``unpaired``); where
    there are more than ``MOST_UNPAIRED`` of them they are left out: see ``unpaired_count``.
    """
    return reversals_of(Evidence(records, sessions, read))


def reversals_of(evidence: Evidence) -> list[Reversal]:
    """Return what ``reversals`` does, of an evidence that is there."""
    together: dict[tuple[object, ...], list[Group]] = {}
    for group in evidence.groups:
        together.setdefault((*group.setting, group.session_id), []).append(group)
    found = [
        reversal
        for groups in together.values()
        for a, b in combinations(groups, 2)
        if a.model != b.model
        for reversal in _paired(evidence, a, b)
    ]
    rank = {"reversed": 0, "kept": 1, "tie": 2, "unresolved": 3}
    found.sort(key=lambda reversal: (rank[reversal.verdict], -reversal.strength))
    if unpaired_count(evidence) > MOST_UNPAIRED:
        return found
    settled = {_identity(reversal) for reversal in found}
    apart: dict[tuple[object, ...], Reversal] = {}
    for groups in _alike(evidence).values():
        for a, b in combinations(groups, 2):
            if a.session_id != b.session_id and a.model != b.model:
                for reversal in _unpaired(evidence, a, b):
                    if _identity(reversal) not in settled:
                        apart.setdefault(_identity(reversal), reversal)
    return found + list(apart.values())


def unpaired_count(evidence: Evidence) -> int:
    """Return how many orders are open because their models stood in two sessions.

    They are counted without being formed: they grow with the square of the models.
    """
    count = 0
    for groups in _alike(evidence).values():
        by_label: dict[str, list[Group]] = {}
        for group in groups:
            for label in _known(evidence, group):
                if label != group.baseline:
                    by_label.setdefault(label, []).append(group)
        for those in by_label.values():
            sessions = [group.session_id for group in those]
            models = [group.model for group in those]
            both = list(zip(sessions, models, strict=True))
            # All pairs but those of one session or of one model; some of these are of both.
            count += math.comb(len(those), 2) - _same(sessions) - _same(models) + _same(both)
    return count


def _same(names: Sequence[object]) -> int:
    """Return how many pairs of names are equal."""
    return sum(math.comb(number, 2) for number in Counter(names).values())


def _alike(evidence: Evidence) -> dict[tuple[object, ...], list[Group]]:
    """Return the groups that differ in their models alone, together."""
    alike: dict[tuple[object, ...], list[Group]] = {}
    for group in evidence.groups:
        alike.setdefault(group.setting, []).append(group)
    return alike


def _identity(reversal: Reversal) -> tuple[object, ...]:
    models = frozenset((reversal.model_a, reversal.model_b))
    return models, reversal.batch, reversal.device, reversal.precision, reversal.compiler


def comparable(group: Group) -> dict[str, Cell]:
    """Return the cells of which an order may be told, by label: ranked, with outputs verified."""
    return {cell.label: cell for cell in group.cells if cell.ranked and cell.status == "ok"}


def _known(evidence: Evidence, group: Group) -> dict[str, Cell]:
    """Return ``comparable``, worked out once: a group stands in many pairs."""
    key = ("comparable", group.session_id, group.title, group.batch, group.precision)
    if key not in evidence.memory:
        evidence.memory[key] = comparable(group)
    found: dict[str, Cell] = evidence.memory[key]
    return found


def _shared_compilers(evidence: Evidence, a: Group, b: Group) -> list[str]:
    """Return labels measured of both models, the baselines left out."""
    baselines = (a.baseline, b.baseline)
    theirs = _known(evidence, b)
    return [label for label in _known(evidence, a) if label in theirs and label not in baselines]


def _paired(evidence: Evidence, a: Group, b: Group) -> list[Reversal]:
    cells_a, cells_b = _known(evidence, a), _known(evidence, b)
    if a.baseline not in cells_a or b.baseline not in cells_b:
        return []
    baseline = _ratio(evidence, cells_a[a.baseline], cells_b[b.baseline])
    return [
        _judge(a, b, label, baseline, _ratio(evidence, cells_a[label], cells_b[label]))
        if not evidence.untrusted(a.session_id)
        else _blank(a, b, label, "untrusted")
        for label in _shared_compilers(evidence, a, b)
    ]


def _unpaired(evidence: Evidence, a: Group, b: Group) -> list[Reversal]:
    return [_blank(a, b, label, "unpaired") for label in _shared_compilers(evidence, a, b)]


_Ratio: TypeAlias = tuple[Interval, str]


def _ratio(evidence: Evidence, a: Cell, b: Cell) -> _Ratio | None:
    """Return throughput of ``a`` over that of ``b``, and what may be said of ``a``."""
    comparison = evidence.compare(b, a)
    if comparison is None:
        return None
    tie = evidence.profile(a.record["session_id"]).tie
    return Interval.from_comparison(comparison), judge(comparison, tie)


def _judge(
    a: Group, b: Group, compiler: str, baseline: _Ratio | None, under: _Ratio | None
) -> Reversal:
    if baseline is None or under is None:
        return _blank(a, b, compiler, "unpaired")
    orders = {baseline[1], under[1]}
    verdict: Order = "kept"
    if "unresolved" in orders:
        verdict = "unresolved"
    elif "tie" in orders:
        verdict = "tie"
    elif len(orders) == 2:
        verdict = "reversed"
    reason = "interval" if verdict == "unresolved" else ""
    if a.baseline != b.baseline:
        # Two baselines differ in more than the models: an order between them is no evidence.
        verdict, reason = "unresolved", "baselines"
    return _reversal(a, b, compiler, verdict, reason, ratios=(baseline[0], under[0]))


def _blank(a: Group, b: Group, compiler: str, reason: str) -> Reversal:
    return _reversal(a, b, compiler, "unresolved", reason)


def _reversal(
    a: Group,
    b: Group,
    compiler: str,
    verdict: Order,
    reason: str,
    *,
    ratios: tuple[Interval | None, Interval | None] = (None, None),
) -> Reversal:
    return Reversal(
        model_a=a.title,
        model_b=b.title,
        batch=a.batch,
        device=a.device,
        precision=a.precision,
        session_id=a.session_id if a.session_id == b.session_id else "",
        compiler=compiler,
        baseline=" / ".join(dict.fromkeys((a.baseline, b.baseline))),
        verdict=verdict,
        reason=reason,
        under_baseline=ratios[0],
        under_compiler=ratios[1],
    )
