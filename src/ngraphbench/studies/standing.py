"""Whether an archetype keeps its place once compiled, and what would settle that it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from ngraphbench.analysis.ranking import Flip, Settle
from ngraphbench.analysis.reversal import Reversal
from ngraphbench.analysis.tables import Evidence
from ngraphbench.studies.arena import Arena, Side
from ngraphbench.studies.refinement import AGAIN, Wanted

__all__ = ["Standing", "standing", "wanted_flips", "wanted_here", "wanted_orders"]

Standing: TypeAlias = Literal["stays", "falls", "undecided", "unsupported"]

UNTRUSTED = "its session failed the A/A control"


def standing(arena: Arena, model: str) -> tuple[Standing, list[str]]:
    """Return whether a model keeps its place over all batch sizes, and the reasons if not."""
    lacking: list[str] = []
    fallen: list[str] = []
    undecided: list[str] = []
    for batch in arena.batches:
        if not arena.groups(model, batch):
            continue
        if arena.untrusted(batch):
            undecided.append(f"batch {batch}: {UNTRUSTED}")
            continue
        best = arena.best(model, batch)
        if best is None:
            lacking.append(f"batch {batch}: no compiler has a right result")
            continue
        if best.mark == "slower":
            fallen.append(f"batch {batch}: slower compiled than uncompiled")
        for rival in arena.models:
            if rival == model or arena.best(rival, batch) is None:
                continue
            found = _passed(arena, model, rival, batch)
            if found:
                (fallen if found.startswith("behind") else undecided).append(
                    f"batch {batch}: {found}"
                )
    if fallen:
        return "falls", fallen
    if lacking:
        return "unsupported", lacking
    return ("undecided", undecided) if undecided else ("stays", [])


def _passed(arena: Arena, model: str, rival: str, batch: int) -> str:
    """Return whether a rival passed a model: ``behind ...``, what is open, or nothing."""
    before = arena.side(model, rival, batch, compiled=False).side
    after = arena.side(model, rival, batch, compiled=True).side
    name = arena.names[rival]
    if after.verdict == "slower":
        if before.verdict in ("faster", "tie"):
            return f"behind {name} ({_ratio(before)} uncompiled, {_ratio(after)} compiled)"
        if before.verdict == "unresolved":
            return f"the order with {name} was open uncompiled ({before.reason})"
    if after.verdict == "unresolved" and before.verdict != "slower":
        return f"the order with {name} is open compiled ({after.reason})"
    return ""


def _ratio(side: Side) -> str:
    return f"{side.ratio.times}, {side.ratio.range}" if side.ratio else "no ratio"


def wanted_here(arena: Arena) -> list[Wanted]:
    """Return the cells that would settle what is decided of one place."""
    return [*_wanted_sides(arena), *_wanted_cells(arena)]


def _wanted_sides(arena: Arena) -> list[Wanted]:
    """Return the cells that would settle who is fastest, or whether one keeps its place."""
    wanted = []
    for batch in arena.batches:
        if arena.untrusted(batch):
            cells = [cell for m in arena.models for cell in arena.cells(m, batch).values()]
            wanted.append(Wanted(tuple(cells), f"batch {batch}: {UNTRUSTED}"))
            continue
        for i, a in enumerate(arena.models):
            for b in arena.models[i + 1 :]:
                for compiled in (True, False):
                    judged = arena.side(a, b, batch, compiled=compiled)
                    side = judged.side
                    if side.verdict != "unresolved" or not _may_matter(arena, a, b, batch):
                        continue
                    if side.reason == "interval" and side.settle == Settle(None, None):
                        continue
                    how = "compiled" if compiled else "uncompiled"
                    names = f"{arena.names[a]} and {arena.names[b]}"
                    why = f"{names}, batch {batch}: their order {how} is open ({side.reason})"
                    longer = side.reason == "interval"
                    if side.reason in ("interval", "unpaired", "untrusted"):
                        wanted.append(Wanted(judged.cells, why, longer=longer))
    return wanted


def _may_matter(arena: Arena, a: str, b: str, batch: int) -> bool:
    """Return whether an open order of two decides anything: who is fastest, or who falls."""
    names = {arena.names[a], arena.names[b]}
    if names <= set(arena.fastest(batch).top):
        return True
    return any("open" in _passed(arena, *pair, batch) for pair in ((a, b), (b, a)))


def _wanted_cells(arena: Arena) -> list[Wanted]:
    """Return cells without a result that a second attempt may give one."""
    found = []
    for model in arena.models:
        for batch in arena.batches:
            for label, cell in arena.cells(model, batch).items():
                if cell.status in AGAIN:
                    why = f"{arena.names[model]}, batch {batch}, {label}: {cell.status}"
                    longer = cell.status == "unstable"
                    found.append(Wanted((cell,), why, longer=longer))
    return found


def wanted_orders(
    evidence: Evidence, named: Sequence[tuple[Reversal, Reversal, Settle | None]]
) -> list[Wanted]:
    """Return the cells of orders under a compiler that look reversed and are open.

    Each is given by its plain names, as the evidence names it, and with what would settle it.
    """
    wanted = []
    for plain, order, cure in named:
        # What is untrusted is asked for by batch sizes as a whole.
        if order.verdict != "unresolved" or order.reason != "interval":
            continue
        if cure in (None, Settle(None, None)) or not _looks_reversed(order):
            continue
        cells = []
        for title in (order.model_a, order.model_b):
            group = evidence.group(title, order.batch, order.session_id, order.precision)
            labels = (order.compiler, group.baseline if group else "")
            cells += [cell for cell in group.cells if cell.label in labels] if group else []
        names = f"{plain.model_a} and {plain.model_b}"
        why = f"{names}, batch {order.batch}: does {order.compiler} keep their order?"
        wanted.append(Wanted(tuple(cells), why, longer=True))
    return wanted


def _looks_reversed(order: Reversal) -> bool:
    ratios = (order.under_baseline, order.under_compiler)
    above = [ratio.estimate > 1.0 for ratio in ratios if ratio is not None]
    return len(set(above)) == 2


def wanted_flips(evidence: Evidence, changed: Sequence[Flip]) -> list[Wanted]:
    """Return the batch sizes between two at which an order flips."""
    wanted = []
    for flip in changed:
        middle = round((flip.before_batch * flip.after_batch) ** 0.5)
        if middle in (flip.before_batch, flip.after_batch):
            continue
        cells = tuple(
            cell
            for group in evidence.groups
            if group.batch in (flip.before_batch, flip.after_batch)
            and group.cells[0].record["case"]["model"]["label"] in (flip.model_a, flip.model_b)
            for cell in group.cells
            if cell.label in (flip.compiler, group.baseline)
        )
        between = f"between batch {flip.before_batch} and {flip.after_batch}"
        why = f"{flip.model_a} and {flip.model_b} under {flip.compiler}: they flip {between}"
        wanted.append(Wanted(cells, why, batches=(middle,)))
    return wanted
