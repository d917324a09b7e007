"""A vendor's converter as a program of its own: run without a shell, heard in the worker's log."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ngraphbench.errors import CompileFailed

__all__ = ["ConvertedFiles", "heard", "run_converter", "told"]

TOLD_LINES = 4


def run_converter(
    command: Sequence[str],
    *,
    folder: Path,
    name: str,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Return all that ``command`` printed. It runs in ``folder``; its words go on to stderr.

    Raises CompileFailed, with its last lines, when it cannot be started or ends with another
    code than zero.
    """
    code, text = heard(command, folder=folder, name=name, variables=variables)
    if code:
        how = f"code {code}" if code > 0 else f"signal {-code}"
        raise CompileFailed(f"{name} ended with {how}: {told(text)}", reason="converter")
    return text


def heard(
    command: Sequence[str],
    *,
    folder: Path,
    name: str,
    variables: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Return the exit code of ``command`` and all that it printed, which goes on to stderr.

    ``name`` is the converter's, for messages; ``variables`` is its whole environment, ours
    unless given. Raises CompileFailed when it cannot be started.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except OSError as error:
        raise CompileFailed(f"{name} cannot be started: {error}.", reason="converter") from error
    text = done.stdout.decode(errors="replace")
    sys.stderr.write(text)
    sys.stderr.flush()
    return done.returncode, text


def told(text: str, *, lines: int = TOLD_LINES) -> str:
    """Return the last ``lines`` lines of a converter's output that hold words, on one line.

    >>> told("start\\n\\nno such operator\\n", lines=1)
    'no such operator'
    """
    kept = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(kept[-lines:]) or "it said nothing"


class ConvertedFiles:
    """What a converter wrote, in a temporary folder that goes with the program.

    ``names`` are the files that make the artefact; some may not be there.
    """

    def __init__(self, *names: str, prefix: str) -> None:
        self._names = names
        self._kept = tempfile.TemporaryDirectory(prefix=prefix)

    @property
    def folder(self) -> Path:
        return Path(self._kept.name)

    def write(self, folder: Path) -> None:
        """Copy the artefact to ``folder``."""
        self._copy(self.folder, folder)

    def read(self, folder: Path) -> None:
        """Take over an artefact that ``write`` left in ``folder``."""
        self._copy(folder, self.folder)

    def remove(self) -> None:
        """Remove the folder; may be called twice."""
        self._kept.cleanup()

    def _copy(self, source: Path, target: Path) -> None:
        for name in self._names:
            if (source / name).is_file():
                shutil.copyfile(source / name, target / name)
