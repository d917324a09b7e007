"""Files that the user named: where they are, and a digest of what is in them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from ngraphbench.errors import SpecError
from ngraphbench.places import expanded

__all__ = ["absolute_path", "digest_file", "existing_file", "readable", "similar_files"]

_CHUNK_BYTES = 1 << 20

P = ParamSpec("P")
R = TypeVar("R")


def readable(look: Callable[P, R]) -> Callable[P, R]:
    """Return ``look`` with a SpecError for what the system does not let it read.

    That is a file or folder without permission, a name that is too long, a broken disk.
    """

    @wraps(look)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return look(*args, **kwargs)
        except OSError as error:
            name = str(error.filename or "A file of the model")
            shown = name if len(name) < 200 else f"{name[:120]}...{name[-40:]}"
            raise SpecError(
                f"{shown} cannot be read: {error.strerror or error}.", reason="unreadable"
            ) from error

    return told


def digest_file(path: Path) -> str:
    """Return the sha256 of the file's bytes as 64 hex digits, read in pieces."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            found.update(piece)
    return found.hexdigest()


def absolute_path(text: str, *, base: Path) -> Path:
    """Return the path that ``text`` is, from ``base``; links are not followed."""
    # External data lies beside the link, not beside what it points to.
    return Path(os.path.normpath(base.absolute() / expanded(text)))


def existing_file(text: str, *, base: Path, what: str) -> Path:
    """Return the absolute path of a file that is there. Raises SpecError."""
    path = absolute_path(text, base=base)
    if not path.is_file():
        raise SpecError(
            f"There is no {what} {str(path)!r}.", reason="missing", hint=similar_files(path)
        )
    return path


def similar_files(path: Path) -> str:
    """Return a hint with the names in the folder of ``path`` that are most like its own."""
    folder = path.parent
    if not folder.is_dir():
        return f"The folder {str(folder)!r} does not exist either."
    names = sorted(p.name for p in folder.iterdir() if p.is_file())
    close = get_close_matches(path.name, names, n=3, cutoff=0.5)
    close = close or [n for n in names if n.endswith(path.suffix or ".onnx")][:5]
    if close:
        return f"The folder has: {', '.join(close)}."
    return f"The folder {str(folder)!r} has no {path.suffix or '.onnx'} file."
