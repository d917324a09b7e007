"""``os`` as the store sees it, which fails or kills at one of its calls, and counts them all."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOUCHING = ("open", "write", "fsync", "replace", "rename", "mkdir", "ftruncate", "unlink")
"""What the store may call that changes a disk, or makes what was changed last."""

IN_A_CHILD = ("kill", "torn", "power")
FAULTS = ("ENOSPC", "EIO", "short", "full", *IN_A_CHILD)
WRITES_ONLY = ("short", "full", "torn")


@dataclass
class FaultyOs:
    """Stands for the module ``os`` in ``ngraphbench.store.disk``.

    ``fault`` happens at call number ``at``: ``EIO`` once; ``ENOSPC`` from there on, as a disk
    stays full; ``short`` writes half and says so; ``full`` does that and then there is no room;
    ``kill`` and ``torn`` are SIGKILL before, and half-way through, a call; ``power`` takes away
    besides what was not synced.
    """

    root: Path
    fault: str = ""
    at: int = -1
    _seen: list[tuple[str, Path]] = field(default_factory=list)
    _paths: dict[int, Path] = field(default_factory=dict)
    _synced_bytes: dict[Path, int] = field(default_factory=dict)
    _undo: list[tuple[Path, Callable[[], None]]] = field(default_factory=list)
    _is_full: bool = False

    @property
    def calls(self) -> list[tuple[str, str]]:
        """What was called for which path, digests left out."""
        return [(name, _general(path, self.root)) for name, path in self._seen]

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in TOUCHING:
            return real
        return lambda *given, **more: self._call(name, real, *given, **more)

    def close(self, descriptor: int) -> None:
        self._paths.pop(descriptor, None)
        os.close(descriptor)

    def _call(self, name: str, real: Callable[..., Any], *given: Any, **more: Any) -> Any:
        descriptor = given[0] if isinstance(given[0], int) else -1
        path = self._paths.get(descriptor) or Path(given[-1] if name in MOVES else given[0])
        if name == "open" and not given[1] & (os.O_WRONLY | os.O_RDWR):
            # A folder, to be synced.
            found = real(*given, **more)
            self._paths[found] = path
            return found
        here = len(self._seen) == self.at
        self._seen.append((name, path))
        if here or self._is_full:
            given = self._go_wrong(name, real, *given)
        if name == "open":
            self._opening(path, given[1])
        elif name in MOVES:
            self._moving(Path(given[0]), path)
        elif name == "mkdir":
            self._undo.append((path.parent, lambda: _removed(path)))
        # What lasts is kept account of here: the tests need not wait for a real disk.
        result = None if name == "fsync" else real(*given, **more)
        if name == "open":
            self._paths[result] = path
        elif name == "fsync":
            self._syncing(descriptor, path)
        return result

    def _go_wrong(self, name: str, real: Callable[..., Any], *given: Any) -> tuple[Any, ...]:
        """Do the fault; return what the call that it befalls is to be given instead."""
        if self.fault == "EIO":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.fault == "ENOSPC" or self._is_full:
            self._is_full = True
            if name in ("write", "mkdir", "fsync") or (name == "open" and given[1] & os.O_CREAT):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return given
        if self.fault in WRITES_ONLY:
            given = (given[0], bytes(given[1])[: len(given[1]) // 2])
            self._is_full = self.fault == "full"
        if self.fault == "torn":
            real(*given)
        if self.fault == "power":
            self._lose_power()
        if self.fault in IN_A_CHILD:
            os.kill(os.getpid(), signal.SIGKILL)
        return given

    # -- what a cut of power takes away

    def _opening(self, path: Path, flags: int) -> None:
        if not path.exists():
            self._undo.append((path.parent, lambda: path.unlink(missing_ok=True)))
            self._synced_bytes[path] = 0
        elif flags & os.O_TRUNC:
            self._synced_bytes[path] = 0
        else:
            self._synced_bytes.setdefault(path, path.stat().st_size)

    def _moving(self, source: Path, target: Path) -> None:
        before = target.read_bytes() if target.is_file() else None

        def undo() -> None:
            if target.exists() and source.parent.exists():
                target.rename(source)
            else:
                # The new name did not last, and the old one's folder is gone.
                _lost(target)
            if before is not None:
                target.write_bytes(before)

        self._undo.append((target.parent, undo))
        if source in self._synced_bytes:
            self._synced_bytes[target] = self._synced_bytes.pop(source)

    def _syncing(self, descriptor: int, path: Path) -> None:
        if path.is_dir():
            self._undo = [(folder, undo) for folder, undo in self._undo if folder != path]
        else:
            self._synced_bytes[path] = os.fstat(descriptor).st_size

    def _lose_power(self) -> None:
        for path, size_bytes in self._synced_bytes.items():
            if path.exists() and path.stat().st_size > size_bytes:
                os.truncate(path, size_bytes)
        for _, undo in reversed(self._undo):
            undo()


MOVES = ("replace", "rename")


def _lost(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _removed(path: Path) -> None:
    if path.is_dir() and not any(path.iterdir()):
        path.rmdir()


def _general(path: Path, root: Path) -> str:
    """Return a path in the run without its digests."""
    parts = path.relative_to(root).parts if root in (path, *path.parents) else path.parts
    return "/".join("ID" if len(p.split(".")[0]) == 16 else p for p in parts) or "."
