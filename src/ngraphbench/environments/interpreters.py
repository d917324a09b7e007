"""Interpreters: what one is, and which distributions it can import."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ngraphbench.case import digest
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.locks import plain_name

__all__ = ["Interpreter", "distributions_in", "find_python", "inspect_python", "interpreter_tag"]

INSPECT_S = 60.0

_TELL = """
import importlib.metadata as m, json, platform, sys, sysconfig
found = {}
for d in m.distributions():
    name = d.metadata["Name"]
    if name and name not in found:
        found[name] = d.version
print(json.dumps({
    "tag": "-".join((platform.python_implementation().lower(), platform.python_version(),
                     sysconfig.get_platform())),
    "python": platform.python_version(),
    "virtual": sys.prefix != sys.base_prefix,
    "distributions": found,
}))
"""
_FOLDER = re.compile(r"(.+?)-([^-]+)\.(?:dist-info|egg-info)")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter as it says itself: ``tag``, Python version, what it can import.

    ``virtual``: it belongs to a virtual environment.
    """

    path: str
    tag: str
    python: str
    virtual: bool
    distributions: dict[str, str]

    @property
    def id(self) -> str:
        """16 hex digits: another one where anything was installed or removed."""
        return digest([self.path, self.tag, self.distributions])[:16]


def interpreter_tag() -> str:
    """Return what this interpreter is: ``cpython-3.11.7-linux-x86_64``."""
    kind = platform.python_implementation().lower()
    return "-".join((kind, platform.python_version(), sysconfig.get_platform()))


def find_python(place: Path) -> Path:
    """Return the interpreter at ``place``: an environment's folder, or an interpreter itself.

    Raises EnvironmentFailed when there is none.
    """
    tries = [place / "bin" / "python", place / "bin" / "python3"] if place.is_dir() else [place]
    for path in tries:
        if path.is_file() and os.access(path, os.X_OK):
            return path
    raise EnvironmentFailed(
        f"There is no Python at {place}: {tries[0]} is not there, or cannot be run.",
        reason="no-python",
        hint="Name the folder of an environment, or the interpreter itself.",
    )


def inspect_python(place: Path) -> Interpreter:
    """Return what the interpreter at ``place`` is. Raises EnvironmentFailed."""
    python = find_python(place)
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [str(python), "-c", _TELL],
            capture_output=True,
            check=False,
            text=True,
            timeout=INSPECT_S,
            env=variables,
            cwd="/",
        )
        told = json.loads(done.stdout.strip().splitlines()[-1]) if not done.returncode else None
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        raise _silent(python, str(error)) from error
    if told is None:
        raise _silent(python, (done.stderr.strip().splitlines() or ["no word"])[-1])
    plain = {plain_name(name): version for name, version in told.pop("distributions").items()}
    return Interpreter(path=str(python), distributions=dict(sorted(plain.items())), **told)


def distributions_in(folder: Path) -> dict[str, str]:
    """Return name and version of what is installed in an environment, read from its files."""
    found = {}
    for site in _sites(folder):
        for path in site.iterdir():
            if match := _FOLDER.fullmatch(path.name):
                found[plain_name(match[1])] = match[2]
    return dict(sorted(found.items()))


def _sites(folder: Path) -> Iterator[Path]:
    for pattern in ("lib/python*/site-packages", "lib64/python*/site-packages"):
        yield from folder.glob(pattern)


def _silent(python: Path, why: str) -> EnvironmentFailed:
    return EnvironmentFailed(
        f"{python} does not run as a Python of 3.10 or newer: {why}",
        reason="no-python",
        hint=f"Try `{python} --version`; this tool runs in {sys.version.split()[0]}.",
    )
