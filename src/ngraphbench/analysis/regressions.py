"""Two runs put side by side: what got slower, what stopped working, and how sure that is.

Two runs are different launches on a machine that has moved meanwhile. So a cell is set against a
reference that stood beside it in each run, and what is compared is the change of that ratio: what
the machine did to both cancels, and the launch term of all four programs is in the interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeAlias

from ngraphbench import stats
from ngraphbench.analysis.contrasts import Contrast, added, session_contrast
from ngraphbench.analysis.likeness import (
    Difference,
    cell_differences,
    disturbances,
    session_differences,
)
from ngraphbench.analysis.pairing import REFERENCE, Pair, Side, launches_of_both, paired_cells
from ngraphbench.analysis.tables import Interval, join
from ngraphbench.records import measured
from ngraphbench.stats import Launch
from ngraphbench.summary import Comparison
from ngraphbench.summary import verdict as judge
from ngraphbench.types import Json

__all__ = ["THRESHOLD", "Change", "RunComparison", "compare_runs"]

THRESHOLD = 0.03
"""A slow-down of less is not worth stopping for."""

ChangeVerdict: TypeAlias = Literal[
    "faster", "slower", "tie", "unresolved", "unstable", "stopped", "reference"
]
Launches: TypeAlias = Mapping[tuple[str, str], tuple[Launch, Launch]]
Judged: TypeAlias = Callable[[float], "Comparison | None"]


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one cell.

    ``speed`` is its time before over its time after, each measured against ``reference`` in its
    own run: above 1 it got faster. The interval holds at the level that Holm's procedure gave
    this cell. ``verdict``: ``faster | slower | tie | unresolved | unstable``, ``stopped``
    where it was measured before and is not any more, ``reference`` where others are set against it
    and it against none; ``reason`` says why nothing can be told.
    ``regression``: it is slower, by more than the threshold as estimated, or it stopped.
    """

    model: str
    batch: int
    precision: str
    label: str
    versions: tuple[str, str]
    statuses: tuple[str, str]
    latency_ms: tuple[float | None, float | None]
    reference: str
    speed: Interval | None
    verdict: ChangeVerdict
    reason: str
    regression: bool

    @property
    def place(self) -> str:
        """Where it is, as people read it."""
        return f"{self.model} b={self.batch} {self.label}"

    @property
    def status_changed(self) -> bool:
        return self.statuses[0] != self.statuses[1]

    def to_json(self) -> Json:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """What two runs say of each other.

    ``changes`` holds the cells of both, ``gone`` and ``new`` name those of one alone;
    ``differences`` is what is not alike. ``confidence`` is that of the whole family of cells:
    with its complement, at most, any cell that did not change is called faster or slower.
    ``disturbed`` says what disturbed the machine, before and after.
    """

    changes: tuple[Change, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    differences: tuple[Difference, ...]
    threshold: float
    confidence: float
    single_launch: bool
    claim: str
    disturbed: tuple[str, ...] = ()

    @property
    def regressions(self) -> list[Change]:
        return [change for change in self.changes if change.regression]

    @property
    def forbidding(self) -> list[Difference]:
        """What differs so that figures must not be compared."""
        return [one for one in self.differences if one.forbids]

    @property
    def judged(self) -> int:
        """How many cells were compared by their times."""
        return sum(change.speed is not None for change in self.changes)

    @property
    def unseen(self) -> float:
        """The largest slow-down, as a share, that the intervals leave possible."""
        return max((1.0 / c.speed.low - 1.0 for c in self.changes if c.speed), default=0.0)

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        if found := self.regressions:
            named = [_told(change) for change in found[:3]]
            left = len(found) - len(named)
            count = f"{len(found)} regression{'s' if len(found) > 1 else ''}"
            return f"{count}: {'; '.join(named)}{f'; and {left} more' if left else ''}."
        if not self.judged:
            return "No times could be compared."
        better = [change.place for change in self.changes if change.verdict == "faster"]
        faster = f"; faster: {join(better[:3])}" if better else ""
        more = f" and {len(better) - 3} more" if len(better) > 3 else ""
        some = f"{self.judged} cell{'s' if self.judged > 1 else ''}"
        limit = f"; slow-downs of up to {100 * self.unseen:.0f} % are not excluded"
        return (
            f"No regression in {some} compared{faster}{more}"
            f"{limit if self.unseen > self.threshold else ''}."
        )

    def to_json(self) -> Json:
        return {
            "headline": self.headline,
            "regression": bool(self.regressions),
            "threshold": self.threshold,
            "largest_slow_down_not_excluded": self.unseen,
            "confidence": self.confidence,
            "correction": "Holm",
            "claim": self.claim,
            "single_launch": self.single_launch,
            "changes": [change.to_json() for change in self.changes],
            "gone": list(self.gone),
            "new": list(self.new),
            "differences": [difference.to_json() for difference in self.differences],
            "disturbed": list(self.disturbed),
        }


def compare_runs(
    before: Side, after: Side, *, threshold: float = THRESHOLD, reference: str = ""
) -> RunComparison:
    """Return what changed from one run to another. The caller decides what differences forbid.

    ``reference`` is the label of what every cell is set against in its own run; empty: its
    session's baseline. Family-wise error over all cells by Holm's procedure. Source: Holm,
    Scand. J. Statist. 6 (1979).
    """
    matched = paired_cells(before, after, reference=reference)
    profiles = [
        side.evidence.profile(session)
        for side, sessions in zip((before, after), _sessions(matched.pairs), strict=True)
        for session in sessions
    ]
    confidence = max((p.confidence for p in profiles), default=0.95)
    tie = min([threshold, *(profile.tie for profile in profiles)])
    drafts = [_draft(before, after, pair) for pair in matched.pairs]
    sessions = dict.fromkeys((p.before.key[0], p.after.key[0]) for p in matched.pairs)
    launches = launches_of_both(before, after, sessions)
    open_ = {
        i: _judged(before, after, matched.pairs[i], launches)
        for i, (_, obstacle) in enumerate(drafts)
        if not obstacle
    }
    settled = _settled(open_, confidence, tie)
    changes = [_change(*draft, settled.get(i), threshold) for i, draft in enumerate(drafts)]
    claims = {launch.claim for both in launches.values() for launch in both}
    cells = [(pair.before, pair.after) for pair in matched.pairs]
    found = [
        *session_differences(before.evidence, after.evidence, sessions),
        *cell_differences(cells),
        *matched.references,
    ]
    disturbed = [
        f"{when}: {told}"
        for when, side, ids in zip(
            ("before", "after"), (before, after), _sessions(matched.pairs), strict=True
        )
        for told in disturbances(side.evidence, ids)
    ]
    return RunComparison(
        changes=tuple(changes),
        gone=matched.gone,
        new=matched.new,
        differences=tuple(found),
        threshold=threshold,
        confidence=confidence,
        single_launch=any(profile.epochs == 1 for profile in profiles),
        claim="compiler" if claims == {"compiler"} else "artefact",
        disturbed=tuple(disturbed),
    )


def _sessions(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    left = list(dict.fromkeys(pair.before.key[0] for pair in pairs))
    return left, list(dict.fromkeys(pair.after.key[0] for pair in pairs))


def _draft(before: Side, after: Side, pair: Pair) -> tuple[Change, str]:
    """Return a change that is not judged yet, and why its times cannot be; "" where they can."""
    old, new = pair.before, pair.after
    latency = [cell.latency.estimate if cell.latency else None for cell in (old, new)]
    versions = [c.record["environment"].get("compiler_version") or "" for c in (old, new)]
    change = Change(
        model=str(new.record["case"]["model"]["label"]),
        batch=int(new.record["case"]["batch"]),
        precision=str(new.record["case"]["precision"]),
        label=new.label if new.label == old.label else f"{old.label} -> {new.label}",
        versions=(versions[0], versions[1]),
        statuses=(old.status, new.status),
        latency_ms=(latency[0], latency[1]),
        reference=pair.reference[0].label if pair.reference else "",
        speed=None,
        verdict="unresolved",
        reason="",
        regression=False,
    )
    return change, _obstacle(before, after, pair)


def _obstacle(before: Side, after: Side, pair: Pair) -> str:
    old, new = pair.before, pair.after
    if measured(old.record) and not measured(new.record):
        return "stopped"
    if old.ranked and new.partly_compiled:
        return "partly compiled"
    if not measured(old.record) or not measured(new.record):
        return "not measured"
    for cell in (old, new):
        if cell.status == "unstable":
            return "unstable"
        if not cell.ranked:
            return "partly compiled before"
    if before.evidence.untrusted(old.key[0]) or after.evidence.untrusted(new.key[0]):
        return "untrusted"
    return "" if pair.reference else pair.why


def _judged(before: Side, after: Side, pair: Pair, launches: Launches) -> Judged:
    """Return what compares a pair at any confidence: speed after over speed before."""
    assert pair.reference is not None
    runs = (
        (1.0, before, pair.before, pair.reference[0]),
        (-1.0, after, pair.after, pair.reference[1]),
    )
    both = launches[pair.before.key[0], pair.after.key[0]]

    def at(confidence: float) -> Comparison | None:
        parts = []
        for (sign, side, cell, beside), launch in zip(runs, both, strict=True):
            logs = [(side.evidence.logs(cell), sign), (side.evidence.logs(beside), -sign)]
            part = session_contrast(logs, confidence=confidence, launch=launch)
            if part is None:
                return None
            parts.append(part)
        return _comparison(added(parts))

    return at


def _comparison(found: Contrast) -> Comparison:
    return Comparison(
        estimate=math.exp(found.value),
        low=math.exp(found.low),
        high=math.exp(found.high),
        within_low=math.exp(found.within_low),
        within_high=math.exp(found.within_high),
        rounds=found.rounds,
        epochs=found.epochs,
        confidence=found.confidence,
    )


def _settled(
    cells: dict[int, Judged], confidence: float, tie: float
) -> dict[int, tuple[Comparison, str] | None]:
    """Return each cell's comparison at the level that Holm's procedure gives it, and verdict.

    All that are told apart from 1 at a level leave at once: the levels after it are easier.
    """
    settled: dict[int, tuple[Comparison, str] | None] = {}
    while len(settled) < len(cells):
        level = stats.holm(confidence, len(settled), len(cells))
        found = {i: judged(level) for i, judged in cells.items() if i not in settled}
        said = {i: (one, judge(one, tie)) if one else None for i, one in found.items()}
        fresh = {i: one for i, one in said.items() if one and not one[0].low <= 1 <= one[0].high}
        settled |= fresh or said
    return settled


def _change(
    change: Change, obstacle: str, settled: tuple[Comparison, str] | None, threshold: float
) -> Change:
    if obstacle in ("stopped", "partly compiled"):
        skipped = change.statuses[1] == "skipped"
        reason = obstacle if obstacle == "partly compiled" else change.statuses[1]
        return replace(change, verdict="stopped", reason=reason, regression=not skipped)
    if obstacle in ("unstable", REFERENCE):
        return replace(change, verdict="reference" if obstacle == REFERENCE else "unstable")
    if obstacle:
        return replace(change, reason=obstacle)
    if settled is None:
        return replace(change, reason="no samples")
    speed, verdict_ = Interval.from_comparison(settled[0]), settled[1]
    slower = verdict_ == "slower" and speed.estimate < 1.0 / (1.0 + threshold)
    return replace(change, speed=speed, verdict=_word(verdict_), regression=slower)


def _word(verdict: str) -> ChangeVerdict:
    words: dict[str, ChangeVerdict] = {"faster": "faster", "slower": "slower", "tie": "tie"}
    return words.get(verdict, "unresolved")


def _told(change: Change) -> str:
    if change.speed is None:
        return f"{change.place} was {change.statuses[0]} and is {change.reason}"
    slower = 100.0 * (1.0 / change.speed.estimate - 1.0)
    return f"{change.place} is {slower:.1f} % slower ({change.speed.range} of its speed)"
