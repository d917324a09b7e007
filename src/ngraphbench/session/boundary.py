"""Where memory ends: after a batch size ran out of it, the largest one that fits is looked for.

It is looked for when all else is measured. Each try is a process of its own that compiles and
runs once; nothing of it is timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ngraphbench.case import Case, Session
from ngraphbench.errors import NGraphBenchError
from ngraphbench.records import MEASURED
from ngraphbench.session.export import workload_key
from ngraphbench.session.resident import Resident, Stopped
from ngraphbench.session.state import CaseState, SessionState

__all__ = ["Boundary", "Trials", "find_boundary", "tell_boundaries"]

CLOSE = 1.25
"""The search ends when the smallest that does not fit is no more than so much larger."""

TRIES = 6


@dataclass(frozen=True, slots=True)
class Boundary:
    """``fits`` is the largest batch that fitted, 0 where none did; ``exceeds`` the smallest that
    did not, of ``tried`` ones.
    """

    fits: int
    exceeds: int
    tried: int = 0

    def text(self) -> str:
        """Return a sentence for the message of a record."""
        if self.fits:
            return f"Batch {self.fits} fits, batch {self.exceeds} does not."
        return f"Batch {self.exceeds} does not fit either." if self.tried else ""


def find_boundary(fits: int, exceeds: int, attempt: Callable[[int], bool | None]) -> Boundary:
    """Return what bisection on a logarithmic scale finds between two batch sizes.

    ``attempt(batch)`` says whether it fits; None ends the search, as what it meets is not memory.
    """
    tried = 0
    while exceeds - fits > 1 and exceeds > CLOSE * fits and tried < TRIES:
        middle = min(max(round(math.sqrt(max(fits, 1) * exceeds)), fits + 1), exceeds - 1)
        found = attempt(middle)
        if found is None:
            break
        tried += 1
        fits, exceeds = (middle, exceeds) if found else (fits, middle)
    return Boundary(fits, exceeds, tried)


@dataclass(slots=True)
class Trials:
    """Tries batch sizes of a case.

    ``export`` makes the workload of a case or fails its state; ``resident`` gives its process.
    What the model alone has no memory for is not tried with the next compiler.
    """

    export: Callable[[Case, CaseState], None]
    resident: Callable[[Case, CaseState], Resident]
    too_large: set[tuple[str, int]] = field(default_factory=set)

    def fits(self, case: Case) -> bool | None:
        """Return whether a case runs once; None where it fails for another reason."""
        key = (workload_key(case), case.batch)
        if key in self.too_large:
            return False
        state = CaseState()
        self.export(case, state)
        if state.status == "oom":
            self.too_large.add(key)
        if state.live:
            self._run_once(self.resident(case, state))
        return {"": True, "oom": False}.get(state.status)

    def _run_once(self, resident: Resident) -> None:
        limit_s = resident.limits.first_call_s
        try:
            resident.compile_only()
            resident.ask_beyond("load", seconds=limit_s, set="a")
            resident.ask_beyond("run", seconds=limit_s, calls=1)
        except Stopped as stopped:
            resident.state.fail(stopped.error, stopped.stage)
        except NGraphBenchError as error:
            resident.state.fail(error, "measure")
        finally:
            resident.kill()
        # Between two looks of the watch, a short try may have taken more than it may.
        worker, state = resident.worker, resident.state
        if state.live and worker and worker.peak_rss_bytes > resident.limits.memory_bytes:
            state.status = "oom"


def tell_boundaries(
    session: Session,
    state: SessionState,
    trials: Trials,
    *,
    interrupted: Callable[[], bool],
    observe: Callable[[str], None],
) -> bool:
    """Add to every cell that ran out of memory what fits; False when an interrupt ended it."""
    known: dict[str, Boundary] = {}
    for case in sorted(session.cases, key=lambda one: one.batch):
        found = state.cases[case.case_id]
        if found.status != "oom" or "largest_batch" in found.detail:
            continue
        if interrupted():
            return False
        kind = _kind(case)
        if kind not in known:
            observe(case.title)
            known[kind] = _searched(case, session, state, trials, interrupted)
            if interrupted():
                return False
        _tell(found, known[kind])
    return True


def _searched(
    case: Case,
    session: Session,
    state: SessionState,
    trials: Trials,
    interrupted: Callable[[], bool],
) -> Boundary:
    smaller = (
        other.batch
        for other in session.cases
        if _kind(other) == _kind(case)
        and other.batch < case.batch
        and state.cases[other.case_id].status in MEASURED
    )
    ends_s = time.monotonic() + session.limits.cell_s

    def attempt(batch: int) -> bool | None:
        if interrupted() or time.monotonic() > ends_s:
            return None
        return trials.fits(replace(case, batch=batch))

    return find_boundary(max(smaller, default=0), case.batch, attempt)


def _kind(case: Case) -> str:
    """Return what cells share that differ in nothing but their batch size."""
    return replace(case, batch=1).case_id


def _tell(found: CaseState, boundary: Boundary) -> None:
    found.detail |= {
        "largest_batch": boundary.fits or None,
        "smallest_batch_oom": boundary.exceeds,
        "batches_tried": boundary.tried,
    }
    found.message = " ".join(filter(None, (found.message, boundary.text())))
