"""The local engine: the agent as a child process on this machine."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from ngraphbench.agent import EXIT_INTERRUPTED, RECORDS, spool_folder
from ngraphbench.case import Session
from ngraphbench.engines.base import Interrupted
from ngraphbench.environments.host import host_id
from ngraphbench.environments.interpreters import inspect_python, interpreter_tag
from ngraphbench.environments.managed import remove_environment
from ngraphbench.environments.systemfiles import quota_cpus
from ngraphbench.environments.topology import choose_cpus, read_topology
from ngraphbench.errors import ClusterError, EnvironmentFailed
from ngraphbench.plugin import package_version
from ngraphbench.session.proctree import signal_name
from ngraphbench.types import Json

__all__ = ["LocalEngine"]


class LocalEngine:
    """Runs sessions here, one at a time.

    ``packages`` are the distributions whose versions enter the fingerprint of a session;
    ``interpreters`` the places of other ones that candidates name.
    """

    def __init__(self, packages: Iterable[str] = (), interpreters: Iterable[str] = ()) -> None:
        self._packages = sorted(set(packages))
        self._interpreters = sorted(set(interpreters))
        self._stopped = False

    def devices(self) -> Json:
        """Return the facts of this machine under the name ``local``.

        ``cpus`` are those that may be used, best first: the first n are the set for n threads.
        ``interpreters`` maps the place of each to its id, or to the problem with it.
        """
        choice = choose_cpus(read_topology(), quota=quota_cpus())
        versions = {name: package_version(name) for name in self._packages}
        return {
            "local": {
                "threads": choice.threads,
                "cpus": list(choice.order),
                "host": host_id(),
                "python": platform.python_version(),
                "interpreter": interpreter_tag(),
                "interpreters": {place: _told(place) for place in self._interpreters},
                "packages": {name: version for name, version in versions.items() if version},
            }
        }

    def remove_environments(self, ids: Iterable[str]) -> None:
        """Remove managed environments. Raises EnvironmentFailed while one is in use."""
        for id_ in ids:
            remove_environment(id_)

    def submit(self, session: Session, run: Path, emit: Callable[[Json], None]) -> Json:
        """Return the session's outcome. Raises Interrupted or ClusterError.

        An interrupt in the last launch of a session lets it finish; the next one is not begun.
        """
        if self._stopped:
            raise Interrupted
        spool = spool_folder(run, session)
        spool.mkdir(parents=True, exist_ok=True)
        message = spool / "message.json"
        message.write_text(json.dumps({"run": str(run), "session": session.to_json()}))
        code, self._stopped = _run_agent(message, spool / "agent.log", emit)
        outcome = spool / RECORDS
        if code == EXIT_INTERRUPTED or (self._stopped and not outcome.exists()):
            raise Interrupted
        if not outcome.exists():
            tail = (spool / "agent.log").read_text(errors="replace").strip().splitlines()[-15:]
            raise ClusterError(
                f"The agent ended with {_exit_text(code)} and left no records.",
                reason="agent",
                hint="Run again to go on after the last finished epoch.\n" + "\n".join(tail),
            )
        result: Json = json.loads(outcome.read_text(encoding="utf-8"))
        return result


def _told(place: str) -> Json:
    try:
        return {"id": inspect_python(Path(place).expanduser()).id}
    except EnvironmentFailed as error:
        return {"problem": str(error)}


def _exit_text(code: int) -> str:
    if code < 0:
        return f"signal {signal_name(-code)}"
    return f"exit code {code}"


def _run_agent(message: Path, log: Path, emit: Callable[[Json], None]) -> tuple[int, bool]:
    """Return the agent's exit code, and whether the user stopped it.

    Ctrl-C is passed on: once to finish the slot, twice to stop.
    """
    reading, writing = os.pipe()
    with log.open("ab") as output:
        agent = subprocess.Popen(
            [sys.executable, "-m", "ngraphbench.agent", str(message), str(writing)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(writing,),
            # Its own session: the terminal's Ctrl-C must reach the client alone.
            start_new_session=True,
        )
    os.close(writing)
    try:
        with os.fdopen(reading, encoding="utf-8") as events:
            return _follow(agent, events, emit)
    finally:
        # Whatever ended this, nothing goes on behind the client's back.
        agent.kill()
        agent.wait()


def _follow(
    agent: subprocess.Popen[bytes], events: IO[str], emit: Callable[[Json], None]
) -> tuple[int, bool]:
    asked = 0
    while True:
        try:
            line = events.readline()
            if not line:
                return agent.wait(), asked > 0
            # A killed agent may leave half a line, and so may Ctrl-C while one is read.
            event: Json | None = None
            with suppress(ValueError):
                event = json.loads(line)
            if event is not None:
                emit(event)
        except KeyboardInterrupt:
            asked += 1
            agent.send_signal(signal.SIGINT)
            emit({"event": "stopping", "text": _STOPPING[min(asked, 2) - 1]})
            if asked > 2:
                agent.kill()


_STOPPING = (
    "finishing the slot or the build at hand; press Ctrl-C again to stop at once"
    " (finished epochs are kept)",
    "stopping now; finished epochs are kept",
)
