"""A fault at every single write of a run: what was acknowledged is there, and the run goes on.

Acknowledged is what ``docs/data.md`` says: a record, once it was told of; the rows of a launch,
once the state that vouches for them is saved; experiment and plan, once the first session starts.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from faulty_disk import FAULTS, IN_A_CHILD, WRITES_ONLY, FaultyOs
from virtual_agent import EPOCHS, ROUNDS, VirtualEngine, virtual_agents, virtual_plan
from watched_writes import writes_beside

from ngraphbench.campaign import Campaign
from ngraphbench.errors import NGraphBenchError, StoreError
from ngraphbench.plan import Plan
from ngraphbench.session.state import SessionState
from ngraphbench.store import disk
from ngraphbench.store.journal import Journal
from ngraphbench.store.rundir import RunDir
from ngraphbench.store.samples import read_samples
from ngraphbench.types import Json

EXPERIMENT = "name: virtual\n"
KEPT = {
    *("experiment.yaml", "plan.json", "run.lock", "journal.jsonl", "spool/ID/message.json"),
    *("spool/ID/samples/ID", "spool/ID/state.json", "spool/ID/records.jsonl"),
    *("workloads/ID/b1/done.json", "samples/ID", "logs/ID", "artifacts/ID"),
}
"""What a run keeps: a fault befalls the writing of each."""

Tell = Callable[[str, str, str], None]


def execute(folder: Path, plan: Plan, tell: Tell) -> None:
    """Run as the client does, and tell of all that is acknowledged: what, where, content."""
    append, save = Journal.append, SessionState.save

    def appended(journal: Journal, records: Any) -> list[Json]:
        fresh = append(journal, records)
        for record in records:
            tell("record", name_of(record), "")
        return fresh

    def saved(state: SessionState, path: Path) -> None:
        save(state, path)
        for sample in (path.parent / "samples").glob("*.csv"):
            tell("rows", f"{path.parent.name}/{sample.name}", sample.read_text())

    with (
        virtual_agents(),
        mock.patch.object(Journal, "append", appended),
        mock.patch.object(SessionState, "save", saved),
    ):
        directory = RunDir.open(folder, create=True)
        with directory.lock():
            directory.write_experiment(EXPERIMENT)
            tell("file", "experiment.yaml", EXPERIMENT)
            directory.write_plan(plan.to_json())
            tell("file", "plan.json", json.dumps(plan.to_json(), indent=1) + "\n")
            Campaign(plan, directory, VirtualEngine(), lambda event: None).run()


def name_of(record: Json) -> str:
    return "/".join((record["kind"], record["session_id"], record.get("case_id", "")))


@dataclass
class Acknowledged:
    """The last that was told of each thing."""

    told: dict[tuple[str, str], str] = field(default_factory=dict)

    def tell(self, what: str, where: str, content: str) -> None:
        self.told[what, where] = content

    def check(self, folder: Path) -> dict[str, Json]:
        """Return the journal by name, after looking for all that was told of."""
        if self.told:
            RunDir.open(folder)
        journal = {name_of(record): record for record in Journal(folder / "journal.jsonl").read()}
        for (what, where), content in self.told.items():
            if what == "record":
                assert where in journal
            elif what == "file":
                assert (folder / where).read_text() == content
            else:
                session, name = where.split("/")
                places = [folder / "spool" / session / "samples", folder / "samples" / session]
                found = [(p / name).read_text() for p in places if (p / name).exists()]
                assert any(text.startswith(content) for text in found), where
        for record in journal.values():
            if record["kind"] == "case":
                measured = record["measurement"]
                assert len(read_samples(folder / measured["samples"])["round"]) == ROUNDS * EPOCHS
        return journal


def attempt(folder: Path, plan: Plan, faulty: FaultyOs) -> Acknowledged:
    """Return what was acknowledged until the fault ended the run, or it went on to its end."""
    found = Acknowledged()
    with mock.patch.object(disk, "os", faulty):
        try:
            execute(folder, plan, found.tell)
        except NGraphBenchError:
            assert faulty.fault
    assert not faulty.fault or len(faulty.calls) > faulty.at
    return found


def attempt_in_a_child(folder: Path, plan: Plan, faulty: FaultyOs) -> Acknowledged:
    """Return what a process told of before SIGKILL took it."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)

        def tell(*told: str) -> None:
            os.write(writing, json.dumps(told).encode() + b"\n")

        try:
            with mock.patch.object(disk, "os", faulty):
                execute(folder, plan, tell)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(7)
    os.close(writing)
    with os.fdopen(reading) as heard:
        found = Acknowledged()
        for line in heard:
            found.tell(*json.loads(line))
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    return found


def check_resumed(folder: Path, plan: Plan, before: dict[str, Json]) -> None:
    """Go on without faults: each cell is there exactly once, and nothing else is left."""
    attempt(folder, plan, FaultyOs(folder)).check(folder)
    records = RunDir.open(folder).records()
    names = Counter(map(name_of, records))
    assert set(names.values()) == {1}
    wanted = {case.case_id for case in plan.cases()}
    cases = [record for record in records if record["kind"] == "case"]
    assert sorted(record["case_id"] for record in cases) == sorted(wanted)
    assert {record["status"] for record in cases} == {"ok"}
    for record in cases:
        rows = read_samples(folder / record["measurement"]["samples"])
        places = list(zip(rows["epoch"].tolist(), rows["round"].tolist(), strict=True))
        assert places == [(epoch, number) for epoch in range(EPOCHS) for number in range(ROUNDS)]
    after = {name_of(record): record for record in records}
    assert {name: after[name] for name in before} == before
    kept = folder / "artifacts" / plan.sessions[0].session_id
    assert len(list(kept.iterdir())) == len(plan.sessions[0].cases)
    assert not [*folder.glob("spool/*"), *folder.rglob("*.part")]


def fresh(folder: Path) -> Plan:
    """A run that begins in a folder that is not there."""
    return virtual_plan("a")


def torn(folder: Path) -> Plan:
    """A run with one session done, killed as it wrote the second launch of another.

    The journal ends in half a record.
    """
    plan = virtual_plan("a", "b")
    attempt(folder, Plan("virtual", plan.sessions[:1]), FaultyOs(folder))
    whole = FaultyOs(folder)
    copy = folder.with_name("counted")
    shutil.copytree(folder, copy)
    attempt(copy, plan, whole)
    rows = [i for i, call in enumerate(whole.calls) if call[0] == "write" and "samples" in call[1]]
    attempt_in_a_child(folder, plan, FaultyOs(folder, "torn", rows[4]))
    with (folder / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"schema_version":1,"kind":"case","case_id":"')
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("start", [fresh, torn])
def test_a_fault_at_every_write_loses_nothing_that_was_acknowledged(
    tmp_path: Path, start: Callable[[Path], Plan]
) -> None:
    template = tmp_path / "template"
    plan = start(template)
    counted = FaultyOs(copied(template, tmp_path / "counted"))
    attempt(counted.root, plan, counted).check(counted.root)
    tried: Counter[str] = Counter()
    seen: set[str] = set()
    for at, (call, path) in enumerate(counted.calls):
        for fault in FAULTS:
            if fault in WRITES_ONLY and call != "write":
                continue
            folder = copied(template, tmp_path / "run")
            faulty = FaultyOs(folder, fault, at)
            run = attempt_in_a_child if fault in IN_A_CHILD else attempt
            try:
                before = run(folder, plan, faulty).check(folder)
                if (state := fingerprint(folder)) not in seen:
                    seen.add(state)
                    check_resumed(folder, plan, before)
            except BaseException:
                print(f"{fault} at call {at}: {call} {path}")
                raise
            tried[fault] += 1
            shutil.rmtree(folder, ignore_errors=True)
    for fault in FAULTS:
        writes = sum(call == "write" for call, _ in counted.calls)
        assert tried[fault] == (writes if fault in WRITES_ONLY else len(counted.calls))
    print(f"{len(counted.calls)} calls; {dict(tried)}; {len(seen)} different remains went on")


def copied(template: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    if template.exists():
        shutil.copytree(template, folder)
    return folder


def fingerprint(folder: Path) -> str:
    """Return what tells two remains apart: all they hold but times and process ids."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        text = path.read_bytes() if path.is_file() and path.name != "run.lock" else b""
        text = re.sub(rb"\d{4}-\d\d-\d\dT[\d:.]+Z", b"", text)
        found.update(str(path.relative_to(folder)).encode() + b"\0" + text + b"\0")
    return found.hexdigest()


def test_the_journal_goes_on_after_an_append_that_failed(tmp_path: Path) -> None:
    records = [{"kind": "case", "session_id": "s", "case_id": str(i)} for i in range(3)]
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(records[:1])
    faulty = FaultyOs(tmp_path, "full", 1)
    with mock.patch.object(disk, "os", faulty), pytest.raises(StoreError, match="No space left"):
        journal.append(records)
    # Of two records half of the bytes: the first is whole by chance, and is kept.
    assert journal.append(records) == records[2:]
    assert journal.read() == records


OF_WORKERS = re.compile(r"spool/\w+/work(/|$)|workloads/\w+/b1$")
"""Where workers and exporters write; what is lost there is made again."""


def test_every_write_of_a_run_goes_where_faults_are_injected(tmp_path: Path) -> None:
    counted = FaultyOs(tmp_path / "run")
    with writes_beside(tmp_path / "run", but=OF_WORKERS) as beside:
        attempt(tmp_path / "run", virtual_plan("a"), counted)
        assert beside == []
        assert {path.removesuffix(".part") for _, path in counted.calls} >= KEPT
        (tmp_path / "run" / "plan.json").write_text("by hand")
        assert beside == ["open plan.json by ?"]
