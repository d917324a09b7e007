"""A campaign: the sessions of a plan, one after another, into a run directory. Resumable.

A session is the unit of commit; what the journal holds is done. Everything else is the
difference between the plan and the journal, worked out anew at each start.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from ngraphbench import __version__
from ngraphbench.agent import spool_folder
from ngraphbench.case import Case, Session, digest
from ngraphbench.engines.base import Engine
from ngraphbench.errors import ClusterError
from ngraphbench.plan import Plan
from ngraphbench.records import SCHEMA_VERSION, empty_costs, now_utc
from ngraphbench.store.rundir import RunDir, cases_to_retry
from ngraphbench.types import Json

__all__ = ["Campaign"]

AGENT_TRIES = 2


@dataclass(slots=True)
class Campaign:
    """Runs ``plan`` in ``directory`` through ``engine``; ``retry`` names statuses to redo."""

    plan: Plan
    directory: RunDir
    engine: Engine
    emit: Callable[[Json], None]
    retry: Collection[str] = ()
    kept: int = field(default=0, init=False)

    def run(self) -> None:
        """Measure what is left of the plan.

        Raises Interrupted when the user stops it, ClusterError when the agent dies twice
        in one session; whatever was finished is in the journal.
        """
        for session_id in self.directory.finished_sessions():
            # Left where a client was killed right after its commit.
            shutil.rmtree(self.directory.path / "spool" / session_id, ignore_errors=True)
        self.directory.append([skip_record(*skip) for skip in self.plan.skipped])
        sessions = self._sessions()
        for index, session in enumerate(sessions):
            self._announce(session, index, len(sessions))
            self._all_parts(session)

    def _sessions(self) -> list[Session]:
        """Return what is left to do: planned sessions that are not finished, and retries."""
        left: list[Session] = []
        for session in self.plan.sessions:
            ids = self._missing(session) | self._to_retry(session)
            wanted = [case for case in session.cases if case.case_id in ids]
            self.kept += len(session.cases) - len(wanted)
            if len(wanted) == len(session.cases) and not self._same(session):
                left.append(session)
            elif wanted:
                cases = self._with_baselines(session, wanted)
                left.append(session.retry(cases, self._next(session)))
        return left

    def _same(self, session: Session) -> list[Json]:
        """Return the stored sessions measured under the same conditions."""
        wanted = {**session.to_json(), "mode": session.method.mode}
        keys = ("baseline", "fingerprint", "profile", "mode", "seed")
        return [
            record
            for record in self.directory.sessions()
            if all(record[key] == wanted[key] for key in keys)
            and record.get("conditions", {}) == session.method.conditions
        ]

    def _missing(self, session: Session) -> set[str]:
        done = {case_id for record in self._same(session) for case_id in record["cases"]}
        return {case.case_id for case in session.cases} - done

    def _to_retry(self, session: Session) -> set[str]:
        found = cases_to_retry(self.directory.records(), self.retry)
        again = {case.case_id for case in found} & {case.case_id for case in session.cases}
        if not again:
            return again
        # Only side by side with its baseline does a cell get its comparison back.
        pairs = ((case.case_id, session.baseline_case(case)) for case in session.cases)
        return again | {key for key, base in pairs if base and base.case_id in again}

    def _next(self, session: Session) -> int:
        return 1 + max((record["attempt"] for record in self._same(session)), default=0)

    def _with_baselines(self, session: Session, cases: Sequence[Case]) -> tuple[Case, ...]:
        """Add to ``cases`` the baselines they are compared with; order as in the session."""
        wanted = {case.case_id for case in cases}
        for case in cases:
            baseline = session.baseline_case(case)
            if baseline is not None:
                wanted.add(baseline.case_id)
        return tuple(case for case in session.cases if case.case_id in wanted)

    def _all_parts(self, session: Session) -> None:
        """Run a session, then what it left for lack of memory, each part with its baseline."""
        part: Session | None = session
        attempt = session.attempt
        while part is not None:
            deferred = self._one(part)
            cases = [case for case in session.cases if case.case_id in deferred]
            if not cases:
                return
            attempt += 1
            again = session.retry(self._with_baselines(session, cases), attempt)
            # A part that is no smaller would be deferred for ever.
            part = again if len(again.cases) < len(part.cases) else None
            if part is None:
                self.directory.append([skip_record(c, *_NO_MEMORY) for c in cases])

    def _one(self, session: Session) -> set[str]:
        """Run one session to its commit; return the case ids it had no memory for."""
        for attempt in range(1, AGENT_TRIES + 1):
            try:
                outcome = self.engine.submit(session, self.directory.path, self.emit)
            except ClusterError as error:
                if attempt == AGENT_TRIES:
                    raise
                self.emit({"event": "note", "text": f"{error.message} Going on with a new one."})
                continue
            self._commit(session, outcome["records"])
            return set(outcome["deferred"])
        return set()

    def _commit(self, session: Session, records: list[Json]) -> None:
        """Bring samples and logs home, then write the journal, then drop the spool."""
        spool = spool_folder(self.directory.path, session)
        for name in ("samples", "logs"):
            target = self.directory.path / name / session.session_id
            if (spool / name).is_dir() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                (spool / name).rename(target)
        self.directory.append(records)
        shutil.rmtree(spool, ignore_errors=True)
        for record in records:
            if record["kind"] == "case":
                self.emit({"event": "record", "record": record})

    def _announce(self, session: Session, index: int, total: int) -> None:
        models = ", ".join(dict.fromkeys(case.model.label for case in session.cases))
        self.emit({"event": "session", "index": index + 1, "of": total, "title": models})


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
