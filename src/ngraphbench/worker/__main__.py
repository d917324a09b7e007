"""``python -m ngraphbench.worker FD``: a worker on an inherited socket."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ngraphbench.worker.loop import Operation, serve
from ngraphbench.worker.protocol import adopt

__all__ = ["die_with_parent", "main", "settle"]

_PR_SET_PDEATHSIG = 1


def main(fd: int, operations: Mapping[str, Operation] | None = None) -> None:
    """Serve on descriptor ``fd``, then end the process with exit code 0. Never returns."""
    sock = adopt(fd)
    settle(sock)
    serve(sock, operations)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    # Vendors' exit handlers hang or crash now and then; everything is said by now.
    os._exit(0)


def settle(sock: socket.socket) -> None:
    """Make this process die with its parent, be the first to go when memory ends, dump no core.

    Ends the process at once when the parent is gone already.
    """
    die_with_parent()
    # The parent may have died before that call: then its end of the socket is closed.
    with suppress(BlockingIOError):
        if not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            os._exit(0)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(Exception):
        faulthandler.enable()


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
