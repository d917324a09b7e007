"""What several sessions measured counts once: in orders, means and headlines."""

from __future__ import annotations

from ngraphbench.analysis.tables import Evidence, Group

__all__ = ["without_repeats"]


def without_repeats(evidence: Evidence) -> Evidence:
    """Return the evidence without what another session has wholly, so that nothing counts twice.

    A group is left out where each of its candidates is in a newer group of the same model and
    setting, or in one that is to be trusted while its own session is not. Lines over batch sizes
    and depths choose their sessions themselves, and need all of it.
    """
    if without_repeats not in evidence.memory:
        repeated = _repeated(evidence)
        evidence.memory[without_repeats] = evidence.without(repeated) if repeated else evidence
    found: Evidence = evidence.memory[without_repeats]
    return found


def _repeated(evidence: Evidence) -> set[tuple[str, str]]:
    """Return the keys of the cells that are left out."""
    age = {session_id: i for i, session_id in enumerate(evidence.sessions)}
    alike: dict[tuple[object, ...], list[Group]] = {}
    for group in evidence.groups:
        alike.setdefault((group.model, *group.setting), []).append(group)
    left_out: set[tuple[str, str]] = set()
    for groups in alike.values():
        seen: set[str] = set()
        for group in sorted(
            groups if len(groups) > 1 else [],
            key=lambda g: (not evidence.untrusted(g.session_id), age.get(g.session_id, -1)),
            reverse=True,
        ):
            labels = {cell.label for cell in group.cells if cell.measured}
            if labels <= seen:
                left_out |= {cell.key for cell in group.cells}
            seen |= labels
    return left_out
