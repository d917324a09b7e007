"""What a session needs of a worker's process."""

from __future__ import annotations

from typing import Protocol

from ngraphbench.types import Json

__all__ = ["Worker"]


class Worker(Protocol):
    """The parent's side of a worker process (``session.process.WorkerProcess``)."""

    origin: Json

    def request(self, op: str, *, deadline_s: float, **fields: object) -> Json: ...

    def suspend(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...

    def kill(self) -> None: ...

    @property
    def peak_rss_bytes(self) -> int: ...

    @property
    def log_truncated(self) -> bool: ...

    @property
    def leftovers(self) -> str: ...
