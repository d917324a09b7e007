"""A thread for each device, which carries its sessions; what they report comes to one place."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from ngraphbench.dispatch import Job
from ngraphbench.engines.base import Engine
from ngraphbench.types import Json

__all__ = ["Crew", "Report"]

FORCE = 3


class Report(NamedTuple):
    """What a device tells: an event, the outcome of its job, or why there is none."""

    job: Job
    event: Json | None = None
    outcome: Json | None = None
    error: BaseException | None = None


class Crew:
    """Runs jobs, those of one device in one thread: an agent dies with the thread that started it.

    Use it as a context manager: at its end nothing runs any more.
    """

    def __init__(self, engine: Engine, run: Path) -> None:
        self._engine = engine
        self._run = run
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._inboxes: dict[str, queue.SimpleQueue[Job | None]] = {}
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            for _ in range(FORCE):
                self._engine.interrupt()
        for inbox in self._inboxes.values():
            inbox.put(None)
        for thread in self._threads:
            thread.join()

    def start(self, job: Job) -> None:
        """Hand a job to its device's thread."""
        inbox = self._inboxes.get(job.device)
        if inbox is None:
            inbox = self._inboxes[job.device] = queue.SimpleQueue()
            thread = threading.Thread(target=self._work, args=(inbox,), name=job.device)
            self._threads.append(thread)
            thread.start()
        inbox.put(job)

    def next(self, patience_s: float | None = None) -> Report | None:
        """Return the next report, None when there was none in ``patience_s`` seconds."""
        with suppress(queue.Empty):
            return self._reports.get(timeout=patience_s)
        return None

    def _work(self, inbox: queue.SimpleQueue[Job | None]) -> None:
        while (job := inbox.get()) is not None:
            try:
                outcome = self._engine.submit(job.session, self._run, self._teller(job))
            except BaseException as error:  # the main thread decides what it means
                self._reports.put(Report(job, error=error))
            else:
                self._reports.put(Report(job, outcome=outcome))

    def _teller(self, job: Job) -> Callable[[Json], None]:
        return lambda event: self._reports.put(Report(job, event=event))
