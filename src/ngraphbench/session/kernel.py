"""One epoch of interleaved rounds over resident candidates. Clock and candidates are arguments.

Peers measure one candidate after another; a machine that drifts by a few percent then
ranks two candidates 3 % apart wrongly one time in five. Here every round holds one slot of
every candidate in fresh random order, so that drift is common to all and cancels in pairs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

import numpy as np

from ngraphbench.errors import NGraphBenchError
from ngraphbench.profiles import Profile
from ngraphbench.session.clock import Clock
from ngraphbench.session.schedule import (
    FEWEST_ROUNDS,
    SUSPECT_ROUNDS,
    Pair,
    SlotRequest,
    epoch_budget_ns,
    is_look,
    precise_enough,
    round_order,
    slot_request,
)
from ngraphbench.session.steadiness import is_suspect
from ngraphbench.types import Array, Json

__all__ = [
    "Candidate",
    "EpochResult",
    "Failure",
    "Progress",
    "Row",
    "Ruling",
    "Runs",
    "SlotResult",
    "columns",
    "measure_epoch",
]


@dataclass(frozen=True, slots=True)
class SlotResult:
    """What one slot gave. ``call_ns`` is the slot's value: the median of sub-batch means."""

    calls: int
    slot_ns: int
    call_ns: float
    first_ns: int
    cpu_ns: int
    nivcsw: int
    sub_ns: tuple[float, ...] = ()
    rss_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One slot in its place: a line of a sample file."""

    epoch: int
    round: int
    position: int
    mode: str
    result: SlotResult

    def columns(self) -> Json:
        """Return the row by the column names of a sample file."""
        slot = asdict(self.result)
        del slot["rss_bytes"]
        place = {"epoch": self.epoch, "round": self.round, "position": self.position}
        return {**place, "mode": self.mode, **slot}


class Candidate(Protocol):
    """A resident program: suspended except in its own slots."""

    def resume(self) -> None: ...

    def slot(self, request: SlotRequest) -> SlotResult:
        """Run one slot. Raises NGraphBenchError."""

    def suspend(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a candidate left the epoch."""

    key: str
    error: NGraphBenchError


@dataclass(frozen=True, slots=True)
class Progress:
    """Handed to the observer between rounds, never while a slot runs."""

    round: int
    rounds_max: int
    elapsed_ns: int
    left_ns: int


@dataclass(frozen=True, slots=True)
class Ruling:
    """Who leaves a race, with its rows kept, and how that ends the epoch (empty: it goes on)."""

    leaving: frozenset[str] = frozenset()
    ended: str = ""


class Runs(Protocol):
    """Says who runs, and for how long, where that is not everyone to the end (a race)."""

    def resting(self, number: int) -> Collection[str]:
        """Return who does not run in that round, counted from 0."""

    def look(self, rounds: int, rows: Mapping[str, Sequence[Row]]) -> Ruling:
        """Return what follows from the rows of those that still run, after that many rounds."""


@dataclass(slots=True)
class EpochResult:
    """Rows by candidate, who failed, and how the epoch ended.

    ``ended``: ``precise | decided | budget | rounds | interrupted | empty``.
    """

    rows: dict[str, list[Row]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    rounds: int = 0
    ended: str = "rounds"


def columns(rows: Sequence[Row]) -> dict[str, Array]:
    """Return rows as the columns that ``summary`` reads."""
    return {
        "epoch": np.array([row.epoch for row in rows]),
        "round": np.array([row.round for row in rows]),
        "position": np.array([row.position for row in rows]),
        "call_ns": np.array([row.result.call_ns for row in rows]),
    }


@dataclass(slots=True)
class _Epoch:
    """The state of one running epoch."""

    candidates: dict[str, Candidate]
    profile: Profile
    mode: str
    epoch: int
    estimates: dict[str, float]
    result: EpochResult
    race: Runs | None = None

    def slot(self, key: str, *, number: int, position: int) -> Row | None:
        candidate = self.candidates[key]
        request = slot_request(self.profile, mode=self.mode, call_ns=self.estimates[key])
        try:
            candidate.resume()
            measured = candidate.slot(request)
            candidate.suspend()
        except NGraphBenchError as error:
            self.result.failures.append(Failure(key, error))
            self.result.rows.pop(key, None)
            del self.candidates[key]
            return None
        self.estimates[key] = measured.call_ns
        return Row(self.epoch, number, position, self.mode, measured)


def measure_epoch(
    candidates: Mapping[str, Candidate],
    *,
    profile: Profile,
    epoch: int,
    clock: Clock,
    seed: int,
    call_ns: Mapping[str, float],
    pairs: Sequence[Pair],
    mode: str = "sync",
    repeats: Mapping[str, int] | None = None,
    controls: Callable[[int], None] = lambda number: None,
    observe: Callable[[Progress], None] = lambda progress: None,
    interrupted: Callable[[], bool] = lambda: False,
    race: Runs | None = None,
) -> EpochResult:
    """Return the rows of one epoch: rounds until precise, out of budget, or at the maximum.

    ``call_ns`` holds a first estimate per candidate; ``repeats`` how many slots a round
    gives it; ``controls(round)`` runs the canaries once per round; ``interrupted()`` is
    asked between slots, and ends the epoch, whose unfinished round is dropped. A candidate
    that raises leaves; the others go on. The order depends on ``seed`` and epoch alone.
    With a ``race`` that decides who runs and when it is over; the budget of who leaves is
    not spent.
    """
    result = EpochResult({key: [] for key in candidates})
    state = _Epoch(dict(candidates), profile, mode, epoch, dict(call_ns), result, race)
    generator = random.Random(f"{seed}/{epoch}")
    budget_ns = epoch_budget_ns(profile, len(candidates))
    started_ns = clock.now_ns()
    for number in range(profile.rounds_max):
        if not state.candidates:
            result.ended = "empty"
            break
        if not _round(state, number, generator, repeats or {}, interrupted):
            result.ended = "interrupted"
            break
        controls(number)
        result.rounds = number + 1
        elapsed_ns = clock.now_ns() - started_ns
        observe(_progress(result.rounds, elapsed_ns, budget_ns, profile))
        live = len(state.candidates)
        ended = _ended(state, elapsed_ns, budget_ns, pairs)
        if ended:
            result.ended = ended
            break
        if live > len(state.candidates) > 0:
            left_ns = (budget_ns - elapsed_ns) * len(state.candidates) // live
            budget_ns = elapsed_ns + max(0, left_ns)
    return result


def _round(
    state: _Epoch,
    number: int,
    generator: random.Random,
    repeats: Mapping[str, int],
    interrupted: Callable[[], bool],
) -> bool:
    """Run one round; its rows are kept only when it is whole. False when interrupted."""
    rows: list[tuple[str, Row]] = []
    resting = state.race.resting(number) if state.race else ()
    running = [key for key in state.candidates if key not in resting]
    for position, key in enumerate(round_order(running, repeats, generator)):
        if interrupted():
            return False
        if key not in state.candidates:
            continue
        row = state.slot(key, number=number, position=position)
        if row is not None:
            rows.append((key, row))
    for key, row in rows:
        if key in state.candidates:
            state.result.rows[key].append(row)
    return True


def _ended(state: _Epoch, elapsed_ns: int, budget_ns: int, pairs: Sequence[Pair]) -> str:
    rounds = state.result.rounds
    if rounds < FEWEST_ROUNDS:
        return ""
    ruled = _look(state)
    if ruled or elapsed_ns >= budget_ns:
        return ruled or "budget"
    if state.race is not None:
        return ""
    if not is_look(rounds, state.profile.rounds_min):
        return ""
    samples = {key: columns(rows) for key, rows in state.result.rows.items()}
    if not precise_enough(samples, pairs, profile=state.profile):
        return ""
    # Whether a program has two speeds takes more slots to tell than how fast it is.
    if rounds < SUSPECT_ROUNDS and state.profile.epochs > 1 and is_suspect(samples):
        return ""
    return "precise"


def _look(state: _Epoch) -> str:
    """Let those go that the race is over for; return how that ends the epoch, if it does."""
    if state.race is None or not state.candidates:
        return ""
    rows = {key: state.result.rows[key] for key in state.candidates}
    ruling = state.race.look(state.result.rounds, rows)
    for key in ruling.leaving:
        del state.candidates[key]
    return ruling.ended


def _progress(rounds: int, elapsed_ns: int, budget_ns: int, profile: Profile) -> Progress:
    by_rounds_ns = elapsed_ns / rounds * (profile.rounds_max - rounds)
    left_ns = min(by_rounds_ns, max(0, budget_ns - elapsed_ns))
    return Progress(rounds, profile.rounds_max, elapsed_ns, int(left_ns))
