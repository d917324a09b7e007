"""The device's side of a fleet: takes messages, runs sessions, keeps what came of them.

All it is told and all it tells is JSON. A session's agent is a child process, so that what
crashes there leaves the desk alone; its spool outlives agent, desk, transport and client. What
a session leaves in /tmp and /dev/shm, and what an earlier desk left, is removed.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ngraphbench import __version__
from ngraphbench.agent import LOCK_PATH, LOCK_VARIABLE, RECORDS, open_lock, spool_folder
from ngraphbench.case import Session
from ngraphbench.engines.agentprocess import AgentProcess, outcome_of, write_message
from ngraphbench.engines.base import Interrupted
from ngraphbench.engines.blobs import BlobStore
from ngraphbench.engines.confine import can_confine, confined
from ngraphbench.engines.databases import DATABASES
from ngraphbench.engines.local import LocalEngine
from ngraphbench.environments.host import host_facts
from ngraphbench.errors import ClusterError, EnvironmentFailed, NGraphBenchError
from ngraphbench.models.localfile import digest_file
from ngraphbench.session.state import ARTIFACTS
from ngraphbench.store.disk import write_whole
from ngraphbench.types import Json

__all__ = ["Desk", "Tell"]

Tell = Callable[[Json], None]

ROUND_EVERY_S = 10.0
"""Rounds are told of this seldom: whoever writes messages takes time from the measurement."""
KEEP_SPOOL_S = 30 * 24 * 3600.0
"""What no client fetched in so long is swept at a start."""
PLACED = "placed.json"
SENT_BACK = ("samples", "logs", ARTIFACTS, DATABASES, RECORDS)


class _Running:
    """A session on this device: its agent, and whom to tell."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.agent: AgentProcess | None = None
        self.stopped = 0
        self.failure: Json | None = None
        self.thread: threading.Thread | None = None


class Desk:
    """Answers messages below ``root``; events go to ``tell``, which may be called by any thread."""

    def __init__(self, root: Path, tell: Tell) -> None:
        self.root = root
        self._tell = tell
        self._blobs = BlobStore(root / "blobs")
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()
        self._ended = False
        self._confines = can_confine()
        self.sweep()

    def sweep(self) -> None:
        """Remove what sessions of an earlier desk left, but for what they have measured."""
        shutil.rmtree(self.root / "private", ignore_errors=True)
        for work in self.root.glob("runs/*/spool/*/work"):
            if not (work.parent / "state.json").exists():
                shutil.rmtree(work, ignore_errors=True)
        oldest = time.time() - KEEP_SPOOL_S
        for run in self.root.glob("runs/*"):
            with suppress(OSError):
                if run.stat().st_mtime < oldest:
                    shutil.rmtree(run, ignore_errors=True)

    def answer(self, message: Json) -> Json:
        """Return the answer to one message: ``{"ok": true, ...}`` or what was wrong with it."""
        try:
            handle = getattr(self, f"_do_{message['op']}", None)
            if handle is None:
                raise ClusterError(
                    f"This agent (ngraphbench {__version__}) does not know {message['op']!r}.",
                    reason="version",
                    hint="Install the same version of ngraphbench on both sides.",
                )
            return {"ok": True, **handle(message)}
        except NGraphBenchError as error:
            told = {"message": error.message, "reason": error.reason, "hint": error.hint}
            return {"ok": False, "error": told}
        except (OSError, KeyError, TypeError, ValueError) as error:
            text = f"The agent could not do {message.get('op')!r}: {type(error).__name__}: {error}"
            return {"ok": False, "error": {"message": text, "reason": "agent", "hint": ""}}

    def end(self) -> None:
        """Stop every session by force and wait until its children are gone."""
        with self._lock:
            self._ended = True
            running = list(self._running.values())
        for one in running:
            for _ in range(3):
                self._interrupt(one)
        for one in running:
            if one.thread is not None:
                one.thread.join(60)

    # -- what a client may ask

    def _do_facts(self, message: Json) -> Json:
        local = LocalEngine(message.get("packages", ()), message.get("interpreters", ()))
        facts = local.devices()["local"]
        host = host_facts()
        told = {key: host[key] for key in ("governor", "cpu_model", "memory_bytes")}
        return {"facts": {**facts, **told, "machine": platform.machine()}}

    def _do_have(self, message: Json) -> Json:
        found = {digest: self._blobs.received_bytes(digest) for digest in message["digests"]}
        return {"missing": {key: size for key, size in found.items() if size is not None}}

    def _do_put(self, message: Json) -> Json:
        data = base64.b64decode(message["data"])
        at = self._blobs.put(message["digest"], message["offset"], data, size=message["size"])
        return {"received": at}

    def _do_start(self, message: Json) -> Json:
        session = Session.from_json(message["session"])
        run, key = self._run(message["run"]), session.session_id
        with self._lock:
            if self._ended:
                raise ClusterError("The agent is ending.", reason="agent")
            running = self._running.get(key)
            if running is not None:
                running.client = message["client"]
                return {"state": "running"}
            if (spool_folder(run, session) / RECORDS).exists():
                return {"state": "done"}
            self._place(run, message)
            running = self._running[key] = _Running(message["client"])
            work = partial(self._work, session, run, running, message["databases"])
            running.thread = threading.Thread(target=work, name=f"session-{key}")
            running.thread.start()
        return {"state": "running"}

    def _do_state(self, message: Json) -> Json:
        key = message["session_id"]
        with self._lock:
            if key in self._running:
                self._running[key].client = message["client"]
                return {"state": "running"}
        done = self._spool(message) / RECORDS
        return {"state": "done" if done.exists() else "unknown"}

    def _do_stop(self, message: Json) -> Json:
        with self._lock:
            running = self._running.get(message["session_id"])
        if running is not None:
            self._interrupt(running)
        return {"state": "unknown" if running is None else "stopping"}

    def _do_files(self, message: Json) -> Json:
        spool = self._spool(message)
        paths = [spool / name for name in SENT_BACK]
        found = [p for path in paths for p in ([path] if path.is_file() else path.rglob("*"))]
        return {
            "files": [
                {
                    "name": str(path.relative_to(spool)),
                    "size": path.stat().st_size,
                    "digest": digest_file(path),
                }
                for path in found
                if path.is_file()
            ]
        }

    def _do_fetch(self, message: Json) -> Json:
        spool = self._spool(message)
        with _inside(spool, message["name"]).open("rb") as file:
            file.seek(message["offset"])
            data = file.read(message["bytes"])
        return {"data": base64.b64encode(data).decode("ascii")}

    def _do_forget(self, message: Json) -> Json:
        """Drop a session's spool, and its run's folder once nothing else is in it."""
        spool = self._spool(message)
        for path in (spool / DATABASES).rglob("*"):
            if path.is_file():
                # The next session is sent it by its digest alone.
                self._blobs.adopt(path)
        shutil.rmtree(spool, ignore_errors=True)
        with suppress(OSError):
            spool.parent.rmdir()
            shutil.rmtree(spool.parent.parent, ignore_errors=True)
        return {}

    # -- one session

    def _work(
        self, session: Session, run: Path, running: _Running, databases: dict[str, str]
    ) -> None:
        key, spool = session.session_id, spool_folder(run, session)
        folders = {named: str(_inside(spool, name)) for named, name in databases.items()}
        message = write_message(run, session, spool, folders=folders, round_every_s=ROUND_EVERY_S)
        private = self.root / "private" / key
        told: Json = {"event": "finished", "session_id": key}
        try:
            before = confined(private, self._visible()) if self._confines else []
            with self._lock:
                if running.stopped:
                    raise Interrupted
                running.agent = AgentProcess(message, spool / "agent.log", before=before)
            code = running.agent.follow(lambda event: self._forward(running, key, event))
            failure = running.agent.failure
            outcome_of(spool, code, stopped=running.stopped > 0, failure=failure)
        except Interrupted:
            told["interrupted"] = True
        except NGraphBenchError as error:
            told["error"] = {"message": error.message, "reason": error.reason, "hint": error.hint}
        except Exception as error:  # the client must hear of it, whatever it is
            text = f"The agent failed: {type(error).__name__}: {error}"
            told["error"] = {"message": text, "reason": "agent", "hint": ""}
        finally:
            shutil.rmtree(private, ignore_errors=True)
            if (spool / RECORDS).exists() or not (spool / "state.json").exists():
                # What is half done finds its artefacts again.
                shutil.rmtree(spool / "work", ignore_errors=True)
            with self._lock:
                del self._running[key]
            self._tell({**told, "client": running.client})

    def _forward(self, running: _Running, key: str, event: Json) -> None:
        told = {"event": "told", "session_id": key, "client": running.client, "what": event}
        self._tell(told)

    def _interrupt(self, running: _Running) -> None:
        running.stopped += 1
        if running.agent is not None:
            running.agent.interrupt()

    def _place(self, run: Path, message: Json) -> None:
        """Lay out what was sent; what lies there already stays."""
        kept = run / PLACED
        placed: dict[str, str] = json.loads(kept.read_text()) if kept.exists() else {}
        wanted = message["files"].items()
        new = {n: d for n, d in wanted if placed.get(n) != d or not (run / n).exists()}
        self._blobs.place(new, run)
        run.mkdir(parents=True, exist_ok=True)
        write_whole(kept, json.dumps({**placed, **message["files"]}))
        for name, text in message["texts"].items():
            target = _inside(run, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, _settled(text, target))

    def _visible(self) -> list[Path]:
        """What a confined session must see of /tmp: our own files, and how Python is found."""
        lock = Path(os.environ.get(LOCK_VARIABLE, LOCK_PATH))
        if not lock.exists():
            # A link that somebody put there is not followed.
            with suppress(EnvironmentFailed):
                os.close(open_lock(lock))
        places: list[Any] = [self.root, lock, sys.prefix, sys.base_prefix, "/tmp/nvidia-mps"]
        places += [path for path in sys.path if path]
        return [Path(place).resolve() for place in places]

    def _run(self, name: str) -> Path:
        if not name.isalnum():
            raise ClusterError(f"{name[:80]!r} is no name of a run.", reason="agent")
        return self.root / "runs" / name

    def _spool(self, message: Json) -> Path:
        if not str(message["session_id"]).isalnum():
            raise ClusterError("That is no session.", reason="agent")
        return self._run(message["run"]) / "spool" / str(message["session_id"])


def _inside(folder: Path, name: str) -> Path:
    """Return where ``name`` is below ``folder``. Raises ClusterError where it is not."""
    path = (folder / name).resolve()
    if folder.resolve() not in path.parents:
        raise ClusterError(f"{name!r} is outside its folder.", reason="transfer")
    return path


def _settled(text: str, target: Path) -> str:
    """Return ``text`` with the path of a model that came along, as it is on this device."""
    if target.name != "workload.json":
        return text
    about = json.loads(text)
    path = str(about.get("model", {}).get("path", ""))
    if path.startswith("./"):
        about["model"]["path"] = str(target.parent / path)
    return json.dumps(about)
