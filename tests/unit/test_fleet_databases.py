"""Folders of tuning databases: what goes along with a session, and which of two stays."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fleet_fixture import fleet_session

from ngraphbench.case import CompilerRef, Session
from ngraphbench.engines import databases
from ngraphbench.errors import ClusterError

FAKE = "ngraphbench.compilers.fake:FakeCompiler"


def session(*folders: str) -> Session:
    made = fleet_session("d", 1, folders)
    refs = [CompilerRef("fake", FAKE, {"database": folder}) for folder in folders]
    cases = [replace(c, compiler=ref) for c, ref in zip(made.cases, refs, strict=True)]
    return replace(made, cases=tuple(cases))


def test_folders_that_options_declare_have_a_place(tmp_path: Path) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    found = databases.databases_of(session(one, two, one, "", "not/absolute"))
    assert list(found) == [one, two]
    assert len(set(found.values())) == 2
    assert databases.databases_of(fleet_session("d", 1)) == {}


def test_the_larger_of_two_databases_stays_whole(tmp_path: Path) -> None:
    kept, spool = tmp_path / "kept", tmp_path / "spool"
    asked = session(str(kept))
    (name,) = databases.databases_of(asked).values()
    write(kept, {"v1/a/records": "long here", "v1/a/log": "x", "v1/b/records": "1"})
    write(spool / name, {"v1/a/records": "short", "v1/b/records": "1 2", "v1/b/c/log": "y"})
    write(spool / name, {"v2/a/records": "new"})
    databases.take_home(spool, asked)
    databases.take_home(spool, asked)
    found = {str(p.relative_to(kept)): p.read_text() for p in kept.rglob("*") if p.is_file()}
    assert found == {
        "v1/a/records": "long here",
        "v1/a/log": "x",
        "v1/b/records": "1 2",
        "v1/b/c/log": "y",
        "v2/a/records": "new",
    }


def test_one_that_cannot_be_written_leaves_the_old_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(source: str, target: str) -> None:
        Path(target).write_bytes(b"ha")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept, spool = tmp_path / "kept", tmp_path / "spool"
    asked = session(str(kept))
    (name,) = databases.databases_of(asked).values()
    write(kept, {"a/records": "1"})
    write(spool / name, {"a/records": "longer"})
    monkeypatch.setattr(shutil, "copytree", partial(shutil.copytree, copy_function=copy))
    with pytest.raises(OSError, match="No space left"):
        databases.take_home(spool, asked)
    assert [path.name for path in kept.iterdir()] == ["a"]
    assert (kept / "a" / "records").read_text() == "1"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_folder_that_holds_more_than_databases_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"a": "12", "b/c": "34", ".half/d": "5" * 100})
    assert {path.name for path in databases.files_below(tmp_path)} == {"a", "c"}
    assert databases.files_below(tmp_path / "nothing") == []
    monkeypatch.setattr(databases, "LIMIT_BYTES", 3)
    with pytest.raises(ClusterError, match="holds more than"):
        databases.files_below(tmp_path)
