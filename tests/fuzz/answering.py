"""A whole session with a worker that answers one op in a way of its own."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from virtual_agent import Exporter, virtual_agents, virtual_plan

from ngraphbench import agent
from ngraphbench.case import Case, Method, Session
from ngraphbench.engines.agentprocess import write_message
from ngraphbench.session.replies import check_reply
from ngraphbench.session.resident import Resident
from ngraphbench.session.verify import Reference
from ngraphbench.store.checking import problem_of
from ngraphbench.store.journal import Journal
from ngraphbench.types import Json, TensorSpec
from ngraphbench.worker.failures import error_told
from ngraphbench.workload import write_arrays

RIGHT = Reference(
    "r", {"y": np.ones((1, 4), np.float32)}, (TensorSpec("y", "float32", (1, 4)),), constant=True
)


class Answering:
    """A worker that is right, but for what it answers to ``op`` from time ``since`` on."""

    peak_rss_bytes = 10**8
    log_truncated = False
    leftovers = ""
    origin: ClassVar[Json] = {}

    def __init__(
        self, op: str, answer: Json, since: int, left: bytes | None, fields: Json, right: bytes
    ) -> None:
        self._odd = (op, answer, since, left)
        self._fields = fields
        self._right = right
        self._asked = 0

    def request(self, op: str, *, deadline_s: float, **fields: Any) -> Json:
        """Answer as ``WorkerProcess.request`` does."""
        odd_op, odd_answer, since, left = self._odd
        answer, data = {**self._fields.get(op, {}), "ok": True}, self._right
        if op == odd_op:
            self._asked += 1
            if self._asked > since:
                answer, data = odd_answer, self._right if left is None else left
        answer = json.loads(json.dumps(copy.deepcopy(answer)))
        if "path" in fields and op == "outputs":
            Path(fields["path"]).write_bytes(data)
        elif op == "save_artifact":
            Path(fields["path"]).mkdir()
        elif op == "block":
            columns = {name: np.ones(2) for name in ("calls", "due_ns", "start_ns", "end_ns")}
            write_arrays(Path(fields["folder"]) / "block.npz", columns)
            if left is not None:
                (Path(fields["folder"]) / "block.npz").write_bytes(data)
            (Path(fields["folder"]) / "lane-0.npz").write_bytes(self._right)
        if not answer.get("ok"):
            raise error_told(answer, op)
        check_reply(op, answer)
        return answer

    def suspend(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...

    def kill(self) -> None: ...


def session_with(
    op: str,
    answer: Json,
    since: int,
    left: bytes | None,
    *,
    fields: Json,
    right: bytes,
    folder: Path,
) -> None:
    """Run a session of two candidates, of which the first answers oddly; check its records."""
    (session,) = virtual_plan("a").sessions
    session = Session.from_json({**session.to_json(), "method": METHOD.to_json()})
    odd = session.cases[0].case_id

    def spawn(case: Case | None, key: str, epoch: int) -> Any:
        if case is None:
            return Exporter()
        first = case.case_id == odd
        return Answering(op if first else "", answer, since, left, fields, right)

    message = write_message(folder / "run", session, agent.spool_folder(folder / "run", session))
    references = {"a": RIGHT, "b": RIGHT}
    with virtual_agents(resident=Resident, spawn=spawn, references=references):
        outcome = json.loads(agent.run(message.read_text(), emit=lambda event: None))
    assert outcome["finished"]
    records = outcome["records"]
    assert [record["case_id"] for record in records[:-1]] == [c.case_id for c in session.cases]
    journal = Journal(folder / "journal.jsonl")
    journal.append(records)
    for record in journal.read():
        assert not problem_of(record), problem_of(record)
    assert records[1]["status"] in ("ok", "unstable"), records[1]["message"]


METHOD = Method(tails_s=0.01, in_flight=(1,))
