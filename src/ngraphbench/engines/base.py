"""What every engine does: say which devices there are, and carry a session to one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ngraphbench.case import Session
from ngraphbench.types import Json

__all__ = ["Engine", "Interrupted"]


class Interrupted(Exception):
    """The user stopped the run; every finished epoch is kept."""


class Engine(Protocol):
    """Transport, nothing more: the spool on the device is the truth."""

    def devices(self) -> Json:
        """Return facts by device name: threads, host, python, package versions."""

    def submit(self, session: Session, run: Path, emit: Callable[[Json], None]) -> Json:
        """Return ``{"finished", "records", "deferred"}`` of one session on its device.

        Events reach ``emit`` as they happen. Raises Interrupted, or ClusterError when the
        agent died.
        """
