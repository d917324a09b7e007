"""The parts of a fleet by themselves: blobs, the desk, links that break, who is there."""

from __future__ import annotations

import base64
import hashlib
import queue
from pathlib import Path
from typing import Any

import pytest
from fleet_fixture import fleet_session
from plan_fixture import write_models

from ngraphbench.case import Session
from ngraphbench.engines import remote
from ngraphbench.engines.base import DeviceLost
from ngraphbench.engines.blobs import BlobStore
from ngraphbench.engines.confine import can_confine
from ngraphbench.engines.desk import Desk
from ngraphbench.engines.fleet import FleetEngine
from ngraphbench.engines.parcels import Parcel
from ngraphbench.engines.remote import Patience, RemoteDevice, run_name
from ngraphbench.engines.ssh import SSH_VARIABLE, parse_board
from ngraphbench.errors import ClusterError, SpecError
from ngraphbench.muster import muster
from ngraphbench.spec import build_experiment
from ngraphbench.types import Json

DATA = bytes(range(256)) * 40
DIGEST = hashlib.sha256(DATA).hexdigest()


def test_a_blob_goes_on_where_it_broke_off_and_is_verified(tmp_path: Path) -> None:
    store, size = BlobStore(tmp_path), len(DATA)
    assert store.put(DIGEST, 0, DATA[:1000], size=size) == 1000
    again = BlobStore(tmp_path)
    assert again.received_bytes(DIGEST) == 1000
    assert again.put(DIGEST, 0, DATA[:500], size=size) == 1000, "a piece was taken twice"
    assert again.put(DIGEST, 1000, DATA[1000:], size=size) is None
    again.place({"w/model.onnx": DIGEST}, tmp_path / "run")
    assert (tmp_path / "run/w/model.onnx").read_bytes() == DATA
    (tmp_path / "run/w/model.onnx").write_bytes(b"changed by a compiler")
    again.place({"w/model.onnx": DIGEST}, tmp_path / "other")
    assert (tmp_path / "other/w/model.onnx").read_bytes() == DATA


def test_a_blob_that_is_not_what_it_says_is_sent_anew(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    with pytest.raises(ClusterError, match="its content is not"):
        store.put(DIGEST, 0, DATA[::-1], size=len(DATA))
    assert store.received_bytes(DIGEST) == 0


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x"])
def test_nothing_is_placed_outside_a_run(tmp_path: Path, name: str) -> None:
    store = BlobStore(tmp_path / "blobs")
    store.put(DIGEST, 0, DATA, size=len(DATA))
    with pytest.raises(ClusterError, match="outside"):
        store.place({name: DIGEST}, tmp_path / "run")
    with pytest.raises(ClusterError, match="no sha256"):
        store.received_bytes("../../etc/passwd")


def test_a_desk_answers_what_it_cannot_do_with_an_error(tmp_path: Path) -> None:
    desk = Desk(tmp_path, lambda event: None)
    answers = [
        desk.answer({"op": "fly", "client": "c"}),
        desk.answer({"op": "put", "client": "c"}),
        desk.answer({"op": "files", "client": "c", "run": "../x", "session_id": "a"}),
        desk.answer({"op": "fetch", "client": "c", "run": "x", "session_id": "../a"}),
    ]
    assert [answer["ok"] for answer in answers] == [False] * 4
    assert "same version" in answers[0]["error"]["hint"]
    facts = desk.answer({"op": "facts", "packages": ["numpy"]})["facts"]
    assert facts["packages"]["numpy"]
    assert {"threads", "host", "cpu_model", "power_mode", "machine"} <= set(facts)


def test_a_desk_sweeps_what_an_earlier_one_left_but_not_what_was_measured(tmp_path: Path) -> None:
    spools = tmp_path / "runs" / "r" / "spool"
    for name in ("begun", "measured"):
        (spools / name / "work").mkdir(parents=True)
    (spools / "measured" / "state.json").write_text("{}")
    (tmp_path / "private" / "s" / "tmp").mkdir(parents=True)
    Desk(tmp_path, lambda event: None)
    assert not (tmp_path / "private").exists()
    assert not (spools / "begun" / "work").exists()
    assert (spools / "measured" / "work").exists()


def test_whether_a_namespace_can_be_had_is_only_asked(tmp_path: Path) -> None:
    before = {path.name for path in Path("/tmp").iterdir()}
    assert can_confine() in (True, False)
    assert not {n for n in {p.name for p in Path("/tmp").iterdir()} - before if "ngb-dirt" in n}


class Flaky:
    """A link that breaks at chosen messages, by number; the answers are those of a device."""

    def __init__(self, breaks: set[int], outcome: str) -> None:
        self.breaks = breaks
        self.asked: list[str] = []
        self.outcome = outcome.encode()
        self.heard: queue.SimpleQueue[Json] = queue.SimpleQueue()

    def ask(self, message: Json, *, patience_s: float) -> Json:
        self.asked.append(message["op"])
        if len(self.asked) in self.breaks:
            raise DeviceLost("cut")
        digest = hashlib.sha256(self.outcome).hexdigest()
        file = {"name": "records.jsonl", "size": len(self.outcome), "digest": digest}
        answers: dict[str, Json] = {
            "start": {"state": "running"},
            "state": {"state": "done"},
            "files": {"files": [file]},
            "fetch": {"data": base64.b64encode(self.outcome).decode()},
        }
        return {"ok": True, **answers.get(message["op"], {})}

    def events(self) -> queue.SimpleQueue[Json]:
        return self.heard

    def close(self) -> None: ...


@pytest.fixture
def no_export(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(session: Session, run: Path, emit: object, stop: object) -> Parcel:
        return Parcel()

    monkeypatch.setattr(remote, "pack", nothing)


@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.usefixtures("no_export")
def test_a_link_may_break_at_any_message(tmp_path: Path, at: int) -> None:
    link = Flaky({at}, '{"records": [], "deferred": []}')
    patience = Patience(answer_s=1, state_s=0.01, lost_s=5, again_s=0)
    device = RemoteDevice("d", link, patience)
    found = device.submit(fleet_session("d", 1), tmp_path, lambda event: None)
    assert found == {"records": [], "deferred": []}
    assert link.asked[-1] == "forget"
    # What is home is not asked for again.
    asked = len(link.asked)
    device.submit(fleet_session("d", 1), tmp_path, lambda event: None)
    assert len(link.asked) == asked


@pytest.mark.usefixtures("no_export")
def test_a_device_that_stays_away_is_lost(tmp_path: Path) -> None:
    link = Flaky(set(range(1, 10_000)), "{}")
    patience = Patience(answer_s=0.1, state_s=0.01, lost_s=0.2, again_s=0.01)
    with pytest.raises(DeviceLost):
        RemoteDevice("d", link, patience).submit(fleet_session("d", 1), tmp_path, print)


def test_a_run_keeps_its_name(tmp_path: Path) -> None:
    assert run_name(tmp_path) == run_name(tmp_path)


def test_boards_are_parsed() -> None:
    board = parse_board("ssh://me@10.0.0.5:2222/cuda?python=/opt/env/bin/python")
    assert (board.host, board.port, board.python) == ("me@10.0.0.5", 2222, "/opt/env/bin/python")
    assert parse_board("ssh://orin-1").host == "orin-1"
    for text in ("ssh://", "ssh://a:x", "ssh://a?pyhton=b"):
        with pytest.raises(SpecError, match="not a board's address"):
            parse_board(text)


def test_an_agents_name_needs_a_scheduler() -> None:
    with pytest.raises(ClusterError, match="no scheduler was named") as caught:
        FleetEngine(["jetson-1"])
    assert "--cluster" in caught.value.hint


def test_who_is_not_there_is_awaited_and_alone_it_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SSH_VARIABLE, "false")
    base = write_models(tmp_path)
    data: dict[str, Any] = {"name": "t", "models": ["a.onnx"], "compilers": ["onnxruntime"]}
    asked = build_experiment({**data, "devices": ["local", "ssh://nowhere"]})
    with muster(asked, base=base) as found:
        assert {case.device.name for case in found.plan.cases()} == {"local"}
        assert found.arrivals.names == ("ssh://nowhere",)
        assert found.arrivals.look("ssh://nowhere") is None
    alone = build_experiment({**data, "devices": ["ssh://nowhere"]})
    with pytest.raises(DeviceLost, match="ssh://nowhere"), muster(alone, base=base):
        pytest.fail("there is no device")
