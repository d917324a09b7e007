"""A program that runs on and on between requests: the co-runner of what is measured.

It runs in the worker's main thread, as it does when it is measured; a request ends it.
"""

from __future__ import annotations

import select
import socket
import sys
import time
import traceback
from dataclasses import dataclass

from ngraphbench.plugin import Program
from ngraphbench.types import Json
from ngraphbench.worker.timing import Clock

__all__ = ["Busy", "is_asked"]

LOOK_NS = 1_000_000
"""How long it runs between looks at the socket, which cost a few microseconds."""


def is_asked(sock: socket.socket) -> bool:
    """Return whether a request, or the end of the stream, can be read without waiting."""
    return bool(select.select([sock], [], [], 0)[0])


@dataclass(slots=True)
class Busy:
    """What keeps a worker busy between requests; ``program`` None: nothing."""

    now: Clock = time.perf_counter_ns
    program: Program | None = None
    calls: int = 0
    spent_ns: int = 0
    error: str = ""

    def start(self, program: Program) -> None:
        """Run ``program`` from now on whenever nothing is asked."""
        self.program, self.calls, self.spent_ns, self.error = program, 0, 0, ""

    def stop(self) -> Json:
        """Return what was done since the start, and do no more."""
        self.program = None
        return {"calls": self.calls, "seconds": self.spent_ns / 1e9, "error": self.error}

    def step(self) -> bool:
        """Run the program for about a millisecond; False when there is nothing to run.

        What it raises ends it, and is told by ``stop``.
        """
        program = self.program
        if program is None:
            return False
        began = self.now()
        try:
            while True:
                program.run()
                program.sync()
                self.calls += 1
                spent_ns = self.now() - began
                if spent_ns >= LOOK_NS:
                    self.spent_ns += spent_ns
                    return True
        except BaseException as error:  # SystemExit too: a plugin must not end the worker
            traceback.print_exc(file=sys.stderr)
            self.program, self.error = None, f"{type(error).__name__}: {error}"
            return False
