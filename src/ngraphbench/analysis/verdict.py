"""What may be said per model and batch size: an indistinguishable top set, and one sentence.

No winner is ever named among cells that failed, gave wrong outputs or were not steady.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeAlias

from ngraphbench.analysis.reversal import Reversal
from ngraphbench.analysis.tables import Cell, Evidence, Group, Interval, Read, join
from ngraphbench.analysis.topset import resolved_slower, verdict_confidence
from ngraphbench.summary import Comparison
from ngraphbench.summary import verdict as judge
from ngraphbench.types import Json

__all__ = ["Outcome", "Verdict", "headline", "headline_sentences", "verdicts", "verdicts_of"]

Outcome: TypeAlias = Literal["faster", "not-faster", "unresolved", "no-baseline", "alone", "none"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one model at one batch size on one device.

    ``top`` are the candidates not resolved to be slower than the fastest one, fastest
    first; ``all_faster`` whether each of them is resolved to beat the baseline.
    ``speedup`` is the fastest one's against ``baseline`` (None: not known).
    ``outcome``: ``faster`` a compiler beats the baseline; ``not-faster`` none does;
    ``unresolved`` the samples do not say; ``no-baseline`` the baseline has no result;
    ``alone`` nothing but the baseline has one; ``none`` nothing has.
    """

    model: str
    batch: int
    device: str
    precision: str
    session_id: str
    outcome: Outcome
    top: tuple[str, ...]
    all_faster: bool
    baseline: str
    speedup: Interval | None
    single_launch: bool
    claim: str
    sentence: str


def verdicts(records: Sequence[Json], sessions: Sequence[Json], read: Read) -> list[Verdict]:
    """Return one verdict per model, batch size and session, in the order of the models."""
    return verdicts_of(Evidence(records, sessions, read))


def verdicts_of(evidence: Evidence) -> list[Verdict]:
    """Return what ``verdicts`` does, of an evidence that is there."""
    return [_verdict(evidence, group) for group in evidence.groups]


def headline(verdicts: Sequence[Verdict], reversals: Sequence[Reversal]) -> str:
    """Return the one or two sentences that matter most: a reversal first, where there is one."""
    return " ".join(headline_sentences(verdicts, reversals))


def headline_sentences(verdicts: Sequence[Verdict], reversals: Sequence[Reversal]) -> list[str]:
    """Return the sentences of the headline, the weightiest first; never none."""
    swaps = [r for r in reversals if r.verdict == "reversed"]
    sentences = [f"{r.sentence}." for r in swaps[:1]]
    sentences += _best(verdicts, 2 - len(sentences))
    return sentences or ["Nothing was measured."]


def _verdict(evidence: Evidence, group: Group) -> Verdict:
    top, unranked = _top_set(evidence, group)
    base = group.base
    speedup = _speedup(evidence, base, top[0]) if top and top[0] != base else None
    outcome, clause = _outcome(evidence, group, top, speedup)
    single = evidence.epochs(group.session_id) == 1
    notes = ["single launch"] if single and top else []
    notes += unranked
    left = sum(cell.dropped for cell in group.cells)
    if left and top:
        notes.append(f"{left} left the race early, surely slower")
    notes += [f"{c.label}'s outputs could not be verified" for c in top if c.status != "ok"]
    tail = f" ({'; '.join(notes)})" if notes else ""
    return Verdict(
        model=group.title,
        batch=group.batch,
        device=group.device,
        precision=group.precision,
        session_id=group.session_id,
        outcome=outcome,
        top=tuple(cell.label for cell in top),
        all_faster=outcome == "faster" and _all_faster(evidence, group, top),
        baseline=group.baseline,
        speedup=speedup[0] if speedup else None,
        single_launch=single,
        claim=evidence.profile(group.session_id).claim,
        sentence=f"At batch {group.batch}, {clause}{tail}.",
    )


def _top_set(evidence: Evidence, group: Group) -> tuple[list[Cell], list[str]]:
    """Return the top set, fastest first, and why other measured cells are not ranked."""
    ranked = [cell for cell in group.cells if cell.ranked and evidence.samples(cell) is not None]
    base = group.base
    reference = base if base in ranked else (ranked[0] if ranked else None)
    times: dict[str, float] = {}
    for cell in ranked:
        if reference is None or cell.key == reference.key:
            times[cell.label] = 1.0
        elif (paired := evidence.compare(cell, reference)) is not None:
            times[cell.label] = paired.estimate
    ranked = sorted((c for c in ranked if c.label in times), key=lambda c: times[c.label])
    unranked = [
        f"{c.label} not ranked: {'no paired rounds' if c.ranked else _state(c)}"
        for c in group.cells
        if c.measured and c not in ranked
    ]
    # Who left a race was proved slower then, with its own share of the allowed error.
    racing = [cell for cell in ranked if not cell.dropped]
    if not racing:
        return [], unranked
    slower = _resolved_slower(evidence, group, racing)
    return [cell for cell in racing if cell.label not in slower], unranked


def _state(cell: Cell) -> str:
    """Return a cell's status, with the reason of one that is not ranked all the same."""
    reason = cell.record["reason"]
    if cell.partly_compiled:
        return "only partly compiled"
    return f"unstable ({reason})" if cell.status == "unstable" and reason else cell.status


def _resolved_slower(evidence: Evidence, group: Group, racing: Sequence[Cell]) -> set[str]:
    """Return the labels of cells that are slower than the first one."""
    cells = {cell.label: cell for cell in racing}

    def compare(a: str, b: str, confidence: float) -> Comparison | None:
        return evidence.compare(cells[a], cells[b], confidence)

    profile = evidence.profile(group.session_id)
    raced = evidence.raced(group.session_id)
    fastest, *rivals = cells
    return resolved_slower(
        fastest,
        rivals,
        compare,
        confidence=verdict_confidence(profile.confidence, raced=raced),
        tie=profile.tie,
    )


def _speedup(evidence: Evidence, base: Cell | None, cell: Cell) -> tuple[Interval, str] | None:
    """Return a cell's speed-up as recorded, else from samples, and the verdict on it."""
    if cell.speedup is not None:
        return cell.speedup, cell.mark
    comparison = evidence.compare(base, cell) if base else None
    if comparison is None:
        return None
    tie = evidence.profile(cell.record["session_id"]).tie
    return Interval.from_comparison(comparison), judge(comparison, tie)


def _outcome(
    evidence: Evidence, group: Group, top: Sequence[Cell], speedup: tuple[Interval, str] | None
) -> tuple[Outcome, str]:
    """Return the outcome and its sentence, without the batch size and the notes."""
    base = group.base
    if not top:
        return _without_ranking(group)
    if evidence.untrusted(group.session_id):
        return "unresolved", (
            "unresolved: the baseline differs from itself in this session (A/A control), "
            "so no ranking of it can be trusted"
        )
    if base is None and (speedup is None or speedup[1] != "faster"):
        return _without_baseline(group, top)
    if base in top:
        return _with_baseline_on_top(evidence, group, top)
    if speedup is None:
        return "unresolved", f"unresolved: {top[0].label} and {group.baseline} share no rounds"
    return "faster", _faster(evidence, group, top, speedup[0])


def _faster(evidence: Evidence, group: Group, top: Sequence[Cell], speedup: Interval) -> str:
    factor = f"{speedup.times} ({speedup.range}) faster than {group.baseline}"
    others = [cell.label for cell in top[1:]]
    if not others:
        among = "the fastest, " if sum(cell.ranked for cell in group.cells) > 2 else ""
        return f"{top[0].label} is {among}{factor}"
    if _all_faster(evidence, group, top):
        return f"{join([top[0].label, *others])} are indistinguishable and {factor}"
    return f"{top[0].label} is {factor}; {join(others)} cannot be told apart from it"


def _all_faster(evidence: Evidence, group: Group, top: Sequence[Cell]) -> bool:
    marks = [_speedup(evidence, group.base, cell) for cell in top]
    return all(mark is not None and mark[1] == "faster" for mark in marks)


def _with_baseline_on_top(
    evidence: Evidence, group: Group, top: Sequence[Cell]
) -> tuple[Outcome, str]:
    base = group.base
    assert base is not None
    rivals = [cell for cell in group.cells if cell.ranked and cell != base]
    if not rivals:
        return "alone", f"only {base.label} has a result, so there is nothing to compare it with"
    judged = [(cell, _speedup(evidence, base, cell)) for cell in top if cell != base]
    undecided = [(c, s[0]) for c, s in judged if s is not None and s[1] in ("unresolved", "faster")]
    if undecided:
        spelled = [f"{c.label} ({s.times}, {s.range})" for c, s in undecided]
        verb = "beats" if len(spelled) == 1 else "beat"
        return "unresolved", f"it is unresolved whether {join(spelled)} {verb} {base.label}"
    ties = [cell.label for cell, s in judged if s is not None and s[1] == "tie"]
    also = f"; {join(ties)} {'ties' if len(ties) == 1 else 'tie'} with it" if ties else ""
    return "not-faster", f"no compiler is faster than {base.label}{also}"


def _without_ranking(group: Group) -> tuple[Outcome, str]:
    statuses = ", ".join(f"{cell.label} {cell.status}" for cell in group.cells)
    if any(cell.ranked for cell in group.cells):
        return "unresolved", "unresolved: the samples needed for a comparison are not there"
    return "none", f"no candidate can be ranked: {statuses}"


def _without_baseline(group: Group, top: Sequence[Cell]) -> tuple[Outcome, str]:
    status = next((_state(c) for c in group.cells if c.label == group.baseline), "not measured")
    rivals = [cell for cell in group.cells if cell.ranked]
    names = join([cell.label for cell in top])
    lacking = f"{group.baseline}, the baseline, has no result ({status})"
    if status.startswith("unstable"):
        lacking = f"{group.baseline}, the baseline, cannot be compared with: it is {status}"
    if len(rivals) == 1:
        return "no-baseline", f"only {names} has a result; {lacking}"
    if len(top) == 1:
        return "no-baseline", f"{names} is the fastest; {lacking}"
    return "no-baseline", f"{names} are the fastest and indistinguishable; {lacking}"


def _best(verdicts: Sequence[Verdict], count: int) -> list[str]:
    """Return at most ``count`` sentences that sum the verdicts up."""
    if not verdicts or count < 1:
        return []
    one_model = len({verdict.model for verdict in verdicts}) == 1
    if len(verdicts) == 1:
        return [_named(verdicts[0], one_model)]
    merged = _merged(verdicts)
    if merged:
        return [merged]
    if one_model and len(verdicts) <= count:
        return [_named(verdict, one_model) for verdict in verdicts]
    return _spread(verdicts, count, one_model)


def _merged(verdicts: Sequence[Verdict]) -> str:
    """Return one sentence where all verdicts agree, else an empty string."""
    first = verdicts[0]
    outcomes = {verdict.outcome for verdict in verdicts}
    same = len({(frozenset(v.top), v.baseline) for v in verdicts}) == 1
    where = _everywhere(verdicts)
    single = " (single launch)" if any(v.single_launch for v in verdicts) else ""
    if outcomes == {"not-faster"} and len({v.baseline for v in verdicts}) == 1:
        return f"No compiler is faster than {first.baseline} {where}{single}."
    speedups = sorted((v.speedup for v in verdicts if v.speedup), key=lambda s: s.estimate)
    if not all(v.all_faster and v.speedup for v in verdicts) or not same:
        return ""
    are = "is" if len(first.top) == 1 else "are indistinguishable and"
    factors = f"{speedups[0].times} to {speedups[-1].times}"
    return f"{join(first.top)} {are} {factors} faster than {first.baseline} {where}{single}."


def _everywhere(verdicts: Sequence[Verdict]) -> str:
    """Return where all verdicts hold, such as ``at batches 1 and 8``."""
    if len({(v.model, v.device, v.precision) for v in verdicts}) > 1:
        return f"in all {len(verdicts)} comparisons"
    batches = [str(batch) for batch in sorted({verdict.batch for verdict in verdicts})]
    return f"at {'batches' if len(batches) > 1 else 'batch'} {join(batches)}"


def _spread(verdicts: Sequence[Verdict], count: int, one_model: bool) -> list[str]:
    """Return the most telling verdicts: decided ones first, then the largest speed-up."""

    def telling(verdict: Verdict) -> tuple[int, float]:
        order = ("faster", "not-faster", "no-baseline", "unresolved", "alone", "none")
        return order.index(verdict.outcome), -(verdict.speedup.estimate if verdict.speedup else 0)

    if one_model:
        same = groupby(sorted(verdicts, key=telling), key=lambda v: (v.outcome, v.top))
        leaders = [next(group) for _, group in same]
    else:
        models = {verdict.model: verdict for verdict in sorted(verdicts, key=telling, reverse=True)}
        leaders = sorted(models.values(), key=telling)
    return [_named(verdict, one_model) for verdict in leaders[:count]]


def _named(verdict: Verdict, one_model: bool) -> str:
    if one_model:
        return verdict.sentence
    return f"For {verdict.model} at{verdict.sentence.removeprefix('At')}"
