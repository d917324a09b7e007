"""The journal: complete lines survive anything, nothing is stored twice."""

from __future__ import annotations

import gc
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraphbench.errors import StoreError
from ngraphbench.store.journal import Journal, uncollected
from ngraphbench.types import Json


def record(case: str, session: str = "s", **more: object) -> Json:
    return {"kind": "case", "session_id": session, "case_id": case, **more}


def test_append_and_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new" / "journal.jsonl")
    assert journal.read() == []
    journal.append([record("a"), {"kind": "session", "session_id": "s"}])
    journal.append([record("b")])
    assert [r.get("case_id") for r in journal.read()] == ["a", None, "b"]


def test_reading_makes_no_file(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.jsonl").read()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_stored_twice(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert Journal(path).append([record("a"), record("a")]) == [record("a")]
    assert Journal(path).append([record("a", x=1), record("a", "s2"), record("b")]) == [
        record("a", "s2"),
        record("b"),
    ]
    assert len(Journal(path).read()) == 3


def test_values_that_json_lacks(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(
        [
            record(
                "a", x=float("nan"), y=[np.float32(0.5), np.int64(3), -np.inf], z="\udc80é\n\u2028"
            )
        ]
    )
    (found,) = journal.read()
    assert (found["x"], found["y"], found["z"]) == (None, [0.5, 3, None], "\udc80é\n\u2028")
    with pytest.raises(StoreError, match="not JSON"):
        journal.append([record("b", x=object())])
    assert len(journal.read()) == 1


@pytest.mark.parametrize("bad", ["{", "[]", '"x"', '{"kind": 1}', '{"kind": "case"}', "\0\0"])
def test_bad_line_in_the_middle_is_an_error(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(f"{json.dumps(record('a'))}\n{bad}\n{json.dumps(record('b'))}\n")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"journal\.jsonl:2"):
        Journal(path).read()
    with pytest.raises(StoreError, match=r"journal\.jsonl:2"):
        Journal(path).append([record("c")])
    assert path.read_bytes() == before


def test_records_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps(record("a", schema_version=99)) + "\n")
    with pytest.raises(StoreError, match="schema 99"):
        Journal(path).read()


def test_unwritable_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.mkdir()
    with pytest.raises(StoreError, match=r"journal\.jsonl"):
        Journal(path).append([record("a")])


CASES = st.text(max_size=6)


@given(cases=st.lists(CASES, min_size=1, max_size=4, unique=True), data=st.data())
def test_torn_at_any_byte_keeps_every_complete_line(cases: list[str], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        Journal(path).append([record(case) for case in cases])
        whole = path.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        garbage = data.draw(st.sampled_from([b"", b"\0\0\0", b"{\n", b"\xff\xfe"]))
        path.write_bytes(whole[:cut] + garbage)
        torn = path.read_bytes()
        complete = whole[:cut].count(b"\n")
        assert [r["case_id"] for r in Journal(path).read()] == cases[:complete]
        assert path.read_bytes() == torn
        written = Journal(path).append([record(case) for case in cases])
        assert [r["case_id"] for r in written] == cases[complete:]
        assert [r["case_id"] for r in Journal(path).read()] == cases
        assert path.read_bytes() == whole


def test_lines_that_only_together_are_an_array_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    record = '{"kind":"case","session_id":"s","case_id":"c","schema_version":1}'
    path.write_text(f'{record}\n{{"a":[1\n2]}}\n{record}\n')
    with pytest.raises(StoreError):
        Journal(path).read()


def test_many_records_are_not_walked_again_right_after_they_were_read() -> None:
    with uncollected():
        records = [{"kind": str(i)} for i in range(2000)]
    assert gc.isenabled()
    places = {id(record) for record in records}
    young = [one for age in (0, 1) for one in gc.get_objects(generation=age)]
    assert not any(id(one) in places for one in young)
    assert not gc.get_freeze_count()


def test_a_last_line_that_is_no_record_is_not_taken_for_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(f"{json.dumps(record('a'))}\n{json.dumps({**record('b'), 'kind': None})}\n")
    before = path.read_bytes()
    for act in (Journal(path).read, lambda: Journal(path).append([record("c")])):
        with pytest.raises(StoreError, match=r"journal\.jsonl:2"):
            act()
    assert path.read_bytes() == before
