"""Who waits for a measurement stays asleep while it runs."""

from __future__ import annotations

import asyncio
import concurrent.futures
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ngraphbench.agent import _seldom
from ngraphbench.engines import daskagent
from ngraphbench.engines.desk import ROUND_EVERY_S
from ngraphbench.engines.remote import Patience
from ngraphbench.errors import ClusterError
from ngraphbench.types import Json

EVENTS: list[Json] = [{"event": "round", "round": n} for n in range(3)]


@pytest.mark.parametrize(("every_s", "told"), [(0.0, [0, 1, 2]), (1e6, [0])])
def test_an_agent_tells_of_rounds_as_seldom_as_it_was_told(every_s: float, told: list[int]) -> None:
    heard: list[Json] = []
    emit = _seldom(heard.append, every_s)
    for event in EVENTS:
        emit(event)
        emit({"event": "note"})
    assert [event["round"] for event in heard if event["event"] == "round"] == told
    assert sum(event["event"] == "note" for event in heard) == 3


def test_a_client_that_hears_of_rounds_does_not_ask() -> None:
    assert Patience().state_s > 2 * ROUND_EVERY_S


def test_a_dask_workers_errands_wait_whatever_its_scheduler_asks_for() -> None:
    class Base:
        def __init__(self) -> None:
            names = ("heartbeat", "tick", "monitor")
            self.periodic_callbacks = {n: SimpleNamespace(callback_time=20.0) for n in names}
            self.periodic_callbacks["keep-alive"] = SimpleNamespace(callback_time=1e9)

        async def heartbeat(self) -> None:
            # As a scheduler answers it.
            self.periodic_callbacks["heartbeat"].callback_time = 500.0

    worker = daskagent._quiet(Base)()
    asyncio.run(worker.heartbeat())
    found = {name: each.callback_time for name, each in worker.periodic_callbacks.items()}
    assert min(found.values()) == daskagent.ERRANDS_MS >= 60_000
    assert found["keep-alive"] == 1e9


def test_no_thread_of_an_agent_looks_whether_there_is_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Json] = []

    class Worker:
        def __init__(self, scheduler: str, **more: Any) -> None:
            given.append(more)
            raise OSError("that was all")

    async def hello(scheduler: str, security: object) -> Json:
        if given:
            raise ClusterError("Other versions.", reason="version")
        return {}

    monkeypatch.setattr(daskagent, "require_dask", lambda: SimpleNamespace(Worker=Worker))
    monkeypatch.setattr(daskagent, "security_of", lambda folder: None)
    monkeypatch.setattr(daskagent, "versions", dict)
    monkeypatch.setattr(daskagent, "say_hello", hello)
    monkeypatch.setattr(daskagent, "AGAIN_S", (0.0, 0.0))
    with pytest.raises(ClusterError, match="Other versions"):
        asyncio.run(daskagent.serve_agent("a", "tls://h:1", None, root=tmp_path))
    # Dask's own, a subclass, look once a second.
    assert type(given[0]["executor"]) is concurrent.futures.ThreadPoolExecutor


def test_an_agent_that_was_let_in_dials_again_when_a_scheduler_ends_in_a_greeting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = ClusterError("Closed the connection.", reason="certificates")
    answers: list[Exception | None] = [OSError("not yet"), None, refused, RuntimeError("ended")]
    answers.append(ClusterError("Other versions.", reason="version"))
    told: list[str] = []

    async def hello(scheduler: str, security: object) -> Json:
        if (answer := answers.pop(0)) is not None:
            raise answer
        return {}

    async def served(*args: object, **more: object) -> None:
        return

    monkeypatch.setattr(daskagent, "require_dask", lambda: None)
    monkeypatch.setattr(daskagent, "security_of", lambda folder: None)
    monkeypatch.setattr(daskagent, "say_hello", hello)
    monkeypatch.setattr(daskagent, "_serve_once", served)
    monkeypatch.setattr(daskagent, "AGAIN_S", (0.0, 0.0))
    with pytest.raises(ClusterError, match="Other versions"):
        asyncio.run(daskagent.serve_agent("a", "tls://h:1", None, root=tmp_path, say=told.append))
    assert sum("ialling again" in text for text in told) == 4
    answers[:] = [refused]
    with pytest.raises(ClusterError, match="Closed"):
        asyncio.run(daskagent.serve_agent("a", "tls://h:1", None, root=tmp_path))
