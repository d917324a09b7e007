"""Which cells make a line over depth: sets of models that differ in depth alone, by session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias

from ngraphbench.analysis.tables import Cell, Evidence, Group
from ngraphbench.analysis.titles import SETTINGS, setting_text
from ngraphbench.case import canonical
from ngraphbench.types import Json

__all__ = ["ByDepth", "chosen", "depth_sets", "family", "places", "usable"]

ByDepth: TypeAlias = Mapping[int, Sequence[Group]]
"""Groups of one set by depth, of any session."""

ENOUGH = 3
"""Depths of one session make a line that can be tested."""


def depth_sets(evidence: Evidence) -> dict[tuple[object, ...], ByDepth]:
    """Return the sets of two depths or more, by family and setting."""
    gathered: dict[tuple[object, ...], dict[int, list[Group]]] = {}
    for group in evidence.groups:
        model = group.cells[0].record["case"]["model"]
        depth = model["args"].get("depth")
        if isinstance(depth, int) and not isinstance(depth, bool):
            by_depth = gathered.setdefault((family(model), *group.setting), {})
            by_depth.setdefault(depth, []).append(group)
    return {key: by_depth for key, by_depth in gathered.items() if len(by_depth) > 1}


def chosen(evidence: Evidence, by_depth: ByDepth, label: str) -> tuple[dict[int, Group], str]:
    """Return one group per depth, of the session that has most depths of a candidate if it can.

    And that session's id where it makes the line alone: where it has ``ENOUGH`` depths, those
    of other sessions would only let the machine's movement in. A session that failed its A/A
    control comes last, the newest of equals first.
    """
    held = {
        (depth, group.session_id)
        for depth, groups in by_depth.items()
        for group in groups
        if usable(evidence, group, label) is not None
    }
    counts = Counter(session_id for _, session_id in held)
    age = {session_id: i for i, session_id in enumerate(evidence.sessions)}

    def trust(session_id: str) -> tuple[bool, int, int]:
        return not evidence.untrusted(session_id), counts[session_id], age.get(session_id, -1)

    def worth(depth: int, group: Group) -> tuple[bool, tuple[bool, int, int]]:
        return (depth, group.session_id) in held, trust(group.session_id)

    found = {depth: max(groups, key=partial(worth, depth)) for depth, groups in by_depth.items()}
    best = max(counts, key=trust, default="")
    return found, best if counts[best] >= ENOUGH else ""


def places(sets: Sequence[ByDepth]) -> list[str]:
    """Return for each set what tells it from the others beside model and batch size."""
    firsts = [next(iter(by_depth.values()))[0] for by_depth in sets]
    cases = [group.cells[0].record["case"] for group in firsts]
    told = [[setting_text(case, key) for key in SETTINGS] for case in cases]
    varies = [len(set(column)) > 1 for column in zip(*told, strict=True)]
    return [", ".join(t for t, v in zip(texts, varies, strict=True) if v and t) for texts in told]


def usable(evidence: Evidence, group: Group, label: str) -> Cell | None:
    """Return a candidate's cell in a group, where it may stand in an order and has samples."""
    found = (cell for cell in group.cells if cell.label == label and cell.ranked)
    return next((cell for cell in found if evidence.logs(cell)), None)


def family(model: Json) -> str:
    """Return the model without its depth, such as ``block:vit?width=192``."""
    head = str(model["source"]).partition("?")[0]
    rest = {key: value for key, value in sorted(model["args"].items()) if key != "depth"}
    query = "&".join(f"{key}={_plain(value)}" for key, value in rest.items())
    return f"{head}?{query}" if query else head


def _plain(value: object) -> str:
    return value if isinstance(value, str) else canonical(value)
