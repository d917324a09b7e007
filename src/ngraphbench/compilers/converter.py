"""A vendor's converter as a program of its own: run without a shell, heard in the worker's log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ngraphbench.errors import CompileFailed

__all__ = ["run_converter", "told"]

TOLD_LINES = 4


def run_converter(
    command: Sequence[str],
    *,
    folder: Path,
    name: str,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Return all that ``command`` printed. It runs in ``folder``; its words go on to stderr.

    ``name`` is the converter's, for messages; ``variables`` is its whole environment, ours
    unless given. Raises CompileFailed, with its last lines, when it cannot be started or ends
    with another code than zero.
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
    if done.returncode:
        how = f"code {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        raise CompileFailed(f"{name} ended with {how}: {told(text)}", reason="converter")
    return text


def told(text: str, *, lines: int = TOLD_LINES) -> str:
    """Return the last ``lines`` lines of a converter's output that hold words, on one line.

    >>> told("start\\n\\nno such operator\\n", lines=1)
    'no such operator'
    """
    kept = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(kept[-lines:]) or "it said nothing"
