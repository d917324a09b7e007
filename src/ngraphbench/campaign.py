"""A campaign: the sessions of a plan into a run directory, devices in parallel. Resumable.

A session is the unit of commit; what the journal holds is done. Everything else is the
difference between the plan and the journal, worked out anew at each start.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from ngraphbench import __version__
from ngraphbench.agent import spool_folder
from ngraphbench.case import Case, Session, canonical, digest
from ngraphbench.crew import Crew, Report
from ngraphbench.dispatch import Dispatch, Job, Policy
from ngraphbench.engines.base import DeviceLost, Engine, Interrupted
from ngraphbench.errors import ClusterError
from ngraphbench.plan import Plan
from ngraphbench.records import SCHEMA_VERSION, empty_costs, now_utc
from ngraphbench.session.state import ARTIFACTS
from ngraphbench.store.disk import move
from ngraphbench.store.rundir import RunDir, cases_to_retry
from ngraphbench.types import Json

__all__ = ["Arrivals", "Campaign"]

LOCAL = "local"
LOOK_S = 0.5
"""How often late devices are looked for; more seldom where looking takes long."""
LOOK_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Devices that were asked for and are not there yet.

    ``look`` returns the plan of a device once it is there, else None; those in ``names`` are
    waited for at the end for ``patience_s`` seconds.
    """

    names: tuple[str, ...] = ()
    look: Callable[[str], Plan | None] = lambda name: None
    patience_s: float = 0.0


@dataclass(slots=True)
class Campaign:
    """Runs ``plan`` in ``directory`` through ``engine``; ``retry`` names statuses to redo."""

    plan: Plan
    directory: RunDir
    engine: Engine
    emit: Callable[[Json], None]
    retry: Collection[str] = ()
    policy: Policy = field(default_factory=Policy)
    arrivals: Arrivals = field(default_factory=Arrivals)
    kept: int = field(default=0, init=False)
    missing: list[str] = field(default_factory=list, init=False)
    _dispatch: Dispatch = field(default_factory=Dispatch, init=False)
    _asked: int = field(default=0, init=False)
    _interrupted: bool = field(default=False, init=False)
    _look_at: float = field(default=0.0, init=False)

    def run(self) -> None:
        """Measure what is left of the plan, one session at a time on each device.

        Raises Interrupted when the user stops it, ClusterError when this machine is the only
        device and its agent dies twice in one session; whatever was finished is in the journal.
        Elsewhere the cells of a device that fails become records, and the other devices go on.
        """
        spools = list((self.directory.path / "spool").glob("*"))
        finished = self.directory.finished_sessions() if spools else frozenset()
        for spool in spools:
            # Left where a client was killed right after its commit.
            if spool.name in finished:
                shutil.rmtree(spool, ignore_errors=True)
        self._dispatch = Dispatch(self.policy)
        self._take(self.plan)
        self.missing = list(self.arrivals.names)
        with Crew(self.engine, self.directory.path) as crew:
            self._all(crew)
        if self._interrupted or (self._asked and self._dispatch.waiting):
            raise Interrupted

    def _take(self, plan: Plan) -> None:
        self.directory.append([skip_record(*skip) for skip in plan.skipped])
        self._dispatch.add(self._left_of(plan))

    def _all(self, crew: Crew) -> None:
        """Start what can start and take what comes, until nothing runs or is waited for."""
        idle_since: float | None = None
        while True:
            try:
                for job in self._dispatch.begin():
                    self._announce(job)
                    crew.start(job)
                if self._dispatch.running:
                    idle_since = None
                else:
                    idle_since = idle_since or time.monotonic()
                    waited_s = time.monotonic() - idle_since
                    stopped = self._dispatch.stopped
                    if stopped or not self.missing or waited_s > self.arrivals.patience_s:
                        return
                report = crew.next(LOOK_S if self.missing else None)
                if report is not None:
                    self._hear(report)
                self._look_for_arrivals()
            except KeyboardInterrupt:
                self._stop()

    def _look_for_arrivals(self) -> None:
        began = time.monotonic()
        if self._dispatch.stopped or not self.missing or began < self._look_at:
            return
        for name in list(self.missing):
            plan = self.arrivals.look(name)
            if plan is not None:
                self.missing.remove(name)
                self.emit({"event": "note", "text": f"{name} has joined"})
                self._take(plan)
        # Meanwhile nobody hears the devices that are there.
        now = time.monotonic()
        self._look_at = now + max(LOOK_S, (now - began) / LOOK_SHARE)

    def _stop(self) -> None:
        """Pass Ctrl-C on: once to finish the slot, twice to stop, then by force."""
        self._asked += 1
        self._dispatch.stopped = True
        self.engine.interrupt()
        self.emit({"event": "stopping", "text": _STOPPING[min(self._asked, 2) - 1]})

    def _hear(self, report: Report) -> None:
        job = report.job
        if report.event is not None:
            several = len(self._dispatch.devices) > 1
            self.emit({**report.event, **({"device": job.device} if several else {})})
        elif report.outcome is not None:
            self._commit(job.session, report.outcome["records"])
            rest = self._rest(job, set(report.outcome["deferred"]))
            self._dispatch.finish(job.device, rest)
        elif isinstance(report.error, Interrupted):
            self._interrupted = self._dispatch.stopped = True
            self._dispatch.finish(job.device)
        elif isinstance(report.error, ClusterError):
            self._failed(job, report.error)
        else:
            _raise(report.error)

    def _failed(self, job: Job, error: ClusterError) -> None:
        """Try a session again, or give it up, or the whole device."""
        verdict = self._dispatch.fail(job.device, lost=isinstance(error, DeviceLost))
        if verdict == "again":
            self.emit({"event": "note", "text": f"{error.message} Going on with a new one."})
            return
        if self._dispatch.devices == (LOCAL,) and not self.missing:
            raise error
        jobs = [job]
        if verdict == "quarantined":
            jobs += self._dispatch.drain(job.device)
            text = f"{job.device} gets no more sessions: {error.message}"
            self.emit({"event": "note", "text": text})
        why = ("unavailable", error.reason or "device", error.message)
        for one in jobs:
            records = [skip_record(case, *why) for case in one.session.cases]
            for record in self.directory.append(records):
                self.emit({"event": "record", "record": record})

    def _left_of(self, plan: Plan) -> list[Session]:
        """Return what is left to do: planned sessions that are not finished, and retries."""
        stored: dict[str, list[Json]] = {}
        for record in self.directory.journal.stream():
            if record["kind"] == "session":
                key = _conditions(record, record.get("conditions", {}))
                few = {"cases": record["cases"], "attempt": record["attempt"]}
                stored.setdefault(key, []).append(few)
        found = self.directory.records() if self.retry else []
        again = {case.case_id for case in cases_to_retry(found, self.retry)}
        left: list[Session] = []
        for session in plan.sessions:
            wanted = {**session.to_json(), "mode": session.method.mode}
            same = stored.get(_conditions(wanted, session.method.conditions), [])
            ids = _missing(session, same) | _to_retry(session, again)
            cases = [case for case in session.cases if case.case_id in ids]
            self.kept += len(session.cases) - len(cases)
            if len(cases) == len(session.cases) and not same:
                left.append(session)
            elif cases:
                attempt = 1 + max((record["attempt"] for record in same), default=0)
                left.append(session.retry(_with_baselines(session, cases), attempt))
        return left

    def _rest(self, job: Job, deferred: set[str]) -> Session | None:
        """Return what a session left for lack of memory as a part with its own baseline."""
        session, part = job.whole, job.session
        cases = [case for case in session.cases if case.case_id in deferred]
        if not cases:
            return None
        again = session.retry(_with_baselines(session, cases), part.attempt + 1)
        if len(again.cases) < len(part.cases):
            held = len(part.cases) - len(cases)
            self.emit({"event": "note", "text": _PARTED.format(held, len(part.cases), len(cases))})
            return again
        # A part that is no smaller would be deferred for ever.
        self.directory.append([skip_record(case, *_NO_MEMORY) for case in cases])
        return None

    def _commit(self, session: Session, records: list[Json]) -> None:
        """Bring samples and logs home, then write the journal, then drop the spool."""
        spool = spool_folder(self.directory.path, session)
        for name in ("samples", "logs", ARTIFACTS):
            target = self.directory.path / name / session.session_id
            if (spool / name).is_dir() and not target.exists():
                move(spool / name, target)
        self.directory.append(records)
        shutil.rmtree(spool, ignore_errors=True)
        for record in records:
            if record["kind"] == "case":
                self.emit({"event": "record", "record": record})

    def _announce(self, job: Job) -> None:
        models = ", ".join(dict.fromkeys(case.model.label for case in job.session.cases))
        several = len(self._dispatch.devices) > 1
        done, total = self._dispatch.place(job.device) if several else self._dispatch.places
        told = {"event": "session", "index": done + 1, "of": total, "title": models}
        self.emit({**told, **({"device": job.device} if several else {})})


def _conditions(record: Mapping[str, object], conditions: Json) -> str:
    """Return what sessions measured under the same conditions have in common."""
    keys = ("baseline", "fingerprint", "profile", "mode", "seed")
    return digest([*(record[key] for key in keys), canonical(conditions)])


def _missing(session: Session, same: Sequence[Json]) -> set[str]:
    done = {case_id for record in same for case_id in record["cases"]}
    return {case.case_id for case in session.cases} - done


def _to_retry(session: Session, wanted: set[str]) -> set[str]:
    again = wanted & {case.case_id for case in session.cases} if wanted else set()
    if not again:
        return again
    # Only side by side with its baseline does a cell get its comparison back.
    pairs = ((case.case_id, session.baseline_case(case)) for case in session.cases)
    return again | {key for key, base in pairs if base and base.case_id in again}


def _with_baselines(session: Session, cases: Sequence[Case]) -> tuple[Case, ...]:
    """Add to ``cases`` the baselines they are compared with; order as in the session."""
    wanted = {case.case_id for case in cases}
    for case in cases:
        baseline = session.baseline_case(case)
        if baseline is not None:
            wanted.add(baseline.case_id)
    return tuple(case for case in session.cases if case.case_id in wanted)


def _raise(error: BaseException | None) -> NoReturn:
    raise error if error is not None else AssertionError("a report without content")


_STOPPING = (
    "finishing the slot or the build at hand; press Ctrl-C again to stop at once"
    " (finished epochs are kept)",
    "stopping now; finished epochs are kept",
)
_PARTED = (
    "Memory holds {} of {} programs at once: the other {} are measured in a session of their own,"
    " so that they are put in no order with these."
)
_NO_MEMORY = (
    "skipped",
    "memory",
    "The programs of this session do not fit into memory side by side, not even in parts.",
)


def skip_record(case: Case, status: str, reason: str, message: str) -> Json:
    """Return the record of a cell that no session will hold."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "case",
        "case_id": case.case_id,
        "session_id": digest(["plan", case.case_id])[:16],
        "case": case.to_json(),
        "label": case.label,
        "status": status,
        "reason": reason,
        "stage": "plan",
        "message": message,
        "detail": {},
        "started_at": now_utc(),
        "tool_version": __version__,
        "profile": "",
        "seed": 0,
        "measurement": None,
        "summary": None,
        "costs": empty_costs(),
        "coverage": None,
        "verification": None,
        "flags": [],
        "weights": "",
        "environment": {},
        "command": "",
        "log": "",
    }
