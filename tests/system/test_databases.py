"""What a desk sends back: what a search found, for devices of its kind, and compiled programs."""

from __future__ import annotations

import json
import queue
from dataclasses import replace
from pathlib import Path

import pytest
from fake_runs import compiler
from fleet_runs import PATIENCE, fleet_plan
from steady import as_steady

from ngraphbench.agent import spool_folder
from ngraphbench.engines.desk import ROUND_EVERY_S, Desk
from ngraphbench.engines.remote import Patience, RemoteDevice
from ngraphbench.session.state import ARTIFACTS
from ngraphbench.types import Json

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_lock")]


class DeskLink:
    """A link to a desk that is not far; ``asked`` holds what it was asked, ``files`` what it has.

    While it measures, ``order`` is what its agent was told.
    """

    def __init__(self, root: Path) -> None:
        self.asked: list[Json] = []
        self.files: list[str] = []
        self.order: Json = {}
        self._root = root
        self._events: queue.SimpleQueue[Json] = queue.SimpleQueue()
        self._desk = Desk(root, self._events.put)

    def ask(self, message: Json, *, patience_s: float) -> Json:
        self.asked.append(message)
        answer: Json = json.loads(json.dumps(self._desk.answer(message)))
        if message["op"] == "files":
            self.files = [told["name"] for told in answer["files"]]
            (order,) = self._root.glob("runs/*/spool/*/message.json")
            self.order = json.loads(order.read_text())
        return answer

    def events(self) -> queue.SimpleQueue[Json]:
        return self._events

    def close(self) -> None:
        self._desk.end()

    def times(self, op: str) -> int:
        return sum(message["op"] == op for message in self.asked)


def test_what_a_search_found_comes_home_and_goes_to_devices_of_the_same_kind(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "kept"
    searching = compiler(database=str(kept))
    plan = fleet_plan(tmp_path, ["a", "b"], compilers=[searching])
    links = {name: DeskLink(tmp_path / f"desk-{name}") for name in ("a", "b")}
    asked = []
    found = set()
    sessions = [replace(session, keep_artifacts=True) for session in plan.sessions]
    for session in sessions:
        name = session.device.name
        link = links[name]
        outcome = RemoteDevice(name, link, Patience(**PATIENCE)).submit(
            session, tmp_path / "run", lambda event: None
        )
        record = as_steady(outcome["records"][0])
        assert record["status"] == "ok", record["message"]
        assert record["costs"]["tuning_s"] is not None
        # A record says what was asked for, not where a copy of it lay.
        assert record["case"]["compiler"]["options"]["database"] == str(kept)
        assert list(link.order["folders"]) == [str(kept)]
        assert link.order["round_every_s"] == ROUND_EVERY_S
        found.add(record["coverage"]["found"])
        (here,) = (path for path in kept.rglob("*") if path.is_file())
        assert found == {here.read_text()}
        (there,) = (told for told in link.files if told.startswith("databases/"))
        fetched = [m["name"] for m in link.asked if m["op"] == "fetch"]
        assert (there in fetched) == (session is sessions[0]), "it comes back where it grew"
        assert list((spool_folder(tmp_path / "run", session) / ARTIFACTS).rglob("program.json"))
        asked.append(link.times("put"))
        assert not list((tmp_path / f"desk-{name}").glob("runs/*/spool/*"))
    # To the second device it goes with the model.
    assert asked[0] + 1 == asked[1]
