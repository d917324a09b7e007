"""The log of a worker: whatever it prints, kept to a bounded size."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ngraphbench.redaction import own_redaction

__all__ = ["LOG_LIMIT_BYTES", "WorkerLog"]

LOG_LIMIT_BYTES = 2 * 1024**2
LOG_KEPT_BYTES = 1024**2
TAIL_LINES = 20
TAIL_BYTES = 65536


class WorkerLog:
    """A file that is only appended to. Its ``descriptor`` is the worker's stdout and stderr.

    ``truncated`` says that a part was cut out. Raises OSError when it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.descriptor = os.open(path, flags, 0o666)
        self.truncated = False
        self._path = path

    def trim(self) -> None:
        """Cut the end off a log that has grown too large; the worker writes on behind it."""
        with suppress(OSError):
            if os.fstat(self.descriptor).st_size > LOG_LIMIT_BYTES:
                os.ftruncate(self.descriptor, LOG_KEPT_BYTES)
                self.truncated = True
                os.write(self.descriptor, b"\n[ngraphbench: a part of this log was cut out here]\n")

    def tail(self) -> str:
        """Return the last lines, an empty string where they cannot be read."""
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(max(0, self._path.stat().st_size - TAIL_BYTES))
            told = own_redaction().text(file.read().decode("utf-8", "replace"))
            lines = told.splitlines()
            return "\n".join(line[:500] for line in lines[-TAIL_LINES:])
        return ""

    def close(self) -> None:
        """Close this side's descriptor; the file stays, without the user's credentials."""
        os.close(self.descriptor)
        with suppress(OSError):
            own_redaction().file(self._path)
