"""How a lock is solved anew: uv looks for versions that suit every Python and platform."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile

from ngraphbench.environments.installing import find_uv
from ngraphbench.environments.pipsettings import own_pip, read_settings
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.locks import Lock

__all__ = ["solve"]

LONGEST_S = 900.0
LEAST_PYTHON = "3.10"
_ELSEWHERE = re.compile(r";(?!.* or ).*sys_platform == '(win32|darwin|emscripten|never)'")

HEADER = "# Made from {name}.in by `ngb env lock {name}`. Every supported Python, Linux.\n"


def solve(lock: Lock) -> str:
    """Return the text of a lock: exact versions with markers, no hashes, no index.

    Local labels such as ``+cpu`` are left out: the user's index decides on the build. Raises
    EnvironmentFailed without uv, and with its last words where there is no solution.
    """
    uv = find_uv()
    if uv is None:
        raise EnvironmentFailed(
            "A lock for every Python is solved by uv, which is not here.",
            reason="no-uv",
            hint="Install it (`pip install uv`) and try again.",
        )
    settings = read_settings(own_pip())
    least = ".".join(map(str, lock.least_python)) or LEAST_PYTHON
    words = ["--universal", f"--python-version={least}", "--no-header", "--no-annotate"]
    words += ["--no-strip-extras", "--no-progress", *settings.uv_arguments(), "-"]
    # Under a marker that never holds, a distribution and all it asks for stay away.
    never = [f"{name} ; sys_platform == 'never'\n" for name in lock.without]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as overrides:
        overrides.writelines(never)
        overrides.flush()
        done = subprocess.run(
            [uv, "pip", "compile", *([f"--overrides={overrides.name}"] if never else []), *words],
            input=f"{lock.wanted}\nnumpy\n",
            capture_output=True,
            check=False,
            text=True,
            timeout=LONGEST_S,
            cwd=lock.folder,
            env={**os.environ, **settings.uv_variables(), "UV_PYTHON_DOWNLOADS": "never"},
        )
    if done.returncode:
        tail = "\n".join(done.stderr.strip().splitlines()[-12:])
        raise EnvironmentFailed(f"{lock.name} cannot be solved:\n{tail}", reason="solve")
    lines = [
        re.sub(r"(==[^\s;+]+)\+[^\s;]+", r"\1", line)
        for line in done.stdout.splitlines()
        if line and not line.startswith(("#", "-", " ")) and not _ELSEWHERE.search(line)
    ]
    return HEADER.format(name=lock.name) + "\n".join(lines) + "\n"
