"""A program that runs between requests."""

from __future__ import annotations

import socket

from ngraphbench.plugin import Program
from ngraphbench.types import Arrays
from ngraphbench.worker.busy import Busy, is_asked


class Ticking(Program):
    """Each call takes 0.3 ms of a clock that nothing else moves."""

    def __init__(self, fail_at: int = -1) -> None:
        self.ns = 0
        self.calls = 0
        self.fail_at = fail_at

    def load(self, inputs: Arrays) -> None: ...

    def run(self) -> None:
        self.ns += 300_000
        self.calls += 1
        if self.calls == self.fail_at:
            raise SystemExit(4)

    def outputs(self) -> Arrays:
        return {}

    def close(self) -> None: ...


def test_a_step_lasts_a_millisecond() -> None:
    program = Ticking()
    busy = Busy(lambda: program.ns)
    assert not busy.step()
    busy.start(program)
    assert busy.step() and program.calls == 4
    assert busy.step()
    assert busy.stop() == {"calls": 8, "seconds": 0.0024, "error": ""}
    assert not busy.step()
    assert program.calls == 8


def test_starting_again_counts_anew() -> None:
    program = Ticking()
    busy = Busy(lambda: program.ns)
    busy.start(program)
    busy.step()
    busy.start(program)
    assert busy.stop()["calls"] == 0


def test_what_it_raises_ends_it_and_is_told() -> None:
    program = Ticking(fail_at=6)
    busy = Busy(lambda: program.ns)
    busy.start(program)
    assert busy.step()
    assert not busy.step() and not busy.step()
    assert busy.stop()["error"] == "SystemExit: 4"


def test_a_request_or_the_end_of_the_stream_is_seen() -> None:
    ours, theirs = socket.socketpair()
    assert not is_asked(theirs)
    ours.send(b"x")
    assert is_asked(theirs)
    theirs.recv(1)
    assert not is_asked(theirs)
    ours.close()
    assert is_asked(theirs)
    theirs.close()
