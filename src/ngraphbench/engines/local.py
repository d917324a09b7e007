"""The local engine: the agent as a child process on this machine."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from ngraphbench.agent import spool_folder
from ngraphbench.case import Session
from ngraphbench.engines.agentprocess import AgentProcess, outcome_of, write_message
from ngraphbench.engines.base import Interrupted
from ngraphbench.environments.host import host_id
from ngraphbench.environments.interpreters import inspect_python, interpreter_tag
from ngraphbench.environments.managed import remove_environment
from ngraphbench.environments.power import power_facts
from ngraphbench.environments.systemfiles import quota_cpus
from ngraphbench.environments.topology import choose_cpus, read_topology
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.places import expanded
from ngraphbench.plugin import package_version
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
        self._stopped = 0
        self._agents: list[AgentProcess] = []
        self._lock = threading.Lock()

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
                "power_mode": power_facts()["power_mode"],
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
        spool = spool_folder(run, session)
        message = write_message(run, session, spool)
        with self._lock:
            if self._stopped:
                raise Interrupted
            agent = AgentProcess(message, spool / "agent.log")
            self._agents.append(agent)
        try:
            code = agent.follow(emit)
        finally:
            self._agents.remove(agent)
        return outcome_of(spool, code, stopped=bool(self._stopped), failure=agent.failure)

    def interrupt(self) -> None:
        """Stop the session that runs: asked once, after its slot; twice, at once; then by force."""
        with self._lock:
            self._stopped += 1
            for agent in self._agents:
                agent.interrupt()


def _told(place: str) -> Json:
    try:
        return {"id": inspect_python(expanded(place)).id}
    except EnvironmentFailed as error:
        return {"problem": str(error)}
