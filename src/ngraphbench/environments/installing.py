"""How an environment is filled: a venv of this interpreter, then uv where there is one, or pip."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ngraphbench.environments.pipsettings import Pip, PipSettings, own_pip, read_settings
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.redaction import own_redaction

__all__ = ["Installer", "Observe", "find_uv"]

Observe = Callable[[str], None]
"""Takes a line for people on what goes on."""

LONGEST_S = 7200.0
LAST_WORDS = 12
POLL_MS = 200
STOP_S = 5.0
UNENDED = 124

_START = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(sys.argv[1]):
    sys.exit("Who asked for it is gone.")
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]}: {error}")
"""
"""Becomes the program it is given, once the kernel ends that with the process which asked for it.

A ``preexec_fn`` would do so between fork and exec, where a lock of another thread hangs it.
"""

_NOISE = re.compile(r"\[notice\]|^\s*$|^WARNING: (Running pip as|You are using pip|Location )")
_ASIDE = re.compile(r"^(Ignoring|Looking in|Using Python|Requirement already|Processing| [+-] )")
"""What is no step of the work, and so is kept but not told."""


def find_uv() -> str | None:
    """Return the path of uv: on PATH, or beside this interpreter."""
    return shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))


@dataclass(slots=True)
class Installer:
    """Makes and fills the environment in ``folder``, which is there and empty.

    ``observe`` gets a line for what goes on, ``stop`` is asked meanwhile: KeyboardInterrupt
    where it comes true. ``variables`` are added to those of every program that is run, and
    ``pass_fds`` stay open in them. ``words`` is all that was printed.
    """

    folder: Path
    observe: Observe
    stop: Callable[[], bool] = lambda: False
    variables: Mapping[str, str] = field(default_factory=dict)
    pass_fds: Sequence[int] = ()
    uv: str | None = field(default_factory=find_uv)
    words: list[str] = field(default_factory=list)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def make(self, requirements: Sequence[str], *, whole: bool = False) -> str:
        """Return the name of the tool that installed the first text that can be solved.

        ``whole``: nothing is added to what a text names.

        Raises EnvironmentFailed with the last words of the last try.
        """
        pip = own_pip()
        settings = read_settings(pip)
        if pip is not None and not pip.reaches_elsewhere:
            pip = None
        self.observe("making a virtual environment")
        self._venv(with_pip=not (self.uv or pip))
        scratch = self.folder / "tmp"
        scratch.mkdir()
        try:
            for number, text in enumerate(requirements, 1):
                path = scratch / f"requirements-{number}.txt"
                path.write_text(text, encoding="utf-8")
                self.observe("installing")
                command, variables = self.command(path, pip, settings)
                if self._run([*command, *(["--no-deps"] if whole else [])], variables) == 0:
                    return "uv" if self.uv else "pip"
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        raise EnvironmentFailed(
            f"{'uv' if self.uv else 'pip'} could not install it:\n{self.last_words()}",
            reason="install",
            hint="Its index, constraints and proxy are those of your own pip: `pip config list`.",
        )

    def command(
        self, requirements: Path, pip: Pip | None, settings: PipSettings
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command that installs, and its whole environment.

        ``pip`` is the user's own, where it can install elsewhere; else the environment has one.
        """
        outer = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        outer |= {"TMPDIR": str(requirements.parent), "NO_COLOR": "1", **self.variables}
        given = ["-r", str(requirements)]
        if self.uv:
            # What the user told uv itself comes first.
            told = {k: v for k, v in settings.uv_variables().items() if k not in os.environ}
            outer |= {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
            words = ["--python", str(self.python), *settings.uv_arguments()]
            # Compilers write into their own folders: links into a cache would change it.
            words += ["--link-mode=copy", "--compile-bytecode", *given]
            return [self.uv, "pip", "install", *words], outer | told
        kept = () if settings.known else ("PIP_CONFIG_FILE",)
        outer = {k: v for k, v in outer.items() if not k.startswith("PIP_") or k in kept}
        outer |= {"PIP_NO_INPUT": "1", "PIP_PROGRESS_BAR": "off", "PIP_USER": "0"}
        outer |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        words = (
            [*pip.command, "--python", str(self.python)] if pip else [str(self.python), "-m", "pip"]
        )
        return [*words, "install", *given], settings.pip_variables() | outer

    def last_words(self) -> str:
        """Return the end of what was printed."""
        told = [line for line in self.words if not _NOISE.search(line)]
        return "\n".join(told[-LAST_WORDS:]) or "It said nothing."

    def _venv(self, *, with_pip: bool) -> None:
        words = [] if with_pip else ["--without-pip"]
        base = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        command = [sys.executable, "-m", "venv", *words, str(self.folder)]
        if self._run(command, base | dict(self.variables)):
            raise EnvironmentFailed(
                f"{sys.executable} could not make a virtual environment:\n{self.last_words()}",
                reason="venv",
                hint="Install uv, or your system's package of `venv` (python3-venv).",
            )

    def _run(self, command: Sequence[str], variables: Mapping[str, str]) -> int:
        """Return the exit code, not 0 for what did not end in time; every line is kept, and told.

        However this process ends, nobody goes on installing.
        """
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(variables),
            pass_fds=tuple(self.pass_fds),
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            self._follow(process.stdout)
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            return UNENDED
        finally:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()

    def _follow(self, output: IO[bytes]) -> None:
        poll = select.poll()
        poll.register(output, select.POLLIN)
        deadline = time.monotonic() + LONGEST_S
        held = b""
        while True:
            if self.stop():
                raise KeyboardInterrupt
            if time.monotonic() > deadline:
                self.words.append(f"It did not end within {LONGEST_S / 3600:g} hours.")
                return
            if not poll.poll(POLL_MS):
                continue
            part = os.read(output.fileno(), 1 << 16)
            *lines, held = (held + part).replace(b"\r", b"\n").split(b"\n")
            for line in [*lines, held] if not part else lines:
                self._tell(line.decode("utf-8", "replace").rstrip())
            if not part:
                return

    def _tell(self, line: str) -> None:
        line = own_redaction().text(line)
        self.words.append(line)
        if line and not _NOISE.search(line) and not _ASIDE.search(line):
            self.observe(line.strip())
