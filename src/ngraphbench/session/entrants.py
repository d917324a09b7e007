"""Who enters a launch: controls, pairs and races; and what becomes of those that are beaten."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from ngraphbench.case import Case, Session
from ngraphbench.environments.systemfiles import available_bytes
from ngraphbench.session.flags import coverage_flag
from ngraphbench.session.racing import Drop, Race
from ngraphbench.session.resident import Resident
from ngraphbench.session.schedule import Pair
from ngraphbench.session.state import CaseState, SessionState
from ngraphbench.session.telling import labels_of
from ngraphbench.store.samples import read_samples, sample_file

__all__ = [
    "DROPPED",
    "SENTINEL",
    "beat",
    "fits_beside",
    "pairs_of",
    "race_of",
    "reinstate",
    "sentinel_case",
]

SENTINEL = "sentinel"
"""The key of the A/A control, a second process of a baseline."""

DROPPED = "dropped"
"""The flag of a candidate that left a race."""

ROOM = 1.5
"""How much more memory than the largest program took must be left for another."""


def sentinel_case(session: Session, cases: list[Case], chosen: str = "") -> Case | None:
    """Return the baseline case that gets a second process: the smallest batch there is.

    It is the one ``chosen`` in the first launch, if any: launches of two programs are no twins.
    """
    baselines = [case for case in cases if session.baseline_case(case) is case]
    if chosen:
        baselines = [case for case in cases if case.case_id == chosen]
    return min(baselines, key=lambda case: case.batch, default=None)


def fits_beside(residents: Collection[Resident]) -> bool:
    """Return whether memory would hold one more program like the largest that is resident."""
    needed = max((r.worker.peak_rss_bytes if r.worker else 0 for r in residents), default=0)
    available = available_bytes()
    return available is None or available > ROOM * needed


def pairs_of(session: Session, residents: Mapping[str, Resident]) -> list[Pair]:
    """Return each resident with its baseline, where that is resident too."""
    found: list[Pair] = []
    for key, resident in residents.items():
        baseline = session.baseline_case(resident.case)
        if key != SENTINEL and baseline is not None and baseline.case_id != key:
            found.append(Pair(candidate=key, baseline=baseline.case_id))
    return [pair for pair in found if pair.baseline in residents]


def race_of(
    session: Session,
    state: SessionState,
    *,
    running: Collection[str],
    samples: Path,
    leave: Callable[[Drop], None],
) -> Race | None:
    """Return the races of the next launch; None for a session that is no race.

    ``running`` holds the keys of this launch, of which those that are no case are controls.
    ``samples`` is the folder of earlier launches. Baselines are kept to the end. A program
    that is only partly compiled is not ranked, and so beats nobody: it is measured beside.
    """
    if not session.method.best:
        return None
    racing = {key for key in running if key in state.cases}
    racing = {key for key in racing if coverage_flag(state.cases[key].coverage) is None}
    groups = tuple(
        tuple(case.case_id for case in group if case.case_id in racing) for group in session.groups
    )
    baselines = (session.baseline_case(case) for case in session.cases)
    files = {key: samples / sample_file(key) for key in running}
    return Race(
        groups=groups,
        profile=session.profile,
        kept=frozenset(case.case_id for case in baselines if case is not None),
        controls=frozenset(running) - {key for group in groups for key in group},
        out={key for key, found in state.cases.items() if found.beaten_by},
        past={key: read_samples(path) for key, path in files.items() if path.exists()},
        prior=state.prior,
        leave=leave,
    )


def beat(session: Session, state: SessionState, drop: Drop) -> bool:
    """Note who was beaten, and return whether it leaves: a baseline stays."""
    found, labels = state.cases[drop.key], labels_of(session)
    found.beaten_by = drop.by
    case = next(case for case in session.cases if case.case_id == drop.key)
    if session.baseline_case(case) is case:
        return False
    found.flag(
        DROPPED,
        f"surely slower than {labels[drop.by]} after {drop.rounds} rounds:"
        f" at least {drop.factor:.2f} times",
    )
    return True


def reinstate(state: SessionState) -> bool:
    """Let those race on whose victor has failed, or proved wrong; return whether there are any."""
    revived = [
        found
        for found in state.cases.values()
        if found.beaten_by and _failed(state.cases[found.beaten_by])
    ]
    for found in revived:
        found.beaten_by = ""
        if found.status == "ok":
            found.status = ""
        found.flags = [flag for flag in found.flags if flag["flag"] != DROPPED]
    return bool(revived)


def _failed(victor: CaseState) -> bool:
    # Whoever was beaten itself is still faster than those that it beat.
    return not victor.beaten_by and victor.status not in ("", "ok")
