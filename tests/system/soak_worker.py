"""A worker in which something goes wrong: ``soak_worker.py FAULT [SHARED...] FD``.

It is of the standard library alone, starts in milliseconds and measures nothing: its answers are
made up, but for the outputs, which are the references that lie beside the model.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import sys
import time
from pathlib import Path

FAULTS = (
    *("none", "crash", "exit", "hang", "wrong", "leak", "children", "litter", "oom", "garbage"),
    *("flood", "compile-error", "unsupported", "closed"),
)
ON_RUN = ("crash", "exit", "hang", "leak", "oom", "garbage", "flood", "closed")
STEP_BYTES = 16 * 1024**2
LEAK_BYTES = 256 * 1024
LITTER = "ngb-soak-"


class Worker:
    def __init__(self, fault: str, sock: socket.socket) -> None:
        self.fault = fault
        self.sock = sock
        self.folder = ""
        self.which = "a"
        self.slots = 0
        self.held: list[bytes] = []

    def answer(self, request: dict) -> dict:
        op = request["op"]
        if op == "compile":
            self.folder = f"{request['root']}/b{request['batch']}"
            if self.fault in ("compile-error", "unsupported"):
                kind = "Unsupported" if self.fault == "unsupported" else "CompileFailed"
                error = {"type": kind, "message": "asked to", "reason": "soak"}
                return {"ok": False, "error": error}
            self.build()
        elif op == "load":
            self.which = request["set"]
        elif op == "outputs":
            # Those of the other inputs are wrong for these.
            which = {"a": "b", "b": "a"}[self.which] if self.fault == "wrong" else self.which
            shutil.copyfile(f"{self.folder}/reference-{which}.npz", request["path"])
        elif op == "slot":
            self.slots += 1
            if self.slots == 3:
                self.go_wrong()
            time.sleep(0.001)
        elif op not in ("hello", "import", "run", "close"):
            return {"ok": False, "error": {"type": "Unsupported", "message": f"no {op}"}}
        return {
            "ok": True,
            "pid": os.getpid(),
            "python": "",
            "version": "1",
            "packages": {},
            "variables": {},
            "seconds": 0.001,
            "ns": [10**7],
            "outputs": [],
            "calls": 5,
            "slot_ns": 5 * 10**6,
            "call_ns": 1e6 + self.slots,
            "first_ns": 10**6,
            "cpu_ns": 5 * 10**6,
            "nivcsw": 0,
            "sub_ns": [1e6] * 5,
            "rss_bytes": 10**7,
        }

    def build(self) -> None:
        if self.fault in ("children", "litter"):
            for place in (os.environ["HOME"], os.environ["TMPDIR"], *SHARED):
                Path(place, f"{LITTER}{os.getpid()}").write_text("left" * 1000)
        if self.fault == "children":
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(600)
                os._exit(0)
            os.wait()

    def go_wrong(self) -> None:
        if self.fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif self.fault == "exit":
            os._exit(3)
        elif self.fault == "hang":
            time.sleep(3600)
        elif self.fault == "oom":
            while True:
                self.held.append(b"\1" * STEP_BYTES)
        elif self.fault == "leak":
            self.held.append(b"\1" * LEAK_BYTES)
        elif self.fault == "garbage":
            self.sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        elif self.fault == "flood":
            os.write(1, b"y" * 3 * 1024**2)
        elif self.fault == "closed":
            # The stream holds the descriptor open beyond its close.
            self.sock.shutdown(socket.SHUT_RDWR)
            time.sleep(600)


SHARED = sys.argv[2:-1]
"""What is shared by all sessions, and is littered too: only where each sees its own."""


def main() -> None:
    sock = socket.socket(fileno=int(sys.argv[-1]))
    stream = sock.makefile("rb")
    worker = Worker(sys.argv[1], sock)
    while head := stream.read(4):
        request = json.loads(stream.read(struct.unpack(">I", head)[0]))
        body = json.dumps({**worker.answer(request), "id": request["id"]}).encode()
        sock.sendall(struct.pack(">I", len(body)) + body)
        if request["op"] == "close":
            return


if __name__ == "__main__":
    main()
