"""The client's side of a standing fleet: links to its agents through the scheduler.

Messages go as tasks that name a function, answers come back as events: a device behind NAT that
only dials out can give no result in any other way.
"""

from __future__ import annotations

import asyncio
import json
import queue
import secrets
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from ngraphbench.engines.base import DeviceLost
from ngraphbench.engines.daskagent import EXTRA, receive
from ngraphbench.engines.dasksettings import (
    check_address,
    require_dask,
    say_hello,
    security_of,
    topic_of,
)
from ngraphbench.errors import ClusterError
from ngraphbench.types import Json

__all__ = ["DaskCluster"]

CONNECT_S = 20.0
LOOK_S = 2.0


class DaskCluster:
    """A connection to a scheduler, made at first use and anew when it is lost.

    That it does not answer for ``connect_s`` seconds is a loss.
    """

    def __init__(
        self, address: str, certificates: Path | None = None, *, connect_s: float = CONNECT_S
    ) -> None:
        self._connect_s = connect_s
        self._distributed = require_dask()
        self._address = check_address(address)
        self._security = security_of(certificates)
        self._lock = threading.RLock()
        self._client: Any = None
        self._scheduler_id = ""
        self._handlers: dict[str, Any] = {}

    def names(self) -> frozenset[str]:
        """Return the names of the devices that are connected now."""
        return frozenset(self.devices())

    def devices(self) -> dict[str, Json]:
        """Return what each connected device said of itself, with its ``address``, by name.

        Of two connections of one name, the later one counts. Raises DeviceLost while the
        scheduler cannot be reached.
        """
        found: dict[str, Json] = {}
        for address, worker in self._identity()["workers"].items():
            about = worker.get(EXTRA)
            if about and about["since"] >= found.get(about["device"], about)["since"]:
                found[about["device"]] = {**about, "address": address}
        return found

    def link(self, name: str) -> DaskLink:
        """Return the link to a device, which need not be connected."""
        return DaskLink(self, name)

    def close(self) -> None:
        """Disconnect; the agents and what runs on them stay."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                client.close(timeout=5)

    def listen(self, topic: str, handler: Any) -> None:
        """Have ``handler`` called with every message under a topic, also after a reconnection."""
        with self._lock:
            self._handlers[topic] = handler
            if self._client is not None:
                self._client.subscribe_topic(topic, handler)

    def send(self, address: str, text: str) -> Any:
        """Return the task that brings a message to the device connected from ``address``."""
        return self._connected().submit(
            receive,
            text,
            key=f"ngb-{secrets.token_hex(8)}",
            workers=[address],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )

    def _identity(self) -> Json:
        client = self._connected()
        try:
            found: Json = client.sync(_identity, client, callback_timeout=self._connect_s)
        except Exception as error:
            self.close()
            raise self._lost(error) from error
        if found["id"] != self._scheduler_id:
            # It was started anew, and knows of nothing that was asked before.
            with self._lock:
                self._scheduler_id = found["id"]
                for topic, handler in self._handlers.items():
                    client.subscribe_topic(topic, handler)
        return found

    def _connected(self) -> Any:
        with self._lock:
            if self._client is not None and self._client.status == "running":
                return self._client
            self.close()
            try:
                asyncio.run(say_hello(self._address, self._security))
                with warnings.catch_warnings():
                    # Pythons may differ; what may not was compared just now.
                    warnings.simplefilter("ignore")
                    client = self._distributed.Client(
                        self._address,
                        security=self._security,
                        set_as_default=False,
                        timeout=self._connect_s,
                    )
            except ClusterError as error:
                # A scheduler that ends in the middle of a greeting looks like one that refuses.
                if error.reason != "certificates" or not self._scheduler_id:
                    raise
                raise self._lost(error) from error
            except (OSError, asyncio.TimeoutError) as error:
                raise self._lost(error) from error
            for topic, handler in self._handlers.items():
                client.subscribe_topic(topic, handler)
            self._client = client
            return client

    def _lost(self, error: BaseException) -> DeviceLost:
        return DeviceLost(
            f"The scheduler at {self._address} cannot be reached: {error}.",
            reason="scheduler",
            hint="Is `ngb cluster scheduler` running there, and its port open?",
        )


class DaskLink:
    """A way to one device of the fleet; see ``remote.Link``."""

    def __init__(self, cluster: DaskCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._events: queue.SimpleQueue[Json] = queue.SimpleQueue()
        self._answers: dict[str, queue.SimpleQueue[Json]] = {}
        self._topic = ""

    def events(self) -> queue.SimpleQueue[Json]:
        return self._events

    def ask(self, message: Json, *, patience_s: float) -> Json:
        """Return the answer to a message. Raises DeviceLost when the device went or is silent."""
        if not self._topic:
            self._topic = topic_of(message["client"])
            self._cluster.listen(self._topic, self._hear)
        address = self._address()
        number = secrets.token_hex(8)
        answered: queue.SimpleQueue[Json] = queue.SimpleQueue()
        self._answers[number] = answered
        task = self._cluster.send(address, json.dumps({**message, "id": number}))
        try:
            return self._answer(answered, address, patience_s)
        finally:
            self._answers.pop(number, None)
            with suppress(Exception):
                task.release()

    def close(self) -> None:
        """Leave the device as it is."""

    def _answer(self, answered: queue.SimpleQueue[Json], address: str, patience_s: float) -> Json:
        deadline = time.monotonic() + patience_s
        while True:
            with suppress(queue.Empty):
                return answered.get(timeout=LOOK_S)
            if time.monotonic() > deadline:
                raise DeviceLost(
                    f"{self._name} gave no answer within {patience_s:g} s.", reason="silent"
                )
            if self._address() != address:
                raise DeviceLost(f"{self._name} was connected anew.", reason="anew")

    def _address(self) -> str:
        found = self._cluster.devices().get(self._name)
        if found is None:
            raise DeviceLost(f"{self._name} is not connected to the scheduler.", reason="absent")
        return str(found["address"])

    def _hear(self, event: tuple[float, Any]) -> None:
        with suppress(ValueError, KeyError, TypeError):
            message = json.loads(event[1])
            answered = self._answers.get(message.pop("id", ""))
            if answered is not None:
                answered.put(message)
            elif "event" in message:
                self._events.put(message)


async def _identity(client: Any) -> Any:
    return await client.scheduler.identity()
