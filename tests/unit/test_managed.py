"""Managed environments, with an installer that only writes down what it would have installed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ngraphbench.environments import managed
from ngraphbench.environments.capture import in_environment
from ngraphbench.environments.interpreters import find_python, inspect_python, interpreter_tag
from ngraphbench.environments.kit import plugin_folder, worker_command
from ngraphbench.environments.managed import (
    environments,
    find_environment,
    provided,
    remove_environment,
)
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.locks import EnvironmentRequest, distribution_of, requirement_lines

REQUEST = EnvironmentRequest(
    "managed", "toy", distribution="toy", requirements=("toy==1\nnumpy==2\n",)
)


class Scribe:
    """Stands for the installer; ``made`` counts what it made, ``fails`` is what it raises."""

    made = 0
    fails: BaseException | None = None

    def __init__(self, folder: Path, observe: Any, **rest: Any) -> None:
        self.folder, self.observe = folder, observe

    def make(self, requirements: Sequence[str], *, whole: bool = False) -> str:
        type(self).made += 1
        self.observe("installing")
        (self.folder / "bin").mkdir()
        (self.folder / "bin/python").symlink_to(sys.executable)
        site = self.folder / "lib/python3.11/site-packages"
        site.mkdir(parents=True)
        for line in requirement_lines(requirements[0]):
            (site / f"{distribution_of(line)}-{line.partition('==')[2] or 0}.dist-info").mkdir()
        if self.fails is not None:
            raise self.fails
        return "scribe"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of all environments, which is not there yet."""
    folder = tmp_path / "store"
    monkeypatch.setenv("NGRAPHBENCH_ENVIRONMENTS", str(folder))
    monkeypatch.setattr(managed, "Installer", Scribe)
    monkeypatch.setattr(Scribe, "made", 0)
    return folder


def make(request: EnvironmentRequest = REQUEST) -> managed.Environment:
    with provided(request) as found:
        return found


def test_it_is_made_once_and_kept() -> None:
    first = make()
    assert first.id == REQUEST.id(interpreter_tag()) and first.state == "ready"
    assert first.about["distributions"] == {"numpy": "2", "toy": "1"}
    assert first.about["size_bytes"] >= 0 and first.about["seconds"] >= 0
    assert first.facts() == {
        "lock": first.id,
        "lock_name": "toy",
        "distributions": {"numpy": "2", "toy": "1"},
    }
    assert make() == first and Scribe.made == 1
    assert [one.id for one in environments()] == [first.id]


def test_numpy_is_added_where_a_lock_forgets_it() -> None:
    found = make(EnvironmentRequest("managed", "toy", requirements=("toy==1\nnumpy-more==1",)))
    assert set(found.about["distributions"]) == {"toy", "numpy-more", "numpy"}


@pytest.mark.parametrize("state", ["edited", "half-made", "broken"])
def test_what_is_not_whole_is_made_anew(state: str) -> None:
    folder = make().folder
    if state == "edited":
        shutil.rmtree(next(folder.glob("lib/*/*/toy-1.dist-info")))
    elif state == "half-made":
        (folder / managed.MARKER).unlink()
    else:
        (folder / "bin/python").unlink()
    (folder / "left").write_text("x")
    (found,) = environments()
    assert found.state == state
    assert make().state == "ready" and Scribe.made == 2
    assert not (folder / "left").exists()


@pytest.mark.parametrize("fault", [EnvironmentFailed("No.", reason="install"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(
    fault: BaseException, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scribe, "fails", fault)
    with pytest.raises(type(fault)) as caught:
        make()
    if isinstance(caught.value, EnvironmentFailed):
        assert "environment of toy could not be made. No." in str(caught.value)
    assert not store.exists()


def test_a_disk_that_fills_up_at_last_is_told(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(managed, "_size_bytes", full)
    with pytest.raises(EnvironmentFailed, match="No space left on device") as caught:
        make()
    assert caught.value.reason == "disk" and not store.exists()


def test_a_lock_without_its_compiler_is_no_environment(store: Path) -> None:
    empty = EnvironmentRequest("managed", "toy", distribution="toy", requirements=("x==1",))
    with pytest.raises(EnvironmentFailed, match="holds no toy for cpython") as caught:
        make(empty)
    assert caught.value.reason == "no-lock" and not store.exists()


def test_a_disk_that_is_too_small_is_told_before(store: Path) -> None:
    vast = EnvironmentRequest("managed", "toy", requirements=("x==1",), size_bytes=10**18)
    with pytest.raises(EnvironmentFailed, match=r"needs about 1200000000\.2 GB") as caught:
        make(vast)
    assert caught.value.reason == "disk" and Scribe.made == 0 and not store.exists()


def test_an_older_python_has_no_lock(store: Path) -> None:
    new = EnvironmentRequest("managed", "toy", requirements=("x==1",), least_python=(4, 0))
    with pytest.raises(EnvironmentFailed, match=r"needs 4\.0 or newer"):
        make(new)
    assert not store.exists()


def test_removing_leaves_nothing(store: Path) -> None:
    first = make()
    second = make(EnvironmentRequest("managed", "toy", requirements=("x==1",)))
    assert remove_environment(first.id) and find_environment(first.id) is None
    assert sorted(path.name for path in store.iterdir()) == [second.id, f"{second.id}.lock"]
    assert remove_environment(second.id) and not remove_environment(second.id)
    assert not store.exists()


def test_what_is_in_use_cannot_be_removed(store: Path) -> None:
    with provided(REQUEST) as found, provided(REQUEST):
        with pytest.raises(EnvironmentFailed, match="in use"):
            remove_environment(found.id)
        assert found.folder.is_dir()
    assert remove_environment(found.id)


def test_two_creators_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    make_now = Scribe.make

    def slowly(self: Scribe, requirements: Sequence[str], *, whole: bool = False) -> str:
        begun.set()
        assert go_on.wait(60)
        return make_now(self, requirements)

    monkeypatch.setattr(Scribe, "make", slowly)
    found: list[managed.Environment] = []
    told: list[str] = []

    def second() -> None:
        with provided(REQUEST, observe=told.append, begin=lambda: told.append("begun")) as one:
            found.append(one)

    threads = [
        threading.Thread(target=lambda: found.append(make())),
        threading.Thread(target=second),
    ]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    while not told:
        assert threads[1].is_alive()
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert Scribe.made == 1 and found[0].id == found[1].id
    assert told == ["waiting: someone else uses or makes this environment"]


def test_who_waits_can_be_stopped() -> None:
    with provided(REQUEST) as found:
        (found.folder / managed.MARKER).unlink()
        with pytest.raises(KeyboardInterrupt), provided(REQUEST, stop=lambda: True):
            raise AssertionError("It is in use, and not whole.")


def test_interpreters_are_told_by_what_they_can_import(tmp_path: Path) -> None:
    assert find_python(Path(sys.prefix)) == Path(sys.prefix) / "bin/python"
    found = inspect_python(Path(sys.executable))
    assert found.tag == interpreter_tag() and "numpy" in found.distributions
    assert found.id == inspect_python(Path(sys.executable)).id


class Silent(NamedTuple):
    text: str
    words: str


@pytest.mark.parametrize(
    "silent",
    [
        Silent("", "There is no Python at"),
        Silent("#!/bin/sh\necho boom >&2; exit 3\n", "boom"),
        Silent("#!/bin/sh\necho no json\n", "does not run"),
    ],
    ids=["absent", "failing", "babbling"],
)
def test_what_is_no_interpreter(silent: Silent, tmp_path: Path) -> None:
    path = tmp_path / "python"
    if silent.text:
        path.write_text(silent.text)
        path.chmod(0o755)
    with pytest.raises(EnvironmentFailed, match=silent.words) as caught:
        inspect_python(path)
    assert caught.value.reason == "no-python"


def test_nothing_of_the_client_is_seen_in_an_environment() -> None:
    given = {"PATH": "/bin", "PYTHONPATH": "/client", "VIRTUAL_ENV": "/client", "HOME": "/h"}
    found = in_environment(given, python=Path("/env/bin/python"), virtual=True)
    assert found == {"PATH": f"/env/bin{os.pathsep}/bin", "VIRTUAL_ENV": "/env", "HOME": "/h"}
    system = in_environment(given, python=Path("/usr/bin/python3"), virtual=False)
    assert "VIRTUAL_ENV" not in system and system["PYTHONUSERBASE"].endswith(".local")


def test_a_third_partys_plugin_is_carried_along_and_found_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    (source / "guest/inner").mkdir(parents=True)
    (source / "guest/__init__.py").write_text("from guest.inner import NAME\n")
    (source / "guest/inner/__init__.py").write_text("NAME = 'carried'\n")
    (source / "single.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(source)
    own = "ngraphbench.compilers.fake:FakeCompiler"
    assert plugin_folder(tmp_path / "none", [own]) is None
    folder = plugin_folder(tmp_path / "spool", [own, "guest.inner:X", "single:Y"])
    assert folder is not None
    assert sorted(path.name for path in folder.iterdir()) == ["guest", "single.py"]
    kit = tmp_path / "kit"
    (kit / "ngraphbench/worker").mkdir(parents=True)
    (kit / "ngraphbench/__init__.py").write_text("")
    (kit / "ngraphbench/worker/__init__.py").write_text("")
    (kit / "ngraphbench/worker/__main__.py").write_text(
        "import sys, guest\ndef main(fd): print(fd, guest.NAME, sys.path[-1])\n"
    )
    command = worker_command(sys.executable, kit, 3, plugins=folder)
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == ["3", "carried", str(folder)]
