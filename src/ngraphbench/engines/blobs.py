"""Files by their content: sent to a device once, verified, resumed where they broke off."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from ngraphbench.errors import ClusterError
from ngraphbench.models.localfile import digest_file

__all__ = ["BlobStore"]

_HEX = frozenset("0123456789abcdef")


class BlobStore:
    """The files of a device, each under its sha256; one that is not whole ends in ``.part``."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def received_bytes(self, digest: str) -> int | None:
        """Return how much of a file is here; None once it is whole."""
        if self._path(digest).exists():
            return None
        partial = self._partial(digest)
        return partial.stat().st_size if partial.exists() else 0

    def put(self, digest: str, offset: int, data: bytes, *, size: int) -> int | None:
        """Add ``data`` at ``offset`` and return what ``received_bytes`` does then.

        A piece that does not go on where the file ends is left out. Raises ClusterError when the
        whole is not what its digest says; it is then sent anew.
        """
        here = self.received_bytes(digest)
        if here is None or here != offset:
            return here
        self._root.mkdir(parents=True, exist_ok=True)
        partial = self._partial(digest)
        with partial.open("ab") as file:
            file.write(data)
            file.flush()
            if offset + len(data) >= size:
                os.fsync(file.fileno())
        if offset + len(data) < size:
            return offset + len(data)
        if digest_file(partial) != digest:
            partial.unlink()
            raise ClusterError(
                f"A file of {size} bytes arrived, but its content is not {digest[:16]}.",
                reason="transfer",
                hint="It is sent again at the next try.",
            )
        partial.chmod(0o444)
        partial.replace(self._path(digest))
        return None

    def adopt(self, path: Path) -> None:
        """Take a file of this device in, which is gone from where it was."""
        self._root.mkdir(parents=True, exist_ok=True)
        target = self._path(digest_file(path))
        path.chmod(0o444)
        path.replace(target)

    def place(self, files: Mapping[str, str], folder: Path) -> None:
        """Make ``files`` (relative path -> digest) appear in ``folder``. Raises ClusterError."""
        for name, digest in files.items():
            target = folder / name
            if folder.resolve() not in target.resolve().parents:
                raise ClusterError(f"{name!r} would lie outside its folder.", reason="transfer")
            if not self._path(digest).exists():
                raise ClusterError(
                    f"{name} was not sent yet.", reason="transfer", hint="Send it, then start."
                )
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(target.name + ".part")
            # A copy: what a compiler writes into its model must not reach the store.
            shutil.copyfile(self._path(digest), partial)
            partial.replace(target)

    def _path(self, digest: str) -> Path:
        if len(digest) != 64 or not _HEX.issuperset(digest):
            raise ClusterError(f"{digest[:80]!r} is no sha256.", reason="transfer")
        return self._root / digest

    def _partial(self, digest: str) -> Path:
        path = self._path(digest)
        return path.with_name(path.name + ".part")
