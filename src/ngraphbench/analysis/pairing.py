"""Which cell of one run is which of another, and what each is set against."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ngraphbench.analysis.likeness import Difference
from ngraphbench.analysis.tables import Cell, Evidence, Group
from ngraphbench.case import canonical
from ngraphbench.stats import Launch, pooled_launch
from ngraphbench.summary import launch_of, prior_of

__all__ = ["REFERENCE", "Matched", "Pair", "Side", "launches_of_both", "paired_cells"]

Key: TypeAlias = tuple[object, ...]
REFERENCE = "reference"
"""Why a cell has nothing to be set against: the others are set against it."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of two runs: its evidence, and the keys of the cells that count in it (None: all)."""

    evidence: Evidence
    current: Collection[tuple[str, str]] | None = None

    @property
    def cells(self) -> list[Cell]:
        """The cells that count, in the order of the groups."""
        counted = self.current
        return [
            cell
            for group in self.evidence.groups
            for cell in group.cells
            if counted is None or cell.key in counted
        ]

    @property
    def groups(self) -> dict[tuple[str, str], Group]:
        """What stood beside each cell in its session."""
        return {cell.key: group for group in self.evidence.groups for cell in group.cells}

    def shown_launch(self, session_id: str) -> Launch:
        """Return how a session's own launches spread, no belief in it; 0 d.f. for one launch."""
        cells = self.evidence.cells_of(session_id)
        known = [s for s in map(self.evidence.samples, cells) if s is not None]
        prior = prior_of(self.evidence.sessions.get(session_id))
        return launch_of(known, replace(prior, degrees=0.0))


@dataclass(frozen=True, slots=True)
class Pair:
    """One cell in both runs, and what it is set against there; else ``why`` there is nothing."""

    before: Cell
    after: Cell
    reference: tuple[Cell, Cell] | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Matched:
    """Cells of both runs, those of one alone, and references that are not alike."""

    pairs: tuple[Pair, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    references: tuple[Difference, ...]


def paired_cells(before: Side, after: Side, *, reference: str = "") -> Matched:
    """Return the cells that bear the same name in both runs, with their references.

    Model, batch size, precision, shapes, device and the compiler with its options make the name;
    where that fits several, versions, model bytes, options and threads must agree as well.
    """
    left, right = before.cells, after.cells
    found = _matched(left, right, _whole_name)
    named = {one.key for one, _ in found}, {other.key for _, other in found}
    found += _matched(
        [cell for cell in left if cell.key not in named[0]],
        [cell for cell in right if cell.key not in named[1]],
        _name,
    )
    order = {cell.key: i for i, cell in enumerate(right)}
    found.sort(key=lambda pair: order[pair[1].key])
    known = {old.key: new for old, new in found}
    groups, others = before.groups, after.groups
    pairs, references = [], []
    for old, new in found:
        beside = groups[old.key], others[new.key]
        pair, difference = _with_reference((old, new), beside, known, reference)
        pairs.append(pair)
        references += [difference] if difference else []
    taken = {pair.before.key for pair in pairs}, {pair.after.key for pair in pairs}
    return Matched(
        pairs=tuple(pairs),
        gone=tuple(_title(cell) for cell in left if cell.key not in taken[0]),
        new=tuple(_title(cell) for cell in right if cell.key not in taken[1]),
        references=tuple(dict.fromkeys(references)),
    )


def _title(cell: Cell) -> str:
    case = cell.record["case"]
    return f"{case['model']['label']} b={case['batch']} {cell.label}"


def _matched(
    left: Sequence[Cell], right: Sequence[Cell], name: Callable[[Cell], Key]
) -> list[tuple[Cell, Cell]]:
    named: list[dict[Key, list[Cell]]] = [{}, {}]
    for side, cells in zip(named, (left, right), strict=True):
        for cell in cells:
            side.setdefault(name(cell), []).append(cell)
    return [
        (cells[0], named[1][key][0])
        for key, cells in named[0].items()
        if len(cells) == 1 and len(named[1].get(key, ())) == 1
    ]


def _name(cell: Cell) -> Key:
    case = cell.record["case"]
    place = (case["model"]["label"], case["batch"], case["precision"], canonical(case["shapes"]))
    compiler = (case["compiler"]["name"], canonical(case["compiler"]["given"]), case["replica"])
    return (*place, case["device"]["name"], *compiler)


def _whole_name(cell: Cell) -> Key:
    case = cell.record["case"]
    compiler, device = case["compiler"], case["device"]
    exact = (compiler["version"], canonical(compiler["options"]), case["model"]["content"])
    return (*_name(cell), *exact, device["threads"], device["accelerator"])


def _with_reference(
    cells: tuple[Cell, Cell],
    groups: tuple[Group, Group],
    known: dict[tuple[str, str], Cell],
    wished: str,
) -> tuple[Pair, Difference | None]:
    """Return a pair with its reference, and how that differs between the runs if it does."""
    old, new = cells
    labels = [wished or group.baseline for group in groups]
    if old.label == labels[0] or new.label == labels[1]:
        return Pair(old, new, None, REFERENCE), None
    found = [
        next((cell for cell in group.cells if cell.label == label and cell.ranked), None)
        for group, label in zip(groups, labels, strict=True)
    ]
    base, other = found
    if base is None or other is None:
        run = "before" if base is None else "after"
        label = labels[0 if base is None else 1]
        return Pair(old, new, None, f"unpaired: {label} has no result {run}"), None
    partner = known.get(base.key)
    if partner is None or partner.key != other.key:
        text = f"unpaired: set against {base.label} before, {other.label} after"
        return Pair(old, new, None, text), None
    return Pair(old, new, (base, other)), _other_version(base, other)


def _other_version(base: Cell, other: Cell) -> Difference | None:
    old, new = (cell.record["environment"].get("compiler_version") for cell in (base, other))
    if old == new:
        return None
    return Difference("version of the reference", str(old), str(new), base.label)


def launches_of_both(
    before: Side, after: Side, sessions: Collection[tuple[str, str]]
) -> dict[tuple[str, str], tuple[Launch, Launch]]:
    """Return the launch spread of each pair of sessions: of one host, they show it together.

    What was believed before the first of them is the prior. Sessions of two hosts, or of two
    kinds of claim, stand each on its own.
    """
    found = {}
    for one, other in sessions:
        left, right = before.evidence.sessions.get(one), after.evidence.sessions.get(other)
        prior = prior_of(left)
        alone = before.evidence.launch(one), after.evidence.launch(other)
        same = (
            left and right and left["fingerprint"].get("host") == right["fingerprint"].get("host")
        )
        if same and prior.claim == prior_of(right).claim:
            shown = before.shown_launch(one), after.shown_launch(other)
            alone = (pooled_launch(shown, prior),) * 2
        found[one, other] = alone
    return found
