"""Which session goes to which device next: bookkeeping alone, no process and no clock in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from ngraphbench.case import Session

__all__ = ["Dispatch", "Job", "Policy", "Verdict"]

Verdict = Literal["again", "given-up", "quarantined"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What is done about agents that die and devices that fail.

    A session is tried ``tries`` times on its device. A device that ``quarantine_after`` sessions
    in a row were given up on gets no more of them; one that is lost gets no more at once.
    """

    tries: int = 2
    quarantine_after: int = 3


@dataclass(frozen=True, slots=True)
class Job:
    """A session to run: ``whole`` is the planned one, ``session`` the part of it at hand."""

    session: Session
    whole: Session
    tries: int = 0

    @property
    def device(self) -> str:
        return self.session.device.name


@dataclass(slots=True)
class _Line:
    """One device: what waits for it, what runs on it, and how it did so far."""

    waiting: deque[Job] = field(default_factory=deque)
    running: Job | None = None
    failures: int = 0
    done: int = 0
    total: int = 0
    closed: bool = False


@dataclass(slots=True)
class Dispatch:
    """One session in flight per device, devices in parallel."""

    policy: Policy = field(default_factory=Policy)
    stopped: bool = False
    _lines: dict[str, _Line] = field(default_factory=dict)
    _ready: dict[str, None] = field(default_factory=dict)

    def add(self, sessions: Iterable[Session]) -> None:
        """Queue sessions for their devices, in the order given."""
        for session in sessions:
            line = self._lines.setdefault(session.device.name, _Line())
            line.waiting.append(Job(session, session))
            line.total += 1
            self._note(session.device.name)

    def begin(self) -> list[Job]:
        """Return the jobs that start now, one for each idle device that has some."""
        begun: list[Job] = []
        for name in () if self.stopped else tuple(self._ready):
            line = self._lines[name]
            line.running = line.waiting.popleft()
            begun.append(line.running)
        if begun:
            self._ready.clear()
        return begun

    def finish(self, device: str, rest: Session | None = None) -> None:
        """Take a job as done; ``rest`` is a further part of its session, which comes next."""
        line = self._lines[device]
        job, line.running, line.failures = line.running, None, 0
        if rest is not None and job is not None:
            line.waiting.appendleft(replace(job, session=rest, tries=0))
        else:
            line.done += 1
        self._note(device)

    def fail(self, device: str, *, lost: bool = False) -> Verdict:
        """Take a job as failed; return what becomes of it.

        ``again``: it is queued once more. ``given-up``: it is not. ``quarantined``: the device
        gets nothing more; ``drain`` has what waited for it.
        """
        line = self._lines[device]
        job, line.running = line.running, None
        assert job is not None
        if not lost and job.tries + 1 < self.policy.tries:
            line.waiting.appendleft(replace(job, tries=job.tries + 1))
            self._note(device)
            return "again"
        line.failures += 1
        line.done += 1
        if lost or line.failures >= self.policy.quarantine_after:
            line.closed = True
            self._ready.pop(device, None)
            return "quarantined"
        self._note(device)
        return "given-up"

    def drain(self, device: str) -> list[Job]:
        """Return what still waits for a device, and forget it."""
        line = self._lines[device]
        left = list(line.waiting)
        line.waiting.clear()
        line.done += len(left)
        self._ready.pop(device, None)
        return left

    def place(self, device: str) -> tuple[int, int]:
        """Return how many sessions of a device are over, and how many it has."""
        line = self._lines[device]
        return line.done, line.total

    @property
    def places(self) -> tuple[int, int]:
        """How many sessions are over and how many there are, on all devices."""
        lines = self._lines.values()
        return sum(line.done for line in lines), sum(line.total for line in lines)

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(self._lines)

    @property
    def running(self) -> tuple[Job, ...]:
        return tuple(line.running for line in self._lines.values() if line.running is not None)

    @property
    def waiting(self) -> int:
        """How many jobs are left."""
        return sum(len(line.waiting) for line in self._lines.values())

    def _note(self, device: str) -> None:
        line = self._lines[device]
        if line.waiting and line.running is None and not line.closed:
            self._ready[device] = None
