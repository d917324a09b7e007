"""The design study: which archetypes are fast, widely supported, and stay good once compiled.

Archetypes x compilers x devices x batch sizes, models interleaved. Accuracy is not measured:
what is decided is who is fastest compiled, and who keeps the place it had uncompiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias

from ngraphbench.analysis.metrics import finite
from ngraphbench.analysis.ranking import (
    Flip,
    Origin,
    Ranking,
    Settle,
    flips,
    origin,
    rankings,
    settling,
)
from ngraphbench.analysis.reversal import Reversal, reversals_of
from ngraphbench.analysis.tables import Cell, Evidence, Interval, Read, join
from ngraphbench.case import ONNX_BASELINE, Limits
from ngraphbench.studies.arena import Arena, Fastest, arenas
from ngraphbench.studies.refinement import Refinement, Wanted, refine
from ngraphbench.studies.standing import (
    Standing,
    standing,
    wanted_flips,
    wanted_here,
    wanted_orders,
)
from ngraphbench.types import Json

__all__ = ["SIDE_BY_SIDE", "Archetype", "Design", "Gain", "Order", "Place", "Support", "design"]

SIDE_BY_SIDE = ("compiler", "model")
"""What a session holds. Orders are told at one batch size: a session of all of them would hold
several times as many programs, and what no longer fits into memory is measured later, with
nothing to be put in order with."""

ACCURACY = "Speed and support alone: what an archetype can learn is not measured."


@dataclass(frozen=True, slots=True)
class Support:
    """What became of one archetype under one compiler: a status for each batch size."""

    archetype: str
    compiler: str
    statuses: dict[int, str]

    @property
    def works(self) -> bool:
        """Whether every batch size gave right outputs, compiled as a whole."""
        return bool(self.statuses) and set(self.statuses.values()) == {"ok"}

    @property
    def text(self) -> str:
        """``ok``, or the statuses with their batch sizes."""
        if len(set(self.statuses.values())) == 1:
            return next(iter(self.statuses.values()))
        by_status: dict[str, list[str]] = {}
        for batch, status in self.statuses.items():
            by_status.setdefault(status, []).append(str(batch))
        return ", ".join(f"{status} {'/'.join(sizes)}" for status, sizes in by_status.items())


@dataclass(frozen=True, slots=True)
class Gain:
    """What compiling gains at one batch size: the speed-up of the best compiler."""

    batch: int
    compiler: str
    speedup: Interval | None
    verdict: str


@dataclass(frozen=True, slots=True)
class Archetype:
    """Whether one archetype keeps its place among the others once all are compiled.

    ``standing``: ``stays``; ``falls``: another that was surely not faster surely is,
    compiled; ``undecided``: some order is open; ``unsupported``: no compiler has a right
    result at some batch size. ``works_under`` of ``compilers`` compilers at every batch size.
    """

    name: str
    standing: Standing
    reasons: tuple[str, ...]
    works_under: int
    compilers: int
    gains: tuple[Gain, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """The order of two archetypes under one compiler, with what would settle it and its cause."""

    order: Reversal
    settle: Settle | None
    origin: Origin | None


@dataclass(frozen=True, slots=True)
class Place:
    """What was found on one device (with precision, shapes and threads where several)."""

    title: str
    support: tuple[Support, ...]
    fastest: tuple[Fastest, ...]
    archetypes: tuple[Archetype, ...]

    @property
    def decided(self) -> bool:
        """Whether every batch size has a surely fastest archetype, or several equal ones."""
        return all(one.state in ("one", "tie") for one in self.fastest)

    @property
    def decision(self) -> str:
        """The decision for this place in a few sentences; nothing that is not resolved."""
        fastest = " ".join(_fastest_sentences(self.title, self.fastest))
        standing = " ".join(self._standings())
        return f"{fastest} {standing}".strip()

    def _standings(self) -> list[str]:
        words = {
            "stays": ("keeps its place once compiled", "keep their places once compiled"),
            "falls": ("falls behind once compiled", "fall behind once compiled"),
            "undecided": ("is undecided", "are undecided"),
            "unsupported": ("lacks a compiler that works", "lack a compiler that works"),
        }
        told = []
        for verdict, (verb, verbs) in words.items():
            names = [one.name for one in self.archetypes if one.standing == verdict]
            if names and len(self.archetypes) > 1:
                told.append(f"{join(names)} {verb if len(names) == 1 else verbs}.")
        return told


@dataclass(frozen=True, slots=True)
class Design:
    """The study's answer: one place per device, the orders under each compiler, what is next."""

    places: tuple[Place, ...]
    orders: tuple[Order, ...]
    rankings: tuple[Ranking, ...]
    flips: tuple[Flip, ...]
    refinement: Refinement | None

    @property
    def decision(self) -> str:
        """The decision, a line per place."""
        if not self.places:
            return "Nothing was measured."
        return "\n".join(place.decision for place in self.places)

    @property
    def reversed(self) -> tuple[Order, ...]:
        return tuple(one for one in self.orders if one.order.verdict == "reversed")

    def to_json(self) -> Json:
        """Return plain JSON; numbers that are not finite become null."""
        found: Json = finite(
            {
                "decision": self.decision,
                "about": ACCURACY,
                **asdict(self),
            }
        )
        for place, one in zip(found["places"], self.places, strict=True):
            place["decision"] = one.decision
            place["decided"] = one.decided
        return found


def design(
    records: Sequence[Json],
    sessions: Sequence[Json],
    read: Read,
    *,
    limits: Limits | None = None,
) -> Design:
    """Return what a run over archetypes and compilers says. ``limits`` are those of the run.

    Where a pair was measured in several sessions the newest counts.
    """
    evidence = Evidence(records, sessions, read)
    found, wanted = [], []
    for arena in arenas(evidence):
        place, cells = _place(arena)
        found.append(place)
        wanted += cells
    named = _newest(evidence, reversals_of(evidence))
    wanted += wanted_orders(evidence, [(one.order, order, one.settle) for one, order in named])
    orders = tuple(one for one, _ in named)
    plain = [one.order for one in orders]
    changed = flips(plain)
    wanted += wanted_flips(evidence, changed)
    return Design(
        places=tuple(found),
        orders=orders,
        rankings=tuple(rankings(plain)),
        flips=tuple(changed),
        refinement=refine(
            wanted,
            evidence.sessions,
            name="design-next",
            limits=limits,
            interleave=SIDE_BY_SIDE,
        ),
    )


def _place(arena: Arena) -> tuple[Place, list[Wanted]]:
    support = _support(arena)
    fastest = tuple(arena.fastest(batch) for batch in arena.batches)
    archetypes = tuple(_archetype(arena, model, support) for model in arena.models)
    return Place(arena.title, support, fastest, archetypes), wanted_here(arena)


def _support(arena: Arena) -> tuple[Support, ...]:
    found = []
    for model in arena.models:
        by_batch = {batch: arena.cells(model, batch) for batch in arena.batches}
        labels = dict.fromkeys(label for cells in by_batch.values() for label in cells)
        for label in labels:
            statuses = {
                batch: status(cells.get(label)) for batch, cells in by_batch.items() if cells
            }
            found.append(Support(arena.names[model], label, statuses))
    return tuple(found)


def status(cell: Cell | None) -> str:
    """Return what became of a cell, ``ok`` only where it may stand in an order."""
    if cell is None:
        return "not planned"
    if cell.status == "ok" and cell.partly_compiled:
        return "partly compiled"
    return cell.status


def _archetype(arena: Arena, model: str, support: Sequence[Support]) -> Archetype:
    name = arena.names[model]
    baselines = {arena.baseline(model, batch) for batch in arena.batches} | {ONNX_BASELINE}
    mine = [one for one in support if one.archetype == name and one.compiler not in baselines]
    verdict, reasons = standing(arena, model)
    return Archetype(
        name,
        verdict,
        tuple(reasons),
        sum(one.works for one in mine),
        len(mine),
        tuple(_gains(arena, model)),
    )


def _gains(arena: Arena, model: str) -> list[Gain]:
    found = []
    for batch in arena.batches:
        best = arena.best(model, batch)
        if best is not None:
            found.append(Gain(batch, best.label, best.speedup, best.mark))
    return found


def _fastest_sentences(title: str, fastest: Sequence[Fastest]) -> list[str]:
    """Return who is fastest, batch sizes with one answer together."""
    alike: dict[tuple[str, frozenset[str]], list[Fastest]] = {}
    for one in fastest:
        alike.setdefault((one.state, frozenset(one.top)), []).append(one)
    told = []
    for (state, _), ones in alike.items():
        batches = [str(one.batch) for one in ones]
        where = f"On {title} at {'batches' if len(batches) > 1 else 'batch'} {join(batches)}"
        names = join(ones[0].top)
        if state == "one":
            told.append(f"{where} {names} is the fastest archetype compiled{_leads(ones)}.")
        elif state == "tie":
            told.append(f"{where} {names} are equally fast compiled, and the fastest.")
        elif state == "unresolved":
            told.append(
                f"{where} it is unresolved which of {names} is the fastest archetype compiled."
            )
        elif state == "untrusted":
            told.append(f"{where} nothing can be told: the session failed its A/A control.")
        elif state == "alone":
            told.append(f"{where} only {names} has a compiled result.")
        else:
            told.append(f"{where} no archetype has a right compiled result.")
    return told


def _leads(ones: Sequence[Fastest]) -> str:
    leads = [
        f"{one.lead.times} ({one.lead.range}) that of {one.runner_up} at batch {one.batch}"
        for one in ones
        if one.lead
    ]
    return f": throughput {join(leads)}" if leads else ""


_Placed: TypeAlias = tuple[Order, Reversal]
"""An order with the models' plain names, and as the evidence names it."""


def _newest(evidence: Evidence, found: Sequence[Reversal]) -> list[_Placed]:
    """Return one order per pair, batch size and compiler, of the newest session to be trusted."""
    titles = {
        (group.title, group.session_id): str(group.cells[0].record["case"]["model"]["label"])
        for group in evidence.groups
    }
    plain = {title: name for (title, _), name in titles.items()}
    newest: dict[tuple[object, ...], Reversal] = {}
    rank = {session_id: i for i, session_id in enumerate(evidence.sessions)}

    def worth(one: Reversal) -> tuple[bool, int]:
        return one.reason != "untrusted", rank.get(one.session_id, -1)

    for order in sorted(found, key=worth):
        names = frozenset(plain[name] for name in (order.model_a, order.model_b))
        newest[names, order.batch, order.device, order.precision, order.compiler] = order
    counted = {id(order) for order in newest.values()}
    kept = [order for order in found if id(order) in counted]
    return [
        (
            Order(
                replace(order, model_a=plain[order.model_a], model_b=plain[order.model_b]),
                settling(evidence, order),
                origin(evidence, order),
            ),
            order,
        )
        for order in kept
    ]
