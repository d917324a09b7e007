"""Databases of searches: they go to a device with a session, and come back with more in them.

Which folders hold some is what compilers declare of their options (``Option.database``). A
compiler that keys its databases by processor and version finds what it searched for before on a
device of the same kind, whichever one that was.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from ngraphbench.case import Session
from ngraphbench.errors import ClusterError, NGraphBenchError
from ngraphbench.plugin import load_compiler
from ngraphbench.store.disk import copy_folder

__all__ = ["DATABASES", "databases_of", "files_below", "take_home"]

DATABASES = "databases"
"""Where they lie in a session's spool."""
LIMIT_BYTES = 1024**3
"""More than this is hardly a folder of databases alone."""

_TAKING = threading.Lock()


def databases_of(session: Session) -> dict[str, str]:
    """Return the folders that a session's options name, each with its place in the spool."""
    found: dict[str, str] = {}
    beside = [session.method.beside] if session.method.beside else []
    for compiler in (case.compiler for case in (*session.cases, *beside)):
        try:
            declared = load_compiler(compiler.target).options
        except NGraphBenchError:
            # What this side cannot import may be there on the device, with its own folders.
            continue
        for option in declared if compiler.options else ():
            named = str(compiler.options.get(option.name, ""))
            if option.database and Path(named).is_absolute():
                found[named] = f"{DATABASES}/{hashlib.sha256(named.encode()).hexdigest()[:16]}"
    return found


def files_below(folder: Path) -> list[Path]:
    """Return the files of a folder of databases. Raises ClusterError where they are too many."""
    found, size_bytes = [], 0
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or not path.is_file():
            continue
        found.append(path)
        size_bytes += path.stat().st_size
        if size_bytes > LIMIT_BYTES:
            raise ClusterError(
                f"{folder} holds more than {LIMIT_BYTES >> 20} MiB, which would all go along.",
                reason="database",
                hint="Give tuning databases a folder of their own.",
            )
    return found


def take_home(spool: Path, session: Session) -> None:
    """Put the databases that a device sent into ``spool`` where the session's options name them.

    Databases only grow: of two the larger one stays, whole. Raises OSError.
    """
    for named, name in databases_of(session).items():
        brought, kept = spool / name, Path(named).resolve()
        # Devices of one kind may come home with the same one.
        with _TAKING:
            for database in _databases_in(brought):
                _take(database, kept / database.relative_to(brought))


def _databases_in(folder: Path) -> Iterator[Path]:
    """Yield the outermost folders that hold files."""
    if not folder.is_dir():
        return
    entries = sorted(folder.iterdir())
    if any(entry.is_file() for entry in entries):
        yield folder
        return
    for entry in entries:
        yield from _databases_in(entry)


def _take(brought: Path, kept: Path) -> None:
    if _size_bytes(brought) <= _size_bytes(kept):
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial, old = (kept.with_name(f".{kept.name}-{secrets.token_hex(4)}") for _ in range(2))
    copy_folder(brought, partial)
    if kept.exists():
        kept.rename(old)
    partial.rename(kept)
    shutil.rmtree(old, ignore_errors=True)


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
