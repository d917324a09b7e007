"""The deployment study: which compiler, flags, precision and batch size for one model.

A race tells who may be the fastest; finalists are then measured without racing, and alone at
the rate asked for. Chosen is the fastest of those that surely keep every constraint, with all
that cannot be told apart from it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from ngraphbench.analysis.breakeven import BreakEven, break_evens
from ngraphbench.analysis.contrasts import contrast
from ngraphbench.analysis.metrics import finite
from ngraphbench.analysis.ranking import Settle, settle
from ngraphbench.analysis.tables import Cell, Evidence, Interval, Read, join
from ngraphbench.case import Limits
from ngraphbench.studies.constraints import Check, Constraints, State, checks_of, state_of
from ngraphbench.studies.contenders import Contenders, Prefer, name_of
from ngraphbench.studies.refinement import AGAIN, Refinement, Wanted, refine
from ngraphbench.types import Json

__all__ = ["Candidate", "Deployment", "Parts", "deploy", "finalists"]

Outcome: TypeAlias = Literal["chosen", "undecided", "none"]
Parts: TypeAlias = tuple[Sequence[Json], Sequence[Json], Read]
"""Records, sessions and samples of one run."""

FINALISTS = 4
"""So many of each batch size and precision are confirmed at most."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One cell with what was found of it. ``confirmed``: it was a finalist.

    ``state``: ``passes`` all constraints surely, ``fails`` one surely (or has no right
    result), or is ``undecided``.
    """

    case_id: str
    label: str
    batch: int
    precision: str
    baseline: bool
    confirmed: bool
    status: str
    state: State
    checks: tuple[Check, ...]
    latency_ms: Interval | None = None
    throughput_per_s: Interval | None = None
    speedup: Interval | None = None
    verdict: str = ""

    @property
    def name(self) -> str:
        return f"{self.label}, batch {self.batch}, {self.precision}"

    @property
    def problems(self) -> list[str]:
        """What is surely missed, or else what is open."""
        verdict = "fail" if self.state == "fails" else "undecided"
        return [check.text for check in self.checks if check.verdict == verdict]


@dataclass(frozen=True, slots=True)
class Deployment:
    """The answer: what to deploy, who cannot be told apart from it, and who misses what.

    ``outcome``: ``chosen``; ``undecided``: nobody surely keeps every constraint, somebody may;
    ``none``: everybody surely misses one. ``rivals`` pass as well and are not surely slower;
    ``open`` are undecided and not surely slower than the choice.
    """

    constraints: Constraints
    prefer: Prefer
    outcome: Outcome
    choice: Candidate | None
    rivals: tuple[Candidate, ...]
    open: tuple[Candidate, ...]
    candidates: tuple[Candidate, ...]
    break_even: tuple[BreakEven, ...]
    costs: Json
    refinement: Refinement | None

    @property
    def decision(self) -> str:
        """The decision in a few sentences."""
        if self.choice is None:
            return self._nobody()
        told = [f"Deploy {self.choice.name}{_figures(self.choice)}."]
        if self.rivals:
            names = join([one.name for one in self.rivals])
            told.append(f"Not to be told apart from it: {names}.")
        if self.open:
            names = join([one.name for one in self.open])
            told.append(f"Perhaps no slower, but a constraint is undecided: {names}.")
        return " ".join(told)

    def _nobody(self) -> str:
        if self.outcome == "none":
            return "Nothing satisfies the constraints: every candidate surely misses one."
        names = join([one.name for one in self.candidates if one.state == "undecided"])
        return f"Undecided: nothing surely satisfies the constraints; open are {names}."

    def to_json(self) -> Json:
        """Return plain JSON; numbers that are not finite become null."""
        found: Json = finite({"decision": self.decision, **asdict(self)})
        return found


def deploy(
    race: Parts,
    confirmed: Parts,
    constraints: Constraints,
    *,
    prefer: Prefer = "throughput",
    limits: Limits | None = None,
) -> Deployment:
    """Return what two runs say: the race over all candidates, and that of its finalists."""
    finals = Contenders(Evidence(*confirmed), prefer)
    field = Contenders(Evidence(*race), prefer)
    found = {case_id: _candidate(finals, case_id, constraints, True) for case_id in finals.cells}
    for case_id in field.cells:
        found.setdefault(case_id, _candidate(field, case_id, constraints, False))
    choice, rivals, open_ = _choose(finals, found)
    alive = [one for one in found.values() if one.state == "undecided"]
    outcome: Outcome = "chosen" if choice else "undecided" if alive else "none"
    wanted = _wanted(finals, field, found, choice, (*rivals, *open_))
    sessions = {**field.evidence.sessions, **finals.evidence.sessions}
    return Deployment(
        constraints=constraints,
        prefer=prefer,
        outcome=outcome,
        choice=choice,
        rivals=rivals,
        open=open_,
        candidates=tuple(sorted(found.values(), key=_shown)),
        break_even=_break_even(finals.evidence, choice),
        costs=dict(finals.cells[choice.case_id].record["costs"]) if choice else {},
        refinement=refine(
            wanted, sessions, name="deploy-next", limits=limits, measure=_measure(constraints)
        ),
    )


def finalists(
    race: Parts,
    constraints: Constraints,
    *,
    prefer: Prefer = "throughput",
    confirmed: Parts | None = None,
    tried: Collection[str] = (),
) -> list[str]:
    """Return the case ids to confirm: of each batch size and precision those that may win.

    Who surely misses a constraint already does not count, so that it keeps nobody out. Where
    some were ``confirmed``, these are the next best of those that were not ``tried``, as long
    as no confirmed one may still be chosen: what is slower back to back may keep a p99 that the
    fastest misses.
    """
    field = Contenders(Evidence(*race), prefer)
    if confirmed is not None:
        finals = Contenders(Evidence(*confirmed), prefer).cells.values()
        if any(one.ranked and state_of(checks_of(one, constraints)) != "fails" for one in finals):
            return []
    groups: dict[tuple[int, str], list[str]] = {}
    for case_id, cell in field.cells.items():
        if case_id in tried:
            continue
        if cell.ranked and state_of(checks_of(cell, constraints)) != "fails":
            case = cell.record["case"]
            groups.setdefault((case["batch"], case["precision"]), []).append(case_id)
    kept = []
    for case_ids in groups.values():
        first, *rivals = field.fastest_first(case_ids)
        slower = field.surely_slower(first, rivals)
        kept += [case_id for case_id in (first, *rivals) if case_id not in slower][:FINALISTS]
    return kept


def _candidate(
    contenders: Contenders, case_id: str, constraints: Constraints, confirmed: bool
) -> Candidate:
    cell = contenders.cells[case_id]
    case = cell.record["case"]
    checks = checks_of(cell, constraints) if cell.ranked else (_unranked(cell),)
    state = state_of(checks)
    if state == "passes" and contenders.evidence.untrusted(cell.key[0]):
        text = "the baseline differs from itself in its session (A/A control)"
        checks, state = (*checks, Check("control", "undecided", text)), "undecided"
    if state == "passes" and not confirmed:
        checks = (*checks, Check("confirmed", "undecided", "it was not among the finalists"))
        state = "undecided"
    return Candidate(
        case_id=case_id,
        label=cell.label,
        batch=case["batch"],
        precision=case["precision"],
        baseline=contenders.is_baseline(cell),
        confirmed=confirmed,
        status=cell.status,
        state=state,
        checks=checks,
        latency_ms=cell.latency,
        throughput_per_s=cell.throughput,
        speedup=cell.speedup,
        verdict=cell.mark,
    )


def _unranked(cell: Cell) -> Check:
    """Return why a cell has no figure to judge by; only what may change is undecided."""
    reason = str(cell.record["reason"])
    if cell.measured and cell.partly_compiled:
        return Check("result", "fail", "only partly compiled")
    told = f"{cell.status} ({reason})" if reason else cell.status
    return Check("result", "undecided" if cell.status == "unstable" else "fail", told)


_Choice: TypeAlias = tuple[Candidate | None, tuple[Candidate, ...], tuple[Candidate, ...]]


def _choose(finals: Contenders, found: dict[str, Candidate]) -> _Choice:
    passing = [one.case_id for one in found.values() if one.state == "passes"]
    if not passing:
        return None, (), ()
    first, *others = finals.fastest_first(passing)
    doubtful = [
        one.case_id
        for one in found.values()
        if one.state == "undecided" and one.confirmed and finals.cells[one.case_id].ranked
    ]
    slower = finals.surely_slower(first, [*others, *doubtful])
    rivals = tuple(found[key] for key in others if key not in slower)
    return found[first], rivals, tuple(found[key] for key in doubtful if key not in slower)


def _shown(one: Candidate) -> tuple[int, bool, float]:
    order = ("passes", "undecided", "fails").index(one.state)
    rate = one.throughput_per_s.estimate if one.throughput_per_s else 0.0
    return order, not one.confirmed, -rate


def _figures(one: Candidate) -> str:
    """Return what is known of a choice, each figure with its interval."""
    parts = []
    if one.speedup is not None and one.verdict in ("faster", "slower"):
        parts.append(f"{one.speedup.times} ({one.speedup.range}) the speed of the baseline")
    elif one.speedup is not None:
        parts.append(f"its speed against the baseline: {one.verdict} ({one.speedup.range}x)")
    parts += [check.text for check in one.checks if check.name in ("p99", "throughput", "memory")]
    return f": {'; '.join(parts)}" if parts else ""


def _break_even(evidence: Evidence, choice: Candidate | None) -> tuple[BreakEven, ...]:
    if choice is None:
        return ()
    here = (choice.label, choice.batch, choice.precision)
    found = {
        one.start: one
        for one in break_evens(evidence)
        if (one.label, one.batch, one.precision) == here
    }
    return tuple(found.values())


def _measure(constraints: Constraints) -> Json:
    # Artefacts are what is deployed, and what thorough would not keep by itself.
    rate = constraints.rate_per_s
    return {"claim": "artefact", **({} if rate is None else {"rate": rate})}


def _wanted(
    finals: Contenders,
    field: Contenders,
    found: dict[str, Candidate],
    choice: Candidate | None,
    close: Sequence[Candidate],
) -> list[Wanted]:
    """Return the cells that would change or settle the decision."""
    wanted = []
    for one in found.values():
        source = finals if one.confirmed else field
        cell = source.cells[one.case_id]
        if one.status in AGAIN:
            wanted.append(Wanted((cell,), f"{one.name}: {one.status}", longer=not choice))
        elif one.state == "undecided" and (one in close or choice is None):
            why = f"{one.name}: {'; '.join(one.problems)}"
            wanted.append(Wanted((cell,), why, longer=one.confirmed))
    if choice is not None:
        wanted += [pair for rival in close if (pair := _open(finals, choice, rival))]
    return wanted


def _open(finals: Contenders, choice: Candidate, rival: Candidate) -> Wanted | None:
    """Return a rival with the choice, where more samples would tell them apart."""
    mine, theirs = finals.cells[choice.case_id], finals.cells[rival.case_id]
    names = f"{name_of(mine)} or {name_of(theirs)}"
    if mine.key[0] != theirs.key[0]:
        return Wanted((mine, theirs), f"{names}: not measured side by side")
    if (choice.batch, choice.precision) == (rival.batch, rival.precision):
        terms = contrast(finals.evidence, [(theirs, 1.0), (mine, -1.0)])
        tie = finals.evidence.profile(mine.key[0]).tie
        if terms is None or settle(terms, tie) == Settle(None, None):
            return None
        if terms.factor.high < 1 + tie and terms.factor.low > 1 / (1 + tie):
            return None
    return Wanted((mine, theirs), f"{names}: not told apart", longer=True)
