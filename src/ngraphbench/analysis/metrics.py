"""Every metric of a run in one object, for tables and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ngraphbench.analysis.breakeven import BreakEven, break_evens
from ngraphbench.analysis.depth import DepthFit, depth_fits
from ngraphbench.analysis.friction import Friction, frictions
from ngraphbench.analysis.ranking import (
    Change,
    Flip,
    Origin,
    Ranking,
    Settle,
    beats,
    changes,
    flips,
    origin,
    rankings,
    settling,
)
from ngraphbench.analysis.repeats import without_repeats
from ngraphbench.analysis.reversal import Reversal, reversals_of, unpaired_count
from ngraphbench.analysis.scaling import ORIGINS, TRAP, Scaling, scalings
from ngraphbench.analysis.scores import Score, SpeedupMean, scores, speedup_means
from ngraphbench.analysis.tables import Evidence, Read
from ngraphbench.analysis.verdict import verdicts_of
from ngraphbench.store.journal import uncollected
from ngraphbench.types import Json

__all__ = ["Metrics", "Order", "finite", "metrics"]


@dataclass(frozen=True, slots=True)
class Order:
    """The order of two models with what else is known of it.

    ``a_beats_b`` and ``a_beats_b_compiled`` are probabilities that the first model has more
    throughput, under the baseline and under the compiler; None where they are not paired.
    """

    order: Reversal
    settle: Settle | None
    origin: Origin | None
    a_beats_b: float | None
    a_beats_b_compiled: float | None


@dataclass(frozen=True, slots=True)
class Metrics:
    """What ``ngb show --metrics`` shows.

    ``unpaired`` counts the orders of models of two sessions: where these are too many,
    ``orders`` leaves them out. ``untrusted`` are sessions that failed their control,
    ``flags`` what disturbed any.
    """

    scaling: tuple[Scaling, ...]
    friction: tuple[Friction, ...]
    break_even: tuple[BreakEven, ...]
    depth: tuple[DepthFit, ...]
    rankings: tuple[Ranking, ...]
    orders: tuple[Order, ...]
    unpaired: int
    flips: tuple[Flip, ...]
    changes: tuple[Change, ...]
    speedups: tuple[SpeedupMean, ...]
    scores: tuple[Score, ...]
    untrusted: tuple[str, ...]
    flags: tuple[str, ...]

    def to_json(self) -> Json:
        """Return plain JSON; numbers that are not finite become null."""
        found = {"about": {**ORIGINS, "trap": TRAP}, **asdict(self)}
        plain: Json = finite(found)
        return plain


def metrics(records: Sequence[Json], sessions: Sequence[Json], read: Read) -> Metrics:
    """Return every metric of a run. Each sample file is read once."""
    with uncollected():
        return _metrics(Evidence(records, sessions, read))


def _metrics(evidence: Evidence) -> Metrics:
    latest = without_repeats(evidence)
    orders = reversals_of(latest)
    return Metrics(
        scaling=tuple(scalings(evidence)),
        friction=tuple(frictions(evidence)),
        break_even=tuple(break_evens(evidence)),
        depth=tuple(depth_fits(evidence)),
        rankings=tuple(rankings(orders)),
        orders=tuple(_order(latest, order) for order in orders),
        unpaired=unpaired_count(latest),
        flips=tuple(flips(orders)),
        changes=tuple(changes(verdicts_of(latest))),
        speedups=tuple(speedup_means(latest)),
        scores=tuple(scores(latest)),
        untrusted=tuple(key for key in evidence.sessions if evidence.untrusted(key)),
        flags=tuple(
            dict.fromkeys(
                str(flag["flag"])
                for session in evidence.sessions.values()
                for flag in session.get("flags", ())
            )
        ),
    )


def _order(evidence: Evidence, order: Reversal) -> Order:
    return Order(
        order=order,
        settle=settling(evidence, order),
        origin=origin(evidence, order),
        a_beats_b=beats(evidence, order, compiled=False),
        a_beats_b_compiled=beats(evidence, order, compiled=True),
    )


def finite(value: Any) -> Any:
    """Return JSON in which every number that is not finite is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
