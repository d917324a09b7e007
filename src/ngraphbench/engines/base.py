"""What every engine does: say which devices there are, and carry a session to one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ngraphbench.case import Session
from ngraphbench.errors import ClusterError
from ngraphbench.types import Json

__all__ = ["DeviceLost", "Engine", "Interrupted"]


class Interrupted(Exception):
    """The user stopped the run; every finished epoch is kept."""


class DeviceLost(ClusterError):
    """A device cannot be reached, and did not come back in the time it was waited for."""


class Engine(Protocol):
    """Transport, nothing more: the spool on the device is the truth.

    ``submit`` is called from one thread per device, so that devices work in parallel; all
    else from the main thread.
    """

    def devices(self) -> Json:
        """Return facts by device name: threads, host, python, package versions."""

    def submit(self, session: Session, run: Path, emit: Callable[[Json], None]) -> Json:
        """Return ``{"finished", "records", "deferred"}`` of one session on its device.

        Events reach ``emit`` as they happen. Raises Interrupted, ClusterError when the agent
        died, DeviceLost when the device is gone.
        """

    def interrupt(self) -> None:
        """Make every ``submit`` end: asked once, after its slot; twice, at once; then by force."""
