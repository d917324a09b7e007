"""A worker without its process: the same operations, answered at once."""

from __future__ import annotations

from typing import ClassVar

from ngraphbench.types import Json
from ngraphbench.worker.loop import Worker

__all__ = ["InThisProcess"]


class InThisProcess:
    """The parent's side of a worker whose operations run here."""

    peak_rss_bytes = 0
    log_truncated = False
    leftovers = ""
    origin: ClassVar[Json] = {}

    def __init__(self) -> None:
        self._operations = Worker().operations()

    def request(self, op: str, *, deadline_s: float, **fields: object) -> Json:
        return self._operations[op](dict(fields))

    def suspend(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...

    def kill(self) -> None: ...
