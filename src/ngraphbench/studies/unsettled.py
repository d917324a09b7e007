"""What a development study leaves open, as cells to measure next."""

from __future__ import annotations

from collections.abc import Sequence

from ngraphbench.analysis.depth import DepthFit
from ngraphbench.analysis.tables import Cell, Evidence
from ngraphbench.studies.composition import Kind, Material
from ngraphbench.studies.refinement import AGAIN, Wanted

__all__ = ["is_of", "wanted_at_limit", "wanted_failures", "wanted_fits", "wanted_materials"]


def is_of(fit: DepthFit, kind: Kind) -> bool:
    """Return whether a fit is of some kind of blocks, at its batch size and on its device."""
    head, _, query = fit.title.partition("?")
    sizes = dict(part.split("=", 1) for part in query.split("&") if part)
    same = {key: str(value) for key, value in kind.sizes.items()}
    group = next(iter(kind.groups.values()))
    return (head, sizes, fit.setting) == (f"block:{kind.family}", same, group.setting)


def wanted_fits(found: Sequence[Kind], open_fits: Sequence[DepthFit]) -> list[Wanted]:
    """Return the kinds of which it is open what depth does to a speed-up."""
    return [
        Wanted(
            _all_cells(kind),
            f"{kind.title}, {fit.label}, batch {fit.batch}: what depth does to the speed-up",
            longer=True,
        )
        for fit in open_fits
        for kind in found
        if is_of(fit, kind)
    ]


def wanted_materials(found: Sequence[Kind], made: Sequence[Material]) -> list[Wanted]:
    """Return the kinds among which it is open which is worth most."""
    open_ = {(one.title, one.batch) for one in made if one.standing in ("level", "open")}
    return [
        Wanted(
            _all_cells(kind),
            f"{kind.title}, batch {kind.batch}: perhaps the best block to build with",
            longer=True,
        )
        for kind in found
        if (kind.title, kind.batch) in open_
    ]


def wanted_failures(evidence: Evidence) -> list[Wanted]:
    """Return cells without a result that a second attempt may give one."""
    return [
        Wanted((cell,), f"{group.title}, batch {group.batch}, {cell.label}: {cell.status}")
        for group in evidence.groups
        for cell in group.cells
        if cell.status in AGAIN
    ]


def wanted_at_limit(found: Sequence[Kind], limit_ms: float) -> list[Wanted]:
    """Return what lies at the limit: cells whose interval holds it, depths on either side."""
    wanted = []
    for kind in found:
        fastest = {depth: kind.fastest(depth) for depth in kind.groups}
        times = {depth: c.latency for depth, c in fastest.items() if c and c.latency}
        within = max((d for d, value in times.items() if value.high <= limit_ms), default=0)
        beyond = min((d for d, value in times.items() if value.low > limit_ms), default=0)
        for depth, value in times.items():
            cell = fastest[depth]
            if cell is not None and value.low <= limit_ms < value.high:
                why = f"{kind.title}, depth {depth}: its latency is too close to {limit_ms:g} ms"
                wanted.append(Wanted((cell,), why, longer=True))
        cell = fastest.get(within)
        if cell is not None and beyond - within > 1:
            why = f"{kind.title}: between depth {within}, which fits, and {beyond}, which does not"
            wanted.append(Wanted((cell,), why, depths=((within + beyond) // 2,)))
    return wanted


def _all_cells(kind: Kind) -> tuple[Cell, ...]:
    """Return every cell that may succeed: a line is fitted through cells of one session."""
    return tuple(
        cell
        for group in kind.groups.values()
        for cell in group.cells
        if cell.ranked or cell.status in AGAIN
    )
