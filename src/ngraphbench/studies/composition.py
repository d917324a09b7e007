"""Blocks against each other once compiled: what one more costs, who is on the front, hybrids.

Compiled means under the compiler that suits a model best; comparisons are of paired rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

from ngraphbench.analysis.contrasts import contrast
from ngraphbench.analysis.depth import marginal_ratio
from ngraphbench.analysis.reversal import comparable
from ngraphbench.analysis.tables import Cell, Evidence, Group, Interval
from ngraphbench.case import ONNX_BASELINE
from ngraphbench.models.blocks import HYBRIDS
from ngraphbench.stats import holm
from ngraphbench.summary import verdict as judge
from ngraphbench.types import Json

__all__ = [
    "Count",
    "Hybrid",
    "Kind",
    "Material",
    "Point",
    "fronts",
    "hybrids",
    "kinds",
    "materials",
]

Count: TypeAlias = Callable[[str, Mapping[str, int]], Mapping[str, int]]
"""Returns ``flops`` and ``parameters`` of a family at some sizes, whole and per block."""


Standing: TypeAlias = Literal["best", "level", "behind", "open"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of block on one device at one batch size.

    ``sessions`` has its groups by session and depth, the newest session last; ``groups`` one
    for each depth, of the session that has most depths.
    """

    title: str
    family: str
    sizes: Mapping[str, int]
    groups: Mapping[int, Group]
    sessions: Mapping[str, Mapping[int, Group]]

    @property
    def place(self) -> tuple[object, ...]:
        """What it shares with kinds that it may be compared with: batch size first."""
        return next(iter(self.groups.values())).setting

    @property
    def batch(self) -> int:
        return next(iter(self.groups.values())).batch

    def compiled(self, depth: int) -> dict[str, Cell]:
        """Return the compiled cells of a depth that may stand in an order."""
        return _compiled(self.groups[depth])

    def cells_in(self, session_id: str, label: str) -> dict[int, Cell]:
        """Return the cells by depth that one session has of a candidate."""
        cells = {d: _compiled(g).get(label) for d, g in self.sessions.get(session_id, {}).items()}
        return {depth: cell for depth, cell in cells.items() if cell is not None}

    def fastest(self, depth: int) -> Cell | None:
        """Return the fastest compiled cell of a depth."""
        known = [cell for cell in self.compiled(depth).values() if cell.latency]
        return min(known, key=lambda cell: _estimate(cell.latency), default=None)

    def best(self) -> dict[int, Cell]:
        """Return the cells by depth of the compiler with most depths, the deepest one fastest."""
        by_label: dict[str, dict[int, Cell]] = {}
        for depth in self.groups:
            for label, cell in self.compiled(depth).items():
                by_label.setdefault(label, {})[depth] = cell

        def worth(cells: dict[int, Cell]) -> tuple[int, int, float]:
            deepest = max(cells)
            return len(cells), deepest, -_estimate(cells[deepest].latency)

        return max(by_label.values(), key=worth, default={})


@dataclass(frozen=True, slots=True)
class Material:
    """What one more block of a kind is worth: computation per second of its marginal cost.

    ``standing``: ``best`` is surely ahead of all, ``level`` not to be told from the best one,
    ``behind`` surely less, ``open`` where it cannot be compared. ``gflops_per_s`` of the best
    compiler, with the interval of its marginal cost alone.
    """

    title: str
    batch: int
    label: str
    marginal_ms: Interval
    block_flops: int
    block_parameters: int
    gflops_per_s: Interval
    standing: Standing
    versus_best: Interval | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """A model of blocks: capacity against compiled throughput.

    It is on a front unless another with as much capacity (FLOPs, or parameters) is surely
    faster.
    """

    title: str
    depth: int
    batch: int
    label: str
    throughput_per_s: Interval
    flops: int
    parameters: int
    flops_front: bool
    parameters_front: bool


@dataclass(frozen=True, slots=True)
class Hybrid:
    """How a compiler's speed-up on a hybrid block compares with that on a simple one.

    ``ratio`` is the speed-up of the hybrid over that of the simple block, at one depth.
    """

    hybrid: str
    simple: str
    label: str
    batch: int
    depth: int
    ratio: Interval
    verdict: Literal["less", "more", "alike", "unresolved"]


def _compiled(group: Group) -> dict[str, Cell]:
    left_out = (group.baseline, ONNX_BASELINE)
    return {name: c for name, c in comparable(group).items() if name not in left_out}


def kinds(evidence: Evidence) -> list[Kind]:
    """Return the kinds of blocks of a run.

    Each depth is of the session that has most depths of the kind; one that failed its A/A
    control comes last, and the newest of equals first.
    """
    order = {session_id: i for i, session_id in enumerate(evidence.sessions)}
    gathered: dict[tuple[object, ...], dict[str, dict[int, Group]]] = {}
    models: dict[tuple[object, ...], Json] = {}
    for group in sorted(evidence.groups, key=lambda g: order.get(g.session_id, -1)):
        model = group.cells[0].record["case"]["model"]
        if model["kind"] != "block":
            continue
        rest = tuple(sorted((k, v) for k, v in model["args"].items() if k != "depth"))
        key = (_family(model), rest, *group.setting)
        by_depth = gathered.setdefault(key, {}).setdefault(group.session_id, {})
        by_depth[int(model["args"]["depth"])] = group
        models.setdefault(key, model)
    varying = _varying(models.values())
    found = []
    for key, sessions in gathered.items():
        groups: dict[int, Group] = {}
        for by_depth in sorted(sessions.values(), key=partial(_trust, evidence)):
            groups |= by_depth
        sizes = {k: int(v) for k, v in models[key]["args"].items() if k != "depth"}
        query = "&".join(f"{k}={v}" for k, v in sorted(sizes.items()) if k in varying)
        title = f"block:{key[0]}" + (f"?{query}" if query else "")
        found.append(Kind(title, str(key[0]), sizes, dict(sorted(groups.items())), sessions))
    return found


def _varying(models: Collection[Json]) -> set[str]:
    """Return the sizes, depth aside, that differ among models."""
    keys = {key for model in models for key in model["args"]} - {"depth"}
    return {key for key in keys if len({model["args"].get(key) for model in models}) > 1}


def _trust(evidence: Evidence, by_depth: Mapping[int, Group]) -> tuple[bool, int]:
    session_id = next(iter(by_depth.values())).session_id
    working = sum(bool(_compiled(group)) for group in by_depth.values())
    return not evidence.untrusted(session_id), working


def _family(model: Json) -> str:
    return str(model["source"]).partition("?")[0].partition(":")[2]


def materials(
    evidence: Evidence,
    found: Sequence[Kind],
    marginal_ms: Callable[[Kind, str], Interval | None],
    count: Count,
) -> list[Material]:
    """Return what one more block of each kind is worth, the best of each place first.

    ``marginal_ms`` gives the fitted cost of a block of a kind under a candidate.
    """
    made = []
    for place in dict.fromkeys(kind.place for kind in found):
        rows = []
        for kind in (kind for kind in found if kind.place == place):
            cells = kind.best()
            label = next(iter(cells.values())).label if cells else ""
            cost, sizes = marginal_ms(kind, label), count(kind.family, _sizes(kind, 1))
            flops = sizes.get("block_flops", 0)
            if cost is not None and cost.low > 0.0 and flops > 0:
                rows.append((kind, cells, cost, sizes))
        made += _ranked(evidence, rows)
    return made


_Row: TypeAlias = tuple[Kind, dict[int, Cell], Interval, Mapping[str, int]]


def _ranked(evidence: Evidence, rows: Sequence[_Row]) -> list[Material]:
    rows = sorted(rows, key=lambda row: row[2].estimate / row[3]["block_flops"])
    if not rows:
        return []
    ratios = [None, *(_worth(evidence, rows[0], row, len(rows) - 1) for row in rows[1:])]
    standings: list[Standing] = ["best", *map(_standing, ratios[1:])]
    if {"level", "open"} & set(standings):
        standings[0] = "level"
    return [
        Material(
            title=kind.title,
            batch=kind.batch,
            label=next(iter(cells.values())).label,
            marginal_ms=cost,
            block_flops=sizes["block_flops"],
            block_parameters=sizes.get("block_parameters", 0),
            gflops_per_s=_rate(sizes["block_flops"] * kind.batch, cost),
            standing=standing,
            versus_best=ratio,
        )
        for (kind, cells, cost, sizes), ratio, standing in zip(rows, ratios, standings, strict=True)
    ]


def _worth(evidence: Evidence, best: _Row, other: _Row, rivals: int) -> Interval | None:
    """Return computation per second of one kind over that of the best.

    Of the sessions that hold both, from the one with most depths of both.
    """
    label, other_label = (next(iter(row[1].values())).label for row in (best, other))
    held = [
        (best[0].cells_in(session_id, label), other[0].cells_in(session_id, other_label))
        for session_id in best[0].sessions
        if not evidence.untrusted(session_id)
    ]
    # The last of equals is the newest.
    mine, theirs = max(reversed(held), key=lambda pair: min(map(len, pair)), default=({}, {}))
    if not mine or not theirs:
        return None
    level = holm(evidence.profile(next(iter(mine.values())).key[0]).confidence, 0, rivals)
    cost = marginal_ratio(evidence, mine, theirs, level)
    share = other[3]["block_flops"] / best[3]["block_flops"]
    return cost.scaled(share) if cost else None


def _standing(ratio: Interval | None) -> Standing:
    if ratio is None:
        return "open"
    return "behind" if ratio.high < 1.0 else "level"


def _rate(flops: int, cost_ms: Interval) -> Interval:
    low, likely, high = (flops / ms / 1e6 for ms in (cost_ms.high, cost_ms.estimate, cost_ms.low))
    return Interval(likely, low, high, cost_ms.confidence)


def fronts(evidence: Evidence, found: Sequence[Kind], count: Count) -> list[Point]:
    """Return every model with a compiled result, and whether it is on the fronts."""
    points = []
    for place in dict.fromkeys(kind.place for kind in found):
        here = []
        for kind in (kind for kind in found if kind.place == place):
            for depth in kind.groups:
                cell, sizes = kind.fastest(depth), count(kind.family, _sizes(kind, depth))
                if cell is not None and cell.throughput is not None and "flops" in sizes:
                    here.append((kind, depth, cell, sizes))
        cells = [cell for _, _, cell, _ in here]
        fast = {
            name: _front(evidence, cells, [int(sizes[name]) for *_, sizes in here])
            for name in ("flops", "parameters")
        }
        for i, (kind, depth, cell, sizes) in enumerate(here):
            rate = cell.throughput
            assert rate is not None
            points.append(
                Point(
                    title=kind.title,
                    depth=depth,
                    batch=kind.batch,
                    label=cell.label,
                    throughput_per_s=rate,
                    flops=int(sizes["flops"]),
                    parameters=int(sizes["parameters"]),
                    flops_front=fast["flops"][i],
                    parameters_front=fast["parameters"][i],
                )
            )
    return points


def _front(evidence: Evidence, cells: Sequence[Cell], capacity: Sequence[int]) -> list[bool]:
    """Return which cells no other one with as much capacity is surely faster than."""

    def beaten(i: int, j: int) -> bool:
        if i == j or capacity[j] < capacity[i] or evidence.untrusted(cells[i].key[0]):
            return False
        profile = evidence.profile(cells[i].key[0])
        level = holm(profile.confidence, 0, len(cells) - 1)
        return judge(evidence.compare(cells[i], cells[j], level), profile.tie) == "faster"

    everyone = range(len(cells))
    return [not any(beaten(i, j) for j in everyone) for i in everyone]


def hybrids(evidence: Evidence, found: Sequence[Kind]) -> list[Hybrid]:
    """Return every hybrid kind against every simple one, by compiler, at the deepest depth.

    Only blocks of the same sizes are compared: a wider one may gain more whatever it is made of.
    """
    made = []
    for mixed in (kind for kind in found if kind.family in HYBRIDS):
        for plain in found:
            depths = set(mixed.groups) & set(plain.groups)
            alike = (plain.place, plain.sizes) == (mixed.place, mixed.sizes)
            if plain.family in HYBRIDS or not alike or not depths:
                continue
            depth = max(depths)
            for label in mixed.compiled(depth):
                one = _hybrid(evidence, mixed, plain, depth=depth, label=label)
                made += [one] if one else []
    return made


def _hybrid(
    evidence: Evidence, mixed: Kind, plain: Kind, *, depth: int, label: str
) -> Hybrid | None:
    mine, theirs = mixed.compiled(depth).get(label), plain.compiled(depth).get(label)
    bases = mixed.groups[depth].base, plain.groups[depth].base
    if mine is None or theirs is None or bases[0] is None or bases[1] is None:
        return None
    if mine.key[0] != theirs.key[0] or evidence.untrusted(mine.key[0]):
        return None
    terms = [(bases[0], 1.0), (mine, -1.0), (bases[1], -1.0), (theirs, 1.0)]
    ratio = contrast(evidence, terms)
    if ratio is None:
        return None
    value, tie = ratio.factor, evidence.profile(mine.key[0]).tie
    verdict: Literal["less", "more", "alike", "unresolved"] = "unresolved"
    if value.low > 1 / (1 + tie) and value.high < 1 + tie:
        verdict = "alike"
    elif value.high < 1.0:
        verdict = "less"
    elif value.low > 1.0:
        verdict = "more"
    return Hybrid(mixed.title, plain.title, label, mixed.batch, depth, value, verdict)


def _sizes(kind: Kind, depth: int) -> dict[str, int]:
    return {**kind.sizes, "depth": depth}


def _estimate(value: Interval | None) -> float:
    return value.estimate if value is not None else 0.0
