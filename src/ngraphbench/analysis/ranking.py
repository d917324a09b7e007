"""Orders of models and compilers over a whole run: how much they change, and with what.

Built on the pairwise verdicts of ``reversal``: rank correlation, the batch size at which an
order flips, what would settle it, whether the compiler or the exported graph caused it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Literal, TypeAlias, get_args

from ngraphbench.analysis.contrasts import Contrast, contrast
from ngraphbench.analysis.reversal import Reversal, comparable
from ngraphbench.analysis.tables import Evidence, Group, Interval
from ngraphbench.analysis.verdict import Verdict
from ngraphbench.case import ONNX_BASELINE
from ngraphbench.errors import NGraphBenchError
from ngraphbench.plugin import load_compiler

__all__ = [
    "BEYOND",
    "Change",
    "Flip",
    "Origin",
    "Ranking",
    "Settle",
    "beats",
    "changes",
    "flips",
    "origin",
    "probability",
    "rankings",
    "settle",
    "settling",
    "tau_b",
]

BEYOND = 0.05
"""Pairs that swap places count only where they are this far apart on both sides."""

Axis: TypeAlias = Literal["model", "batch", "device"]
AXES: tuple[Axis, ...] = get_args(Axis)

MOST_ROUNDS = 100_000
MOST_LAUNCHES = 1000


@dataclass(frozen=True, slots=True)
class Ranking:
    """How the order of models changes from the baseline to one compiler at one batch size.

    ``tau_b`` is Kendall's, pairs whose interval holds a tie counting as ties; None for fewer
    than two models or all tied. ``reversed_beyond`` counts pairs that swap places and are
    more than 5 % apart on both sides.
    """

    compiler: str
    baseline: str
    batch: int
    device: str
    precision: str
    models: int
    tau_b: float | None
    pairs: int
    reversed_beyond: int


@dataclass(frozen=True, slots=True)
class Flip:
    """Between which batch sizes the verdict on a pair of models changes under a compiler."""

    model_a: str
    model_b: str
    compiler: str
    device: str
    precision: str
    before_batch: int
    after_batch: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Settle:
    """What would resolve an unresolved order, if the estimates stay as they are.

    ``rounds`` more of the same launches, or None where launches are in the way: then
    ``launches`` more of as many rounds. Both None: nothing within reason, it is too close.
    """

    rounds: int | None
    launches: int | None


Cause: TypeAlias = Literal["compiler", "export or runtime", "unresolved", "no control"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a reversal comes from: the order under ``control``, the same graph unoptimised.

    ``compiler``: the control keeps the baseline's order. ``export or runtime``: it has the
    compiler's order already.
    """

    cause: Cause
    control: str
    ratio: Interval | None


@dataclass(frozen=True, slots=True)
class Change:
    """A place at which the best compiler is another one: top sets have nothing in common.

    ``axis`` is what differs: ``model``, ``batch`` or ``device``.
    """

    axis: Axis
    where: str
    first: str
    second: str
    top_first: tuple[str, ...]
    top_second: tuple[str, ...]


def rankings(found: Sequence[Reversal]) -> list[Ranking]:
    """Return one per compiler, device, precision and batch size, from paired orders."""
    gathered: dict[tuple[str, ...], list[Reversal]] = {}
    for order in found:
        if order.under_baseline is not None and order.under_compiler is not None:
            key = (order.compiler, order.baseline, str(order.batch), order.device, order.precision)
            gathered.setdefault(key, []).append(order)
    return [_ranking(orders) for orders in gathered.values()]


def _ranking(orders: Sequence[Reversal]) -> Ranking:
    first = orders[0]
    beyond = [
        order
        for order in orders
        if order.verdict == "reversed" and order.strength > math.log1p(BEYOND)
    ]
    return Ranking(
        compiler=first.compiler,
        baseline=first.baseline,
        batch=first.batch,
        device=first.device,
        precision=first.precision,
        models=len({name for order in orders for name in (order.model_a, order.model_b)}),
        tau_b=tau_b((_sign(o.under_baseline), _sign(o.under_compiler)) for o in orders),
        pairs=len(orders),
        reversed_beyond=len(beyond),
    )


def _sign(ratio: Interval | None) -> int:
    if ratio is None:
        return 0
    return (ratio.low > 1.0) - (ratio.high < 1.0)


def tau_b(signs: Iterable[tuple[int, int]]) -> float | None:
    """Return Kendall's tau_b of two orders, from the signs of each pair under both; 0 is a tie.

    None where one of them ties every pair. Ties need not be transitive, as those by
    overlapping intervals are not. Source: Kendall, Biometrika 33 (1945).

    >>> tau_b([(1, 1), (1, 1), (1, -1)])
    0.3333333333333333
    """
    pairs = list(signs)
    score = sum(a * b for a, b in pairs)
    untied = sum(a != 0 for a, _ in pairs) * sum(b != 0 for _, b in pairs)
    return score / math.sqrt(untied) if untied else None


def flips(found: Sequence[Reversal]) -> list[Flip]:
    """Return where verdicts change from kept to reversed or back, over rising batch sizes.

    Batch sizes that are tied or unresolved between the two widen the bracket.
    """
    gathered: dict[tuple[str, str, str, str, str], list[Reversal]] = {}
    for order in found:
        if order.verdict in ("kept", "reversed"):
            a, b = sorted((order.model_a, order.model_b))
            key = (a, b, order.compiler, order.device, order.precision)
            gathered.setdefault(key, []).append(order)
    changed = []
    for key, orders in gathered.items():
        orders.sort(key=lambda order: order.batch)
        for low, high in pairwise(orders):
            if low.verdict != high.verdict and low.batch < high.batch:
                changed.append(Flip(*key, low.batch, high.batch, low.verdict, high.verdict))
    return changed


def settle(ratio: Contrast, tie: float) -> Settle:
    """Return what would resolve a comparison whose interval holds both a tie and an order.

    ``tie`` is the zone of equality as a share. Noise within launches falls with the root of
    the rounds, what launches add with the root of their number.
    """
    distance = abs(ratio.value)
    needed = max(distance, math.log1p(tie) - distance)
    within = max(ratio.value - ratio.within_low, ratio.within_high - ratio.value)
    if needed <= 0.0:
        return Settle(None, None)
    if needed > ratio.launch_half:
        room = needed**2 - ratio.launch_half**2
        rounds = math.ceil(ratio.rounds * max(0.0, within**2 / room - 1.0)) + 1
        return Settle(rounds if rounds <= MOST_ROUNDS else None, None)
    total = math.hypot(within, ratio.launch_half)
    launches = math.ceil(ratio.epochs * ((total / needed) ** 2 - 1.0)) + 1
    return Settle(None, launches if launches <= MOST_LAUNCHES else None)


def settling(evidence: Evidence, order: Reversal) -> Settle | None:
    """Return what would settle an order that is unresolved by its intervals, else None."""
    if order.verdict != "unresolved" or order.reason != "interval":
        return None
    groups = _groups(evidence, order)
    if groups is None:
        return None
    tie = evidence.profile(order.session_id).tie
    wanted = []
    for label in (groups[0].baseline, order.compiler):
        found = _under(evidence, groups, label)
        if found is not None and _is_open(found, tie):
            wanted.append(settle(found, tie))
    if not wanted or any(one == Settle(None, None) for one in wanted):
        return Settle(None, None)
    launches = [one.launches for one in wanted if one.launches is not None]
    rounds = [one.rounds for one in wanted if one.rounds is not None]
    return Settle(max(rounds, default=None), max(launches, default=None))


def _is_open(found: Contrast, tie: float) -> bool:
    zone = math.log1p(tie)
    return found.low <= 0.0 <= found.high and not (-zone < found.low and found.high < zone)


def probability(ratio: Contrast, degrees: float) -> float:
    """Return how probable it is that the ratio is above 1, by Student's t about the estimate.

    The scale is the half-width over the quantile; ``degrees`` are those of the launch term.
    """
    from scipy.special import stdtr, stdtrit

    half = (ratio.high - ratio.low) / 2.0
    if half <= 0.0:
        return 0.5 if ratio.value == 0.0 else float(ratio.value > 0.0)
    quantile = float(stdtrit(degrees, (1.0 + ratio.confidence) / 2.0))
    return float(stdtr(degrees, ratio.value * quantile / half))


def beats(evidence: Evidence, order: Reversal, *, compiled: bool) -> float | None:
    """Return how probable it is that model A has more throughput than B; None if unpaired.

    ``compiled`` says under the compiler, else under the baseline.
    """
    groups = _groups(evidence, order)
    if groups is None:
        return None
    found = _under(evidence, groups, order.compiler if compiled else groups[0].baseline)
    return probability(found, evidence.launch(order.session_id).degrees) if found else None


def origin(evidence: Evidence, order: Reversal) -> Origin | None:
    """Return where a reversal comes from; None for an order that is not reversed.

    The control is ``onnxruntime:level=none`` on the same exported graph, so it parts export
    and runtime from compiler for compilers that take ONNX. For those that take the torch
    graph, and wherever it was not measured, the cause is ``no control``.
    """
    groups = _groups(evidence, order)
    if order.verdict != "reversed" or groups is None or order.under_compiler is None:
        return None
    if ONNX_BASELINE in (order.compiler, groups[0].baseline):
        return Origin("no control", "", None)
    mine = comparable(groups[0]).get(order.compiler)
    same_graph = mine is not None and takes_onnx(mine.target)
    found = _under(evidence, groups, ONNX_BASELINE) if same_graph else None
    if found is None:
        return Origin("no control", "", None)
    sign = _sign(found.factor)
    cause: Cause = "unresolved"
    if sign != 0:
        cause = "export or runtime" if sign == _sign(order.under_compiler) else "compiler"
    return Origin(cause, ONNX_BASELINE, found.factor)


@lru_cache(maxsize=256)
def takes_onnx(target: str) -> bool:
    """Return whether the compiler at ``module:attribute`` takes ONNX before any other form.

    One whose plugin is not installed here is taken not to.
    """
    try:
        return load_compiler(target).accepts[:1] == ("onnx",)
    except NGraphBenchError:
        return False


def changes(found: Sequence[Verdict]) -> list[Change]:
    """Return every two places, alike but for model, batch or device, whose best differ.

    A verdict without an order takes no part.
    """
    decided = [verdict for verdict in found if verdict.outcome in ("faster", "not-faster")]
    changed = []
    for axis in AXES:
        alike: dict[tuple[str, ...], list[Verdict]] = {}
        for verdict in decided:
            place = _place(verdict)
            rest = tuple(place[other] for other in AXES if other != axis)
            alike.setdefault((*rest, verdict.precision), []).append(verdict)
        for verdicts in alike.values():
            changed += [
                _change(axis, a, b)
                for a, b in combinations(verdicts, 2)
                if _place(a)[axis] != _place(b)[axis] and not set(a.top) & set(b.top)
            ]
    return changed


def _place(verdict: Verdict) -> dict[Axis, str]:
    return {"model": verdict.model, "batch": str(verdict.batch), "device": verdict.device}


def _change(axis: Axis, a: Verdict, b: Verdict) -> Change:
    here, there = _place(a), _place(b)
    fixed = ", ".join(
        f"batch {value}" if key == "batch" else value for key, value in here.items() if key != axis
    )
    return Change(axis, fixed, here[axis], there[axis], a.top, b.top)


def _groups(evidence: Evidence, order: Reversal) -> tuple[Group, Group] | None:
    found = []
    for title in (order.model_a, order.model_b):
        group = evidence.group(title, order.batch, order.session_id, order.precision)
        if group is None or group.device != order.device:
            return None
        found.append(group)
    return found[0], found[1]


def _under(evidence: Evidence, groups: tuple[Group, Group], label: str) -> Contrast | None:
    """Return ln of the first model's throughput over the second's, both under ``label``."""
    first, second = (comparable(group).get(label) for group in groups)
    if first is None or second is None:
        return None
    return contrast(evidence, [(second, 1.0), (first, -1.0)])
