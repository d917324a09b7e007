"""What a worker leaves behind: files in the memory that processes share."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["SHARED", "SharedMemory"]

SHARED = Path("/dev/shm")


class SharedMemory:
    """Knows what lay in a folder of shared memory when a worker started.

    What came since is the worker's where one of its processes had it mapped, or gave it its id
    for a name: all else there may be anybody's.
    """

    def __init__(self, folder: Path = SHARED) -> None:
        self._folder = folder
        self._before = set(self._names())
        self._mapped: set[str] = set()

    def note(self, pids: Iterable[int]) -> None:
        """Remember which files these processes have mapped."""
        if set(self._names()) <= self._before:
            return
        place = re.compile(rf" {re.escape(str(self._folder))}/([^/\n]+)$", re.MULTILINE)
        for pid in pids:
            with suppress(OSError):
                self._mapped.update(place.findall(Path(f"/proc/{pid}/maps").read_text()))

    def clear(self, pids: Iterable[int]) -> int:
        """Remove what the worker, whose processes had these ids, left; return its bytes."""
        ids = {str(pid) for pid in pids}
        left_bytes = 0
        for name in set(self._names()) - self._before:
            if name not in self._mapped and ids.isdisjoint(re.findall(r"\d+", name)):
                continue
            path = self._folder / name
            with suppress(OSError):
                about = path.lstat()
                if about.st_uid == os.geteuid():
                    path.unlink()
                    left_bytes += about.st_blocks * 512
        return left_bytes

    def _names(self) -> list[str]:
        with suppress(OSError):
            return [entry.name for entry in self._folder.iterdir()]
        return []
