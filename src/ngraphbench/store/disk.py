"""Writing that survives a crash: a file appears whole, an append is complete or cut off."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["append_synced", "cut_torn_line", "write_whole"]

_BLOCK_BYTES = 1 << 16


def write_whole(path: Path, text: str) -> None:
    """Replace the file at ``path`` by ``text``: readers see the old file or the new one."""
    partial = path.with_name(f"{path.name}.part")
    with partial.open("wb") as file:
        file.write(text.encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    _sync_folder(path.parent)


def append_synced(path: Path, data: bytes) -> None:
    """Append ``data`` in one write and return when it is on disk."""
    is_new = not path.exists()
    with path.open("ab", buffering=0) as file:
        view = memoryview(data)
        # A regular file takes everything at once; a signal may still cut the write short.
        while view:
            view = view[file.write(view) or 0 :]
        os.fsync(file.fileno())
    if is_new:
        _sync_folder(path.parent)


def cut_torn_line(path: Path) -> None:
    """Remove what follows the last line break of a file; a missing file stays missing."""
    try:
        file = path.open("r+b")
    except FileNotFoundError:
        return
    with file:
        end = keep = file.seek(0, os.SEEK_END)
        while keep > 0:
            start = max(0, keep - _BLOCK_BYTES)
            file.seek(start)
            at = file.read(keep - start).rfind(b"\n")
            keep = start + at + 1
            if at >= 0:
                break
        if keep < end:
            file.truncate(keep)
            os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
