"""A desk at the end of a pipe: messages come on stdin, answers and events go to stdout.

``python -m ngraphbench.engines.doorstep FOLDER`` is what a client starts on a board through ssh.
When stdin ends, all that runs is ended; whoever started it removes the folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

from ngraphbench.engines.desk import Desk
from ngraphbench.types import Json

__all__ = ["main"]


def main(root: Path) -> int:
    """Serve until stdin ends; return the exit code."""
    # Whatever else prints here must not be taken for a message.
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def tell(message: Json) -> None:
        with lock, suppress(OSError, ValueError):
            told.write(json.dumps(message) + "\n")
            told.flush()

    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        # What is made or learned here goes with the folder.
        os.environ[name] = str(root / name.lower())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    desk = Desk(root, tell)
    tell({"event": "ready"})
    with os.fdopen(0, "rb") as heard:
        for line in heard:
            message = json.loads(line)
            tell({"id": message["id"], **desk.answer(message)})
    desk.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
