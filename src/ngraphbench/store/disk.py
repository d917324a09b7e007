"""Writing that survives a crash: a file appears whole, an append is complete or cut off.

Everything a run keeps is written here, and with calls of ``os`` alone: the tests put another
module in its place that fails, or kills, at each of them in turn.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ngraphbench.errors import StoreError

__all__ = [
    "DISK",
    "append_synced",
    "copy_folder",
    "cut_to",
    "cut_torn_line",
    "make_folders",
    "move",
    "open_lock",
    "replaced",
    "replaced_text",
    "sign_lock",
    "sync_file",
    "trouble",
    "write_whole",
    "writing",
]

DISK = "disk"
"""The reason of what only a person can cure: no space, no permission."""

_CURED_BY_PEOPLE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
    | {errno.ENAMETOOLONG, errno.EMFILE, errno.ENFILE, errno.EFBIG, errno.ESTALE}
)

_BLOCK_BYTES = 1 << 16
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Tell of an OSError within as a StoreError about ``path``."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}.",
            reason=DISK,
            hint="Free some space or fix the permissions, then run again to go on.",
        ) from error


def trouble(error: OSError, *, what: str = "The output, or a file,") -> StoreError | None:
    """Return what to tell of an error of the system that only a person can cure.

    That is a full or broken disk, a folder that may not be written, too many open files; None
    for all else, which is a fault of this package. ``what`` is said where the system names no file.
    """
    if error.errno not in _CURED_BY_PEOPLE:
        return None
    return StoreError(
        f"{error.filename or what} cannot be read or written: {error.strerror}.",
        reason=DISK,
        hint="Free some space or fix the permissions, then run again: finished epochs are kept.",
    )


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace the file at ``path`` by ``content``: readers see the old file or the new one.

    It is on disk when this returns. Raises StoreError; the old file is there then.
    """
    data = _encoded(content) if isinstance(content, str) else content
    with writing(path), replaced(path) as partial, _opened(partial, _NEW) as descriptor:
        _write(descriptor, data)


def _encoded(text: str) -> bytes:
    try:
        # The bytes of names of files that are in no encoding.
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def copy_folder(source: Path, partial: Path) -> None:
    """Copy a folder, and leave nothing where that fails. Raises OSError.

    What others must see whole is copied beside its place, and then moved there.
    """
    try:
        shutil.copytree(source, partial)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, shutil.Error):
            # It tells of each file, and in words alone.
            raise OSError(0, str(error.args[0][0][2])) from error
        raise


@contextmanager
def replaced(path: Path, *, mark: str = "part") -> Iterator[Path]:
    """Yield the path of a file that takes the place of ``path``, whole, when this ends.

    What is there stays where an error ends this, and nothing lies beside it then. ``mark`` ends
    the name of the file until then. Raises OSError.
    """
    partial = path.with_name(f"{path.name}.{mark}")
    try:
        yield partial
        with _opened(partial, os.O_WRONLY | os.O_CLOEXEC) as descriptor:
            os.fsync(descriptor)
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise
    _sync_folder(path.parent)


@contextmanager
def replaced_text(path: Path, *, mark: str = "part") -> Iterator[IO[str]]:
    """Yield a file to be written in UTF-8, for what is too long to be held: see ``replaced``.

    What UTF-8 cannot hold, as names of files that are in no encoding, becomes a question mark.
    """
    with replaced(path, mark=mark) as partial, _opened(partial, _NEW) as descriptor:
        raw = _Raw(descriptor)
        buffered = io.BufferedWriter(raw, _BLOCK_BYTES)
        file = io.TextIOWrapper(buffered, encoding="utf-8", errors="replace", newline="")
        try:
            yield file
            file.flush()
        finally:
            raw.is_over = True


class _Raw(io.RawIOBase):
    """A descriptor as a stream: ``os.fdopen`` would write past the functions of this module."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.is_over = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        # What an error left in buffers must not reach a file that has this number later.
        if not self.is_over:
            _write(self._descriptor, data)
        return memoryview(data).nbytes


def append_synced(path: Path, data: bytes) -> None:
    """Append ``data`` and return when it is on disk.

    Raises StoreError: then a part of it may be there, without its end.
    """
    is_new = not path.exists()
    with writing(path):
        with _opened(path, _APPEND) as descriptor:
            _write(descriptor, data)
            os.fsync(descriptor)
        if is_new:
            _sync_folder(path.parent)


def cut_torn_line(path: Path) -> None:
    """Remove what follows the last line break of a file; a missing file stays missing.

    Raises StoreError.
    """
    with writing(path):
        try:
            file = path.open("rb")
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
            cut_to(path, keep)


def cut_to(path: Path, size_bytes: int) -> None:
    """Cut a file that is longer than ``size_bytes``; it must be there and writable.

    Raises StoreError.
    """
    with writing(path), _opened(path, os.O_WRONLY | os.O_CLOEXEC) as descriptor:
        if os.fstat(descriptor).st_size > size_bytes:
            os.ftruncate(descriptor, size_bytes)
            os.fsync(descriptor)


def make_folders(path: Path) -> None:
    """Make a folder and those above it that are missing; they last. Raises StoreError."""
    with writing(path):
        _make_folders(path)


def _make_folders(path: Path) -> None:
    if path.is_dir():
        return
    if path.parent != path:
        _make_folders(path.parent)
    with suppress(FileExistsError):
        os.mkdir(path)
    _sync_folder(path.parent)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{path.name} is a file", str(path))


def move(source: Path, target: Path) -> None:
    """Give a file or folder another place; it stays there. Raises StoreError."""
    make_folders(target.parent)
    with writing(target):
        os.rename(source, target)
        _sync_folder(target.parent)
        _sync_folder(source.parent)


def sync_file(path: Path) -> None:
    """Return when what was written to a file is on disk. Raises StoreError."""
    with writing(path), _opened(path, os.O_WRONLY | os.O_CLOEXEC) as descriptor:
        os.fsync(descriptor)


def open_lock(path: Path) -> int:
    """Return the descriptor of a file to be locked, made where missing. Raises StoreError."""
    with writing(path):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def sign_lock(path: Path, descriptor: int) -> None:
    """Leave this process's id in a lock that it holds. Raises StoreError."""
    with writing(path):
        os.ftruncate(descriptor, 0)
        _write(descriptor, f"{os.getpid()}\n".encode("ascii"))


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write(descriptor: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    # A regular file takes everything at once; a signal or a full disk may cut that short.
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_folder(folder: Path) -> None:
    with _opened(folder, _FOLDER) as descriptor:
        os.fsync(descriptor)
