"""The command line as a process of its own; as a script, the same with very short slots."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngraphbench.types import Json

__all__ = ["Done", "ngb", "records"]

Done = subprocess.CompletedProcess
PATIENCE_S = 420.0
ESCAPE = "\x1b"


def ngb(
    *arguments: object,
    cwd: Path,
    short: bool = False,
    env: Mapping[str, str] | None = None,
    check: int | None = None,
) -> Done[str]:
    """Return what one ``ngb`` command said; ``short`` measures next to nothing.

    Its host lock is private to ``cwd``, its width is 80 columns, and ``check`` is the exit
    code it must have.
    """
    folder = cwd / "tmp"
    folder.mkdir(exist_ok=True)
    start = [str(Path(__file__))] if short else ["-m", "ngraphbench"]
    done = subprocess.run(
        [sys.executable, *start, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "TMPDIR": str(folder), "COLUMNS": "80", **(env or {})},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert check is None or done.returncode == check, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert ESCAPE not in done.stdout + done.stderr
    return done


def records(done: Done[str]) -> list[Json]:
    """Return the records that a command printed: stdout is one JSON array."""
    found: Any = json.loads(done.stdout)
    assert isinstance(found, list)
    return found


def _shorten() -> None:
    from ngraphbench.profiles import MS, PROFILES

    quick = PROFILES["quick"]
    PROFILES["quick"] = dataclasses.replace(quick, rounds_min=2, rounds_max=3, slot_ns=5 * MS)


if __name__ == "__main__":
    from ngraphbench.cli import main

    _shorten()
    main()
