"""A session's agent as a child process: started, listened to, stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ngraphbench.agent import EXIT_INTERRUPTED, RECORDS
from ngraphbench.case import Session
from ngraphbench.engines.base import Interrupted
from ngraphbench.errors import ClusterError, NGraphBenchError, StoreError
from ngraphbench.session.proctree import signal_name
from ngraphbench.store.disk import DISK, make_folders, write_whole, writing
from ngraphbench.types import Json

__all__ = ["AgentProcess", "outcome_of", "write_message"]

FORCE_AFTER = 3


def write_message(run: Path, session: Session, spool: Path, **more: object) -> Path:
    """Return the file that tells an agent which session to run, written into its spool.

    ``more`` is what else ``agent.run`` is told.
    """
    make_folders(spool)
    message = spool / "message.json"
    write_whole(message, json.dumps({"run": str(run), "session": session.to_json(), **more}))
    return message


class AgentProcess:
    """The agent of one session. It dies with the thread that made it.

    ``before`` stands before its command, such as what confines it. ``failure`` is what it told
    of its end, where that was not a good one.
    """

    def __init__(self, message: Path, log: Path, *, before: Sequence[str] = ()) -> None:
        with writing(log):
            output = log.open("ab")
        reading, telling = os.pipe()
        with output:
            self._process = subprocess.Popen(
                [*before, sys.executable, "-m", "ngraphbench.agent", str(message), str(telling)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(telling,),
                # Its own session: the terminal's Ctrl-C must reach the client alone.
                start_new_session=True,
            )
        os.close(telling)
        self._events = reading
        self._asked = 0
        self.failure: NGraphBenchError | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def follow(self, emit: Callable[[Json], None]) -> int:
        """Hand every event to ``emit``; return the agent's exit code once it is gone."""
        try:
            with os.fdopen(self._events, encoding="utf-8", errors="replace") as events:
                for line in events:
                    # A killed agent may leave half a line.
                    with suppress(ValueError):
                        event = json.loads(line)
                        if event.get("event") == "failed":
                            # What is full stays full: trying again does not help.
                            kind = StoreError if event["reason"] == DISK else ClusterError
                            self.failure = kind(event["message"], reason=event["reason"])
                        emit(event)
                return self._process.wait()
        finally:
            # Whatever ended this, nothing goes on behind the client's back.
            self._process.kill()
            self._process.wait()

    def interrupt(self) -> None:
        """Ask it to stop: once after the slot, twice at once; a third time by force."""
        self._asked += 1
        with suppress(ProcessLookupError):
            self._process.send_signal(
                signal.SIGKILL if self._asked >= FORCE_AFTER else signal.SIGINT
            )


def outcome_of(
    spool: Path, code: int, *, stopped: bool, failure: NGraphBenchError | None = None
) -> Json:
    """Return what an agent that ended with ``code`` left in its spool.

    Raises Interrupted when it was stopped, ``failure`` when it told one, ClusterError when it left
    nothing.
    """
    outcome = spool / RECORDS
    if code == EXIT_INTERRUPTED or (stopped and not outcome.exists()):
        raise Interrupted
    if failure is not None and not outcome.exists():
        raise failure
    if not outcome.exists():
        tail = (spool / "agent.log").read_text(errors="replace").strip().splitlines()[-15:]
        raise ClusterError(
            f"The agent ended with {_exit_text(code)} and left no records.",
            reason="agent",
            hint="Run again to go on after the last finished epoch.\n" + "\n".join(tail),
        )
    result: Json = json.loads(outcome.read_text(encoding="utf-8"))
    return result


def _exit_text(code: int) -> str:
    if code < 0:
        return f"signal {signal_name(-code)}"
    return f"exit code {code}"
