"""The run directory: what a run keeps, where, and who may write to it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngraphbench.case import Case, canonical
from ngraphbench.errors import SpecError, StoreError, nearest
from ngraphbench.records import STATUSES
from ngraphbench.store.disk import make_folders, open_lock, sign_lock, write_whole
from ngraphbench.store.journal import Journal
from ngraphbench.types import Json

__all__ = ["RunDir", "cases_to_retry", "check_statuses", "finished_sessions", "latest"]

EXPERIMENT = "experiment.yaml"
PLAN = "plan.json"
JOURNAL = "journal.jsonl"
LOCK = "run.lock"


@dataclass(frozen=True, slots=True)
class RunDir:
    """One run's folder. Reading needs no lock; hold ``lock()`` while writing."""

    path: Path
    journal: Journal

    @classmethod
    def open(cls, path: Path, *, create: bool = False) -> RunDir:
        """Return the run directory at ``path``; with ``create`` it is made where missing.

        Raises StoreError when there is none, or when the folder holds something else.
        """
        if create:
            make_folders(path)
        try:
            names = {entry.name for entry in path.iterdir()}
        except OSError as error:
            raise StoreError(
                f"A run directory cannot be made at {path}: {error.strerror}."
                if create
                else f"There is no run directory at {path}: {error.strerror}.",
                reason="write" if create else "no-run",
                hint="Fix the permissions, or give another --out."
                if create
                else "Give the folder that `ngb run` or `ngb bench` wrote (--out).",
            ) from error
        if names and not names & {EXPERIMENT, PLAN, JOURNAL, LOCK}:
            raise StoreError(
                f"{path} holds other files and is not a run directory.",
                reason="not-a-run",
                hint="Give an empty or new folder."
                if create
                else "Give the folder that `ngb run` or `ngb bench` wrote (--out).",
            )
        if not names and not create:
            raise StoreError(
                f"{path} is empty; there is no run in it.",
                reason="no-run",
                hint="Give the folder that `ngb run` or `ngb bench` wrote (--out).",
            )
        return cls(path.absolute(), Journal(path.absolute() / JOURNAL))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run's lock, which dies with this process.

        Raises StoreError, naming the holder's process, when it is taken.
        """
        descriptor = open_lock(self.path / LOCK)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(descriptor, 64, 0).decode("ascii", "replace").strip()
                raise StoreError(
                    f"{self.path} is in use by process {holder or '(unknown)'}.",
                    reason="locked",
                    hint="Wait for it or stop it; `ngb show` works meanwhile.",
                ) from error
            sign_lock(self.path / LOCK, descriptor)
            yield
        finally:
            # The file stays: removing it would let two processes hold "the" lock.
            os.close(descriptor)

    def write_experiment(self, text: str) -> None:
        """Keep a copy of the experiment as YAML text; replaces an older one as a whole."""
        write_whole(self.path / EXPERIMENT, text)

    def write_plan(self, plan: Json) -> None:
        """Keep the plan; replaces an older one as a whole."""
        write_whole(self.path / PLAN, json.dumps(plan, indent=1) + "\n")

    def read_plan(self) -> Json | None:
        """Return the plan, or None before there is one. Raises StoreError when broken."""
        path = self.path / PLAN
        try:
            found: Any = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise StoreError(f"{path} cannot be read: {error}.", reason="corrupt") from error
        if not isinstance(found, dict):
            raise StoreError(f"{path} does not hold a plan.", reason="corrupt")
        return found

    def append(self, records: Sequence[Json]) -> list[Json]:
        """Add records to the journal, see ``Journal.append``."""
        return self.journal.append(records)

    def records(self) -> list[Json]:
        """Return every record, oldest first, see ``Journal.read``."""
        return self.journal.read()

    def sessions(self) -> list[Json]:
        """Return the session records, oldest first."""
        return [record for record in self.records() if record["kind"] == "session"]

    def latest(self) -> list[Json]:
        """Return the record that counts for each case, see ``latest``."""
        return latest(self.records())

    def unrecorded(self) -> int:
        """Return how many planned cells have no record yet; 0 before there is a plan."""
        sessions = (self.read_plan() or {}).get("sessions", [])
        try:
            planned = {
                Case.from_json(case).case_id for session in sessions for case in session["cases"]
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(
                f"{self.path / PLAN} does not hold a plan: {error!r}.",
                reason="corrupt",
                hint="Run the experiment again: the plan is made anew.",
            ) from error
        return len(planned - {record["case_id"] for record in self.latest()})

    def finished_sessions(self) -> frozenset[str]:
        """Return the ids of the sessions that are committed."""
        return finished_sessions(self.records())


def latest(records: Sequence[Json]) -> list[Json]:
    """Return one case record per case, in the order in which cases first appear.

    It is the last one written; among sessions under the same conditions, the one of the
    highest attempt. A cell that was left out later, as when its compiler was taken away,
    keeps what was measured of it.
    """
    sessions = {r["session_id"]: r for r in records if r["kind"] == "session"}
    conditions = {key: _conditions(record) for key, record in sessions.items()}
    found: dict[str, Json] = {}
    for record in records:
        if record["kind"] != "case":
            continue
        older = found.get(record["case_id"])
        if older and record["stage"] == "plan" and older["stage"] != "plan":
            continue
        new_session = sessions.get(record["session_id"])
        old_session = sessions.get(older["session_id"]) if older else None
        if (
            new_session
            and old_session
            and conditions[new_session["session_id"]] == conditions[old_session["session_id"]]
            and new_session["attempt"] < old_session["attempt"]
        ):
            continue
        found[record["case_id"]] = record
    return list(found.values())


def finished_sessions(records: Sequence[Json]) -> frozenset[str]:
    """Return the ids of sessions with a session record: the last that is written of them."""
    return frozenset(r["session_id"] for r in records if r["kind"] == "session")


def cases_to_retry(records: Sequence[Json], statuses: Collection[str]) -> list[Case]:
    """Return the cases whose latest record has one of ``statuses``.

    Raises SpecError for a status that does not exist.
    """
    check_statuses(statuses)
    return [Case.from_json(r["case"]) for r in latest(records) if r["status"] in statuses]


def check_statuses(statuses: Collection[str]) -> None:
    """Return None if all of ``statuses`` exist, else raise SpecError."""
    for status in statuses:
        if status not in STATUSES:
            raise SpecError(
                f"There is no status {status!r}.",
                key="--retry",
                reason="unknown-status",
                hint=nearest(status, STATUSES),
            )


def _conditions(session: Json) -> str:
    keys = ("fingerprint", "profile", "mode", "seed")
    return canonical([*(session[key] for key in keys), session.get("conditions", {})])
