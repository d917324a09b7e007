"""The scheduler of a standing fleet: agents and clients dial in, over mutual TLS alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ngraphbench.engines.dasksettings import (
    HELLO,
    compare_versions,
    require_dask,
    security_of,
    topic_of,
    versions,
)
from ngraphbench.errors import ClusterError
from ngraphbench.types import Json

__all__ = ["serve_scheduler"]


async def serve_scheduler(
    host: str, port: int, certificates: Path | None, *, ready: Callable[[str], None]
) -> None:
    """Serve until this task is cancelled; ``ready`` is told the address.

    Its TLS port is all that listens on ``host``. Raises ClusterError.
    """
    distributed = require_dask()
    security = security_of(certificates)
    try:
        scheduler = await distributed.Scheduler(
            host=host,
            port=port,
            protocol="tls",
            security=security,
            # Its web server cannot be left out; this one can be reached from here alone.
            dashboard_address="127.0.0.1:0",
            dashboard=False,
        )
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"The scheduler cannot listen on {host}:{port}: {error}.",
            reason="address",
            hint="Give another --port.",
        ) from error
    ours = versions()

    async def hello(versions: Json | None = None) -> Json:
        return {"versions": ours, "problem": compare_versions(ours, versions or {})}

    scheduler.handlers[HELLO] = hello
    scheduler.add_plugin(_forgetful(distributed, scheduler), name="ngb-forgetful")
    try:
        ready(scheduler.address)
        await scheduler.finished()
    finally:
        await scheduler.close()


def _forgetful(distributed: Any, scheduler: Any) -> Any:
    """Return a plugin that keeps no event once it has been sent on: files travel in them."""
    prefix = topic_of("")

    class Forgetful(distributed.SchedulerPlugin):
        """Drops events from the scheduler's memory."""

        def log_event(self, topic: str, msg: Any) -> None:
            if topic.startswith(prefix):
                scheduler._broker.truncate(topic)

    return Forgetful()
