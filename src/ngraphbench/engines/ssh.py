"""A board on the desk, reached by the system's ssh: no set-up there, and nothing left behind."""

from __future__ import annotations

import json
import os
import queue
import shlex
import subprocess
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import IO
from urllib.parse import parse_qsl, urlsplit

from ngraphbench.engines.base import DeviceLost
from ngraphbench.engines.carrying import archive, start_command
from ngraphbench.errors import SpecError
from ngraphbench.types import Json

__all__ = ["SSH_VARIABLE", "Board", "SshLink", "parse_board"]

SSH_VARIABLE = "NGRAPHBENCH_SSH"
"""The command to use instead of ``ssh``, with its options."""

START_S = 900.0
"""For how long a board may take to start its desk: it may have to install packages first."""


@dataclass(frozen=True, slots=True)
class Board:
    """Where a board is: what ssh is told, and the Python to use there."""

    host: str
    port: int | None = None
    python: str = "python3"

    @property
    def command(self) -> list[str]:
        """The ssh command that starts a desk there."""
        ssh = shlex.split(os.environ.get(SSH_VARIABLE, "ssh"))
        port = ["-p", str(self.port)] if self.port else []
        options = ["BatchMode=yes", "ServerAliveInterval=15", "ServerAliveCountMax=8"]
        given = [part for option in options for part in ("-o", option)]
        return [*ssh, *given, *port, "--", self.host, start_command(self.python)]


def parse_board(text: str) -> Board:
    """Return the board of ``ssh://[USER@]HOST[:PORT][/ACCELERATOR][?python=PATH]``.

    Raises SpecError.
    """
    hint = "Write ssh://orin-1, ssh://user@10.0.0.5:2222 or ssh://orin-1?python=/opt/env/bin/python"
    try:
        parts = urlsplit(text)
        if parts.password is not None:
            raise SpecError(
                f"The address of {parts.hostname} holds a password; records would keep it.",
                key="devices",
                hint="Log in by a key; ssh's own configuration can name it.",
            )
        port = parts.port
    except ValueError as error:
        message = f"{text!r} is not a board's address: {error}."
        raise SpecError(message, key="devices", hint=hint) from error
    asked = dict(parse_qsl(parts.query))
    if parts.scheme != "ssh" or not parts.hostname or set(asked) - {"python"}:
        raise SpecError(f"{text!r} is not a board's address.", key="devices", hint=hint)
    host = parts.netloc.rpartition(":")[0] if port else parts.netloc
    return Board(host, port, asked.get("python", "python3"))


class SshLink:
    """The link to a board. It is made at the first message, and anew when it broke."""

    def __init__(self, name: str, board: Board) -> None:
        self._name = name
        self._board = board
        self._events: queue.SimpleQueue[Json] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: dict[int, queue.SimpleQueue[Json | None]] = {}
        self._number = 0
        self._lock = threading.Lock()
        self._said: deque[str] = deque(maxlen=20)
        self._readers: list[threading.Thread] = []

    def events(self) -> queue.SimpleQueue[Json]:
        return self._events

    def ask(self, message: Json, *, patience_s: float) -> Json:
        """Return the answer to a message. Raises DeviceLost, with what ssh said."""
        answered: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._connect()
            self._number += 1
            number, process = self._number, self._process
            self._answers[number] = answered
            assert process is not None and process.stdin is not None
            try:
                process.stdin.write(json.dumps({"id": number, **message}).encode() + b"\n")
                process.stdin.flush()
            except OSError as error:
                raise self._lost("broke") from error
        try:
            found = answered.get(timeout=patience_s)
        except queue.Empty:
            raise self._lost(f"gave no answer within {patience_s:g} s") from None
        finally:
            self._answers.pop(number, None)
        if found is None:
            raise self._lost("broke")
        return found

    def close(self) -> None:
        """End the desk and wait until the board has removed what was brought there."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(90)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join(10)

    def _connect(self) -> None:
        self._said.clear()
        try:
            process = subprocess.Popen(
                self._board.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # The terminal's Ctrl-C must reach the client alone.
                start_new_session=True,
            )
        except OSError as error:
            message = f"ssh cannot be started: {error}."
            raise DeviceLost(message, reason="ssh", hint="Install an ssh client.") from error
        ready = threading.Event()
        assert process.stdin and process.stdout and process.stderr
        self._readers = [
            threading.Thread(target=self._hear, args=(process.stdout, ready), daemon=True),
            threading.Thread(target=self._listen, args=(process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        try:
            process.stdin.write(archive())
            process.stdin.flush()
        except OSError:
            process.wait(30)
        deadline = time.monotonic() + START_S
        while not ready.wait(0.1):
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                process.wait()
                self._readers[1].join(5)
                raise self._lost("could not be made")
        self._process = process

    def _hear(self, stdout: IO[bytes], ready: threading.Event) -> None:
        for line in stdout:
            try:
                message = json.loads(line)
            except ValueError:
                # A board's shell may greet before anything runs.
                self._said.append(line.decode(errors="replace").strip())
                continue
            if message.get("event") == "ready":
                ready.set()
            elif "id" in message:
                answered = self._answers.get(message.pop("id"))
                if answered is not None:
                    answered.put(message)
            else:
                self._events.put(message)
        stdout.close()
        for answered in list(self._answers.values()):
            answered.put(None)
        self._events.put({"event": "gone"})

    def _listen(self, stderr: IO[bytes]) -> None:
        for line in stderr:
            self._said.append(line.decode(errors="replace").strip())
        stderr.close()

    def _lost(self, what: str) -> DeviceLost:
        said = "\n".join(line for line in self._said if line)
        return DeviceLost(
            f"The link to {self._name} {what}.",
            reason="ssh",
            hint=f"ssh and the board said:\n{said}" if said else "Try `ssh` to it by hand.",
        )
