"""Files that the user named: where they are, and a digest of what is in them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from ngraphbench.errors import SpecError
from ngraphbench.models.onnxfile import similar_files

__all__ = ["absolute_path", "digest_file", "existing_file"]

_CHUNK_BYTES = 1 << 20


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
    return Path(os.path.normpath(base.absolute() / Path(text).expanduser()))


def existing_file(text: str, *, base: Path, what: str) -> Path:
    """Return the absolute path of a file that is there. Raises SpecError."""
    path = absolute_path(text, base=base)
    if not path.is_file():
        raise SpecError(
            f"There is no {what} {str(path)!r}.", reason="missing", hint=similar_files(path)
        )
    return path
