"""Many devices under one engine: this machine, boards behind ssh, agents of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ngraphbench.case import Session
from ngraphbench.engines.local import LocalEngine
from ngraphbench.engines.remote import Link, Patience, RemoteDevice
from ngraphbench.engines.ssh import SshLink, parse_board
from ngraphbench.errors import ClusterError
from ngraphbench.spec_values import split_device
from ngraphbench.types import Json

__all__ = ["Cluster", "FleetEngine"]

LOCAL = "local"


class Cluster(Protocol):
    """A standing fleet: agents that have registered with a scheduler."""

    def names(self) -> frozenset[str]:
        """Return the names of the devices that are connected now."""

    def link(self, name: str) -> Link:
        """Return a link to a device, which need not be connected."""

    def close(self) -> None:
        """Disconnect from the scheduler; its agents stay."""


class FleetEngine:
    """Carries each session to the device that it names.

    ``texts`` are devices as the user writes them. Those that cannot be reached are in
    ``absent`` with the reason, and may be looked for again.
    """

    def __init__(
        self,
        texts: Iterable[str],
        *,
        packages: Iterable[str] = (),
        interpreters: Iterable[str] = (),
        cluster: Cluster | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._packages = sorted(set(packages))
        self._interpreters = sorted(set(interpreters))
        self._local = LocalEngine(self._packages, self._interpreters)
        self._cluster = cluster
        self._patience = patience
        self._remote: dict[str, RemoteDevice] = {}
        self._places = {split_device(text)[0]: text for text in texts}
        self.absent: dict[str, ClusterError] = {}
        for name, text in self._places.items():
            if name != LOCAL:
                self._remote[name] = RemoteDevice(name, self._link(name, text), patience)

    def devices(self) -> Json:
        """Return the facts of every device that can be reached."""
        names = list(self._places)
        with ThreadPoolExecutor(max(1, min(len(names), 32))) as pool:
            found = dict(zip(names, pool.map(self.look, names), strict=True))
        return {name: facts for name, facts in found.items() if facts is not None}

    def look(self, name: str) -> Json | None:
        """Return the facts of one device, None while it cannot be reached."""
        try:
            if name == LOCAL:
                facts: Json = self._local.devices()[LOCAL]
            else:
                self._check_connected(name)
                facts = self._remote[name].facts(self._packages, self._interpreters)
        except ClusterError as error:
            self.absent[name] = error
            return None
        self.absent.pop(name, None)
        return facts

    def submit(self, session: Session, run: Path, emit: Callable[[Json], None]) -> Json:
        """Return the session's outcome. Raises Interrupted, ClusterError or DeviceLost."""
        name = session.device.name
        engine = self._local if name == LOCAL else self._remote[name]
        return engine.submit(session, run, emit)

    def interrupt(self) -> None:
        """Stop the sessions of all devices."""
        self._local.interrupt()
        for device in self._remote.values():
            device.interrupt()

    def remove_environments(self, ids: Iterable[str]) -> None:
        """Remove managed environments of this machine; those of other devices are theirs."""
        self._local.remove_environments(ids)

    def close(self) -> None:
        """End all links; what was set up on a board for this run alone is removed."""
        with ThreadPoolExecutor(max(1, min(len(self._remote), 32))) as pool:
            list(pool.map(RemoteDevice.close, self._remote.values()))
        if self._cluster is not None:
            with suppress(ClusterError):
                self._cluster.close()

    def _link(self, name: str, text: str) -> Link:
        if not self._is_clustered(name):
            return SshLink(name, parse_board(text))
        if self._cluster is None:
            raise ClusterError(
                f"{name!r} is not this machine, and no scheduler was named.",
                reason="no-cluster",
                hint="Add --cluster tls://HOST:PORT, or write ssh://HOST for a board.",
            )
        return self._cluster.link(name)

    def _check_connected(self, name: str) -> None:
        """Raise ClusterError at once for an agent that no scheduler knows: none would answer."""
        if self._cluster is None or not self._is_clustered(name):
            return
        there = self._cluster.names()
        if name not in there:
            raise _not_connected(name, there)

    def _is_clustered(self, name: str) -> bool:
        return name != LOCAL and not name.startswith("ssh://")


def _not_connected(name: str, there: Iterable[str]) -> ClusterError:
    known = ", ".join(sorted(there)) or "none"
    return ClusterError(
        f"{name} is not connected to the scheduler; connected: {known}.",
        reason="absent",
        hint=f"On the device: `ngb agent --name {name} --scheduler ...`.",
    )
