"""The client's side of one device behind a link: sends a session's files, waits, brings it home."""

from __future__ import annotations

import base64
import json
import queue
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ngraphbench.agent import RECORDS, spool_folder
from ngraphbench.case import Session
from ngraphbench.engines.base import DeviceLost, Interrupted
from ngraphbench.engines.databases import take_home
from ngraphbench.engines.parcels import Parcel, pack
from ngraphbench.errors import ClusterError
from ngraphbench.models.localfile import digest_file
from ngraphbench.store.disk import make_folders, sync_file, write_whole, writing
from ngraphbench.types import Json

__all__ = ["Link", "Patience", "RemoteDevice", "run_name"]

CHUNK_BYTES = 512 * 1024
RUN_NAME = "fleet.json"
_NAMING = threading.Lock()


class Link(Protocol):
    """A way to one device. It may break at any time, and be there again later."""

    def ask(self, message: Json, *, patience_s: float) -> Json:
        """Return the answer to a message. Raises DeviceLost when none came in time."""

    def events(self) -> queue.SimpleQueue[Json]:
        """Return the queue that the device's events arrive in."""

    def close(self) -> None:
        """End it; what was set up on the device for it alone is removed."""


@dataclass(frozen=True, slots=True)
class Patience:
    """For how many seconds an answer is waited for, a state is not asked for, a device may be gone.

    A link that is cut for a minute is nothing; one that is cut for ``lost_s`` is the end.
    """

    answer_s: float = 60.0
    state_s: float = 30.0
    lost_s: float = 900.0
    again_s: float = 2.0


def run_name(run: Path) -> str:
    """Return the name by which devices know a run directory; made at first use."""
    path = run / RUN_NAME
    with _NAMING:
        with suppress(OSError, ValueError, KeyError):
            return str(json.loads(path.read_text(encoding="utf-8"))["run"])
        name = secrets.token_hex(8)
        write_whole(path, json.dumps({"run": name}))
        return name


class RemoteDevice:
    """One device: ``submit`` survives links that break and agents that start anew."""

    def __init__(self, name: str, link: Link, patience: Patience | None = None) -> None:
        self.name = name
        self._link = link
        self._patience = patience or Patience()
        self._client = secrets.token_hex(8)
        self._asked = 0
        self._session: Json | None = None
        self._lock = threading.Lock()

    def facts(self, packages: Sequence[str], interpreters: Sequence[str]) -> Json:
        """Return the device's facts. Raises ClusterError."""
        wish = {"packages": list(packages), "interpreters": list(interpreters)}
        facts: Json = self._ask("facts", **wish)["facts"]
        return facts

    def submit(self, session: Session, run: Path, emit: Callable[[Json], None]) -> Json:
        """Return the outcome of a session; its samples and logs lie in the run's spool then.

        Raises Interrupted, ClusterError when the agent died, DeviceLost when the device was gone
        for too long.
        """
        spool = spool_folder(run, session)
        make_folders(spool)
        if not (spool / RECORDS).exists():
            parcel = pack(session, run, emit, lambda: self._asked > 0)
            place = {"run": run_name(run), "session_id": session.session_id}
            self._until_done(session, parcel, place, emit)
            self._patiently(lambda: self._bring_home(spool, place, parcel), emit)
            with suppress(ClusterError):
                self._ask("forget", **place)
        try:
            take_home(spool, session)
        except OSError as error:
            emit({"event": "note", "text": f"Tuning databases of {self.name} are lost: {error}"})
        result: Json = json.loads((spool / RECORDS).read_text(encoding="utf-8"))
        return result

    def interrupt(self) -> None:
        """Pass Ctrl-C on to the session that runs there."""
        with self._lock:
            self._asked += 1
            session = self._session
        if session is not None:
            # From a thread of its own: a cut link must not hold the user up.
            threading.Thread(target=self._tell_to_stop, args=(session,), daemon=True).start()

    def close(self) -> None:
        self._link.close()

    def _tell_to_stop(self, session: Json) -> None:
        with suppress(ClusterError):
            self._ask("stop", **session)

    def _until_done(
        self, session: Session, parcel: Parcel, place: Json, emit: Callable[[Json], None]
    ) -> None:
        def attempt() -> None:
            if self._asked:
                raise Interrupted
            self._send(parcel, emit)
            with self._lock:
                self._session = place
            self._ask(
                "start",
                **place,
                session=session.to_json(),
                files=parcel.digests,
                texts=parcel.texts,
                databases=parcel.databases,
            )
            self._wait(place, emit)

        try:
            self._patiently(attempt, emit)
        finally:
            with self._lock:
                self._session = None

    def _patiently(self, attempt: Callable[[], None], emit: Callable[[Json], None]) -> None:
        """Do it again while the device is gone, until that has lasted for too long."""
        lost_at: float | None = None
        while True:
            began = time.monotonic()
            try:
                attempt()
                return
            except DeviceLost as error:
                if self._asked:
                    raise Interrupted from error
                now = time.monotonic()
                if lost_at is None or now - began > self._patience.answer_s + 1:
                    lost_at = now
                    emit({"event": "note", "text": f"{error.message} Waiting for it."})
                if now - lost_at > self._patience.lost_s:
                    raise
                time.sleep(self._patience.again_s)

    def _send(self, parcel: Parcel, emit: Callable[[Json], None]) -> None:
        """Send what is not on the device yet, from where it broke off."""
        sources = {digest: parcel.files[name] for name, digest in parcel.digests.items()}
        if not sources:
            return
        missing = self._ask("have", digests=list(sources))["missing"]
        total = sum(sources[digest].stat().st_size for digest in missing)
        sent = sum(missing.values())
        for digest, received in missing.items():
            size = sources[digest].stat().st_size
            at: int | None = received
            with sources[digest].open("rb") as file:
                while at is not None:
                    file.seek(at)
                    piece = file.read(CHUNK_BYTES)
                    data = base64.b64encode(piece).decode("ascii")
                    answer = self._ask("put", digest=digest, offset=at, size=size, data=data)
                    at = answer["received"]
                    sent += len(piece)
                    text = f"{sent >> 20} of {total >> 20} MiB to {self.name}"
                    told = {"phase": "send", "text": text, "done": sent, "of": total}
                    emit({"event": "phase", **told})

    def _wait(self, place: Json, emit: Callable[[Json], None]) -> None:
        """Return when the session is done. Raises Interrupted, ClusterError or DeviceLost."""
        heard = self._link.events()
        while True:
            event: Json | None = None
            with suppress(queue.Empty):
                event = heard.get(timeout=self._patience.state_s)
            if event is None:
                # Events may be lost with the link that carried them; the spool is not.
                state = self._ask("state", **place)["state"]
                if state == "done":
                    return
                if state != "running":
                    self._died("The agent was started anew in the middle of a session.")
                continue
            if event.get("event") == "gone":
                raise DeviceLost(f"The link to {self.name} broke.", reason="link")
            if event.get("session_id") != place["session_id"]:
                continue
            if event["event"] == "told":
                emit(event["what"])
            elif event.get("interrupted"):
                raise Interrupted
            elif "error" in event:
                raise _error(event["error"])
            else:
                return

    def _died(self, message: str) -> None:
        if self._asked:
            raise Interrupted
        raise ClusterError(message, reason="agent", hint="Its log on the device says more.")

    def _bring_home(self, spool: Path, place: Json, parcel: Parcel) -> None:
        """Fetch every file of a finished session, the records last: they vouch for the others."""
        known = {digest: parcel.files[name] for name, digest in parcel.digests.items()}
        files: list[Json] = self._ask("files", **place)["files"]
        for told in sorted(files, key=lambda one: one["name"] == RECORDS):
            target = (spool / told["name"]).resolve()
            if spool.resolve() not in target.parents:
                raise ClusterError(f"{self.name} sent {told['name']!r}.", reason="transfer")
            make_folders(target.parent)
            partial = target.with_name(target.name + ".part")
            # What was sent and stayed as it was need not come back.
            ours = known.pop(told["digest"], None)
            with writing(target):
                if ours is not None:
                    shutil.copyfile(ours, partial)
                if ours is None or digest_file(partial) != told["digest"]:
                    self._fetch(partial, told, place)
                # The journal will vouch for it.
                sync_file(partial)
                partial.replace(target)
        if not (spool / RECORDS).exists():
            shutil.rmtree(spool, ignore_errors=True)
            raise ClusterError(f"{self.name} has no records of the session.", reason="agent")

    def _fetch(self, target: Path, told: Json, place: Json) -> None:
        with target.open("wb") as file:
            while file.tell() < told["size"]:
                wish = {"name": told["name"], "offset": file.tell(), "bytes": CHUNK_BYTES}
                data = base64.b64decode(self._ask("fetch", **place, **wish)["data"])
                if not data:
                    break
                file.write(data)
        if digest_file(target) != told["digest"]:
            raise DeviceLost(f"{told['name']} did not arrive whole.", reason="transfer")

    def _ask(self, op: str, **fields: object) -> Json:
        message = {"op": op, "client": self._client, **fields}
        answer = self._link.ask(message, patience_s=self._patience.answer_s)
        if not answer.get("ok"):
            raise _error(answer["error"])
        return answer


def _error(told: Json) -> ClusterError:
    return ClusterError(told["message"], reason=told["reason"], hint=told["hint"])
