"""The agent of a standing fleet: a desk that dials out to a scheduler, again and again.

Dask carries messages and nothing else: sessions run in processes of the desk, so that they outlive
the connection. There is no nanny, which would set OMP_NUM_THREADS=1 and the like for all below.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from ngraphbench.engines.dasksettings import (
    check_address,
    require_dask,
    say_hello,
    security_of,
    topic_of,
    versions,
)
from ngraphbench.engines.desk import Desk
from ngraphbench.errors import ClusterError
from ngraphbench.places import user_folder
from ngraphbench.types import Json

__all__ = ["agent_root", "receive", "serve_agent"]

EXTRA = "ngb"
ERRANDS_MS = 60_000.0
"""How often the worker does what Dask has it do by itself, heartbeats included."""
THREADS = 4
"""Messages handled at a time; none of them measures."""
AGAIN_S = (1.0, 30.0)
"""How long it waits before it dials again: at first, and at most."""


class _Here:
    """The one desk of this process, and the connection it has now."""

    desk: Desk | None = None
    worker: Any = None


def receive(text: str) -> None:
    """Take one message, JSON; the answer travels as an event. Called by Dask, by name."""
    message = json.loads(text)
    desk = _Here.desk
    answer = desk.answer(message) if desk is not None else {"ok": False, "error": _NO_DESK}
    _tell({**answer, "id": message["id"], "client": message["client"]})


def agent_root(name: str) -> Path:
    """Return where an agent keeps what it was sent and what it measured."""
    state = user_folder("XDG_STATE_HOME")
    if state is None:
        raise ClusterError(
            "This user has no home folder for an agent to keep its work in.",
            reason="home",
            hint="Set HOME or XDG_STATE_HOME.",
        )
    return state / "ngraphbench" / "agents" / name


async def serve_agent(
    name: str,
    scheduler: str,
    certificates: Path | None,
    *,
    root: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Serve until this task is cancelled. Raises ClusterError for what only a person can cure."""
    require_dask()
    check_address(scheduler)
    security = security_of(certificates)
    folder = root or agent_root(name)
    lock = _only_one(name, folder)
    _Here.desk = Desk(folder, _tell)
    wait_s, served = AGAIN_S[0], False
    try:
        while True:
            try:
                await say_hello(scheduler, security)
                await _serve_once(name, scheduler, security, folder=folder, say=say)
                wait_s, served = AGAIN_S[0], True
                say("the connection ended; dialling again")
            except ClusterError as error:
                # A scheduler that ends in the middle of a greeting looks like one that refuses.
                if not served or error.reason != "certificates":
                    raise
                say(f"{error.message} Dialling again in {wait_s:g} s")
            except (OSError, ValueError, RuntimeError) as error:
                say(f"{error}; dialling again in {wait_s:g} s")
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, AGAIN_S[1])
    finally:
        desk, _Here.desk = _Here.desk, None
        await asyncio.to_thread(desk.end)
        os.close(lock)


async def _serve_once(
    name: str, scheduler: str, security: Any, *, folder: Path, say: Callable[[str], None]
) -> None:
    """Be a worker of the scheduler until one of both ends it."""
    desk = _Here.desk
    assert desk is not None
    facts = await asyncio.to_thread(desk.answer, {"op": "facts"})
    about = {
        "device": name,
        "since": time.time(),
        "versions": versions(),
        "facts": facts.get("facts", {}),
    }

    async def told(worker: Any) -> Json:
        return about

    worker = _quiet(require_dask().Worker)(
        scheduler,
        # A connection that was cut may be in the scheduler's books for minutes.
        name=f"{name}#{secrets.token_hex(4)}",
        nthreads=THREADS,
        memory_limit=0,
        security=security,
        # Threads of Dask's own look once a second whether there is something to do.
        executor=ThreadPoolExecutor(THREADS, thread_name_prefix="messages"),
        host=_loopback(name),
        dashboard=False,
        dashboard_address="127.0.0.1:0",
        startup_information={EXTRA: told},
        local_directory=str(folder / "dask"),
    )
    try:
        await worker
        _Here.worker = worker
        say(f"connected to {scheduler} as {name}")
        await worker.finished()
    finally:
        _Here.worker = None
        with suppress(Exception):
            await worker.close(timeout=2)


def _quiet(base: Any) -> Any:
    """Return a Dask worker that seldom wakes up: its scheduler asks for two heartbeats a second."""

    class QuietWorker(base):
        """A worker whose own errands wait."""

        async def heartbeat(self) -> None:
            await super().heartbeat()
            for callback in self.periodic_callbacks.values():
                callback.callback_time = max(callback.callback_time, ERRANDS_MS)

    return QuietWorker


def _tell(message: Json) -> None:
    """Send an event to the client it is for; while there is no connection it is lost.

    A client that hears nothing asks, and the spool answers.
    """
    worker = _Here.worker
    if worker is not None:
        topic = topic_of(str(message.get("client", "")))
        with suppress(RuntimeError):
            worker.loop.add_callback(worker.log_event, topic, json.dumps(message))


def _loopback(name: str) -> str:
    """Return a loopback address that other devices' agents hardly have.

    A Dask worker must listen. Nobody dials in to this one: messages come and go on the connection
    that it has made. But the scheduler knows workers by their address.
    """
    digest = hashlib.sha256(f"{name}/{secrets.token_hex(8)}".encode()).digest()
    return f"127.{1 + digest[0] % 254}.{digest[1]}.{1 + digest[2] % 254}"


def _only_one(name: str, folder: Path) -> int:
    """Return the lock of an agent's folder, which dies with this process. Raises ClusterError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise ClusterError(
            f"An agent named {name} runs here already.",
            reason="name",
            hint="End it, or give this one another --name.",
        ) from error
    return lock


_NO_DESK = {"message": "The agent is ending.", "reason": "agent", "hint": ""}
