"""Archetypes that meet on one device: who is faster uncompiled, and who once compiled.

Each model is compiled by the compiler that suits it best; orders are of paired rounds, from
the newest session that holds both models. Pure functions of evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ngraphbench.analysis.contrasts import contrast
from ngraphbench.analysis.ranking import Settle, settle
from ngraphbench.analysis.reversal import comparable
from ngraphbench.analysis.tables import Cell, Evidence, Group, Interval
from ngraphbench.case import ONNX_BASELINE
from ngraphbench.stats import holm
from ngraphbench.summary import Verdict
from ngraphbench.summary import verdict as judge

__all__ = ["Arena", "Fastest", "Judged", "Side", "arenas"]

State: TypeAlias = Literal["one", "tie", "unresolved", "alone", "none", "untrusted"]


@dataclass(frozen=True, slots=True)
class Side:
    """Throughput of one model over that of another, uncompiled or compiled.

    ``verdict`` is what may be said of the first. ``reason`` of an unresolved one:
    ``interval``, ``unpaired``, ``untrusted``, ``baselines`` or ``no result``. ``under`` names
    the candidates; ``settle`` is what would resolve it.
    """

    verdict: Verdict
    reason: str = ""
    ratio: Interval | None = None
    under: tuple[str, ...] = ()
    settle: Settle | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A side with the cells it is of."""

    side: Side
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Fastest:
    """Who is fastest compiled at one batch size; the first of ``top`` has the best estimate.

    ``state``: ``one`` is surely fastest; ``tie``: all of ``top`` are equal; ``unresolved``:
    some of it cannot be told apart; ``alone``: no other has a result; ``none``: nobody has;
    ``untrusted``: every session of that batch size failed its A/A control.
    ``lead`` is the throughput of the first over that of the best of those below the top.
    """

    batch: int
    state: State
    top: tuple[str, ...]
    lead: Interval | None = None
    runner_up: str = ""


class Arena:
    """The models of one place (device, precision, shapes, threads), by content.

    ``title`` names the place, ``names`` the models.
    """

    def __init__(self, evidence: Evidence, groups: Sequence[Group], title: str) -> None:
        self.evidence = evidence
        self.title = title
        order = {session_id: i for i, session_id in enumerate(evidence.sessions)}
        newest = sorted(groups, key=lambda group: -order.get(group.session_id, -1))
        self._groups: dict[tuple[str, int], list[Group]] = {}
        for group in newest:
            self._groups.setdefault((group.model, group.batch), []).append(group)
        self.models = list(dict.fromkeys(group.model for group in groups))
        self.batches = sorted({group.batch for group in groups})
        self.names = _names(groups)
        self._best: dict[tuple[str, int], Cell | None] = {}
        self._sides: dict[tuple[str, str, int, bool], Judged] = {}

    def groups(self, model: str, batch: int) -> list[Group]:
        """Return what was measured of a model at a batch size, newest session first."""
        return self._groups.get((model, batch), [])

    def cells(self, model: str, batch: int) -> dict[str, Cell]:
        """Return the newest cell of each candidate, the baseline's among them."""
        found: dict[str, Cell] = {}
        for group in self.groups(model, batch):
            for cell in group.cells:
                found.setdefault(cell.label, cell)
        return found

    def untrusted(self, batch: int) -> bool:
        """Return whether every session of a batch size failed its own A/A control."""
        found = {group.session_id for model in self.models for group in self.groups(model, batch)}
        return bool(found) and all(map(self.evidence.untrusted, found))

    def baseline(self, model: str, batch: int) -> str:
        """Return the label of the baseline, or an empty string."""
        return next((group.baseline for group in self.groups(model, batch)), "")

    def best(self, model: str, batch: int) -> Cell | None:
        """Return the fastest compiled cell, by its speed-up over the baseline beside it."""
        key = model, batch
        if key not in self._best:
            self._best[key] = self._fastest_cell(model, batch)
        return self._best[key]

    def _fastest_cell(self, model: str, batch: int) -> Cell | None:
        found: dict[str, Cell] = {}
        for group in self.groups(model, batch):
            for label, cell in comparable(group).items():
                # The same graph unoptimised is a control, not a compiler.
                if label not in (group.baseline, ONNX_BASELINE) and cell.latency is not None:
                    found.setdefault(label, cell)
        speedups = {label: cell.speedup for label, cell in found.items()}
        if all(speedups.values()):
            return max(found.values(), key=lambda cell: _estimate(cell.speedup), default=None)
        return min(found.values(), key=lambda cell: _estimate(cell.latency), default=None)

    def side(self, a: str, b: str, batch: int, *, compiled: bool) -> Judged:
        """Return the order of two models; intervals allow for all rivals of a model."""
        key = a, b, batch, compiled
        if key not in self._sides:
            self._sides[key] = self._judged(a, b, batch, compiled=compiled)
        return self._sides[key]

    def _judged(self, a: str, b: str, batch: int, *, compiled: bool) -> Judged:
        wanted = [self._label(model, batch, compiled=compiled) for model in (a, b)]
        here = [self.cells(m, batch).get(w) for m, w in zip((a, b), wanted, strict=True) if w]
        cells = tuple(cell for cell in here if cell is not None)
        if not all(wanted) or len(cells) < 2:
            return Judged(Side("unresolved", "no result"), cells)
        under = (wanted[0], wanted[1])
        if not compiled and under[0] != under[1]:
            return Judged(Side("unresolved", "baselines", under=under), cells)
        lacking = "unpaired"
        for first in self.groups(a, batch):
            for second in self.groups(b, batch):
                mine, theirs = comparable(first).get(under[0]), comparable(second).get(under[1])
                if first.session_id != second.session_id or mine is None or theirs is None:
                    continue
                if not self.evidence.untrusted(first.session_id):
                    return self._paired(mine, theirs, under)
                lacking, cells = "untrusted", (mine, theirs)
        if not compiled and not all(self._compared(model, batch) for model in (a, b)):
            lacking = "no result"
        return Judged(Side("unresolved", lacking, under=under), cells)

    def _compared(self, model: str, batch: int) -> bool:
        label = self.baseline(model, batch)
        return any(label in comparable(group) for group in self.groups(model, batch))

    def _label(self, model: str, batch: int, *, compiled: bool) -> str:
        if not compiled:
            return self.baseline(model, batch)
        best = self.best(model, batch)
        return best.label if best else ""

    def _paired(self, mine: Cell, theirs: Cell, under: tuple[str, str]) -> Judged:
        profile = self.evidence.profile(mine.key[0])
        level = holm(profile.confidence, 0, len(self.models) - 1)
        found = self.evidence.compare(theirs, mine, level)
        if found is None:
            return Judged(Side("unresolved", "unpaired", under=under), (mine, theirs))
        verdict = judge(found, profile.tie)
        cure = None
        if verdict == "unresolved":
            terms = contrast(self.evidence, [(theirs, 1.0), (mine, -1.0)], level)
            cure = settle(terms, profile.tie) if terms else None
        reason = "interval" if verdict == "unresolved" else ""
        side = Side(verdict, reason, Interval.from_comparison(found), under, cure)
        return Judged(side, (mine, theirs))

    def fastest(self, batch: int) -> Fastest:
        """Return who is fastest once compiled."""
        best = {model: self.best(model, batch) for model in self.models}
        found = {model: cell for model, cell in best.items() if cell is not None}
        if not found:
            return Fastest(batch, "none", ())
        if self.untrusted(batch):
            return Fastest(batch, "untrusted", tuple(self.names[model] for model in found))
        ranked = sorted(found, key=lambda model: _estimate(found[model].latency))
        first = ranked[0]
        if len(ranked) == 1:
            return Fastest(batch, "alone", (self.names[first],))
        for rival in ranked[1:]:
            # Latencies of several sessions may mislead; paired rounds do not.
            if self.side(first, rival, batch, compiled=True).side.verdict == "slower":
                first = rival
        rivals = [model for model in ranked if model != first]
        sides = {rival: self.side(first, rival, batch, compiled=True).side for rival in rivals}
        top = [rival for rival in rivals if sides[rival].verdict != "faster"]
        below = [rival for rival in rivals if sides[rival].verdict == "faster"]
        state: State = "one"
        if top:
            equal = all(sides[rival].verdict == "tie" for rival in top)
            state = "tie" if equal else "unresolved"
        return Fastest(
            batch,
            state,
            tuple(self.names[model] for model in (first, *top)),
            sides[below[0]].ratio if below else None,
            self.names[below[0]] if below else "",
        )


def arenas(evidence: Evidence) -> list[Arena]:
    """Return one arena per device, precision, set of shapes and number of threads."""
    gathered: dict[tuple[object, ...], list[Group]] = {}
    for group in evidence.groups:
        gathered.setdefault(group.setting[1:], []).append(group)
    places = list(gathered)
    varies = (
        [len({place[i] for place in places}) > 1 for i in range(len(places[0]))] if places else []
    )
    found = []
    for place, groups in gathered.items():
        device = groups[0].device
        extra = [str(part) for part, several in zip(place, varies, strict=True) if several]
        rest = ", ".join(part for part in extra if part and part != device)
        found.append(Arena(evidence, groups, f"{device} [{rest}]" if rest else device))
    return found


def _names(groups: Sequence[Group]) -> dict[str, str]:
    """Return the models' labels by content, those that two share with a digest."""
    labels = {group.model: str(group.cells[0].record["case"]["model"]["label"]) for group in groups}
    shared = list(labels.values())
    return {
        model: f"{label}~{model[:4]}" if shared.count(label) > 1 else label
        for model, label in labels.items()
    }


def _estimate(value: Interval | None) -> float:
    return value.estimate if value is not None else 0.0
