"""Locks: what they state, what a version makes of them, and what an id depends on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngraphbench import locks
from ngraphbench.environments import locking
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.locks import (
    EnvironmentRequest,
    Lock,
    distribution_of,
    find_lock,
    lock_names,
    request_for,
)
from ngraphbench.plugin import discover, load_compiler

TEXT = "# made\nToy_C==1.0 ; python_version >= '3.11'\nToy-C==0.9 ; python_version < '3.11'\nx==2\n"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a third party's lock, which an entry point names."""
    package = tmp_path / "toy_locks"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "toy.in").write_text("# size: 1.5 GB\n# python: 3.11\nToy-C==1.0\nx\n")
    (package / "toy.txt").write_text(TEXT)
    about = tmp_path / "toy-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[ngraphbench.locks]\ntoy = toy_locks\n")
    monkeypatch.syspath_prepend(tmp_path)
    return package


def test_a_third_partys_lock_is_found(toy: Path) -> None:
    assert "toy" in lock_names()
    lock = find_lock("toy")
    assert lock is not None and lock.text == TEXT and lock.folder == toy
    assert lock.size_bytes == 1_500_000_000 and lock.least_python == (3, 11)
    request = request_for("toy", distributions=["toy_c"])
    assert request.requirements == (TEXT,) and request.size_bytes == 1_500_000_000
    assert request.least_python == (3, 11) and request.head == "toy"


def test_a_version_pins_the_compiler_alone(toy: Path) -> None:
    request = request_for("toy", distributions=["toy_c"], version="0.5")
    assert request.requirements == ("toy-c==0.5\nx==2\n", "toy-c==0.5\nx\n")
    assert request.head == "toy@0.5"


def test_the_version_of_the_lock_is_the_lock(toy: Path) -> None:
    (toy / "toy.txt").write_text("toy-c==1.0\nx==2\n")
    plain = request_for("toy", distributions=["toy_c"])
    assert request_for("toy", distributions=["toy-c"], version="1.0").id("t") == plain.id("t")
    assert request_for("toy", distributions=["toy-c"], version="1.1").id("t") != plain.id("t")


def test_what_goes_with_the_compiler_now_goes_with_it_still(toy: Path) -> None:
    (toy / "toy.txt").write_text("toy-c==1.0\nToy_Run==1.0 ; python_version > '3'\ny==1.0\nz==2\n")
    names = ["toy_c", "toy-run", "z", "absent"]
    request = request_for("toy", distributions=names, version="0.5")
    assert request.requirements[0] == "toy-c==0.5\ntoy-run==0.5\ny==1.0\nz==2\n"


def test_extras_stay(toy: Path) -> None:
    (toy / "toy.txt").write_text("toy-c[fast]==1.0\n")
    request = request_for("toy", distributions=["toy-c"], version="2")
    assert request.requirements[0] == "toy-c[fast]==2\n"


def test_the_id_is_of_requirements_and_interpreter() -> None:
    def id_of(text: str, tag: str = "cpython-3.11.7-linux-x86_64") -> str:
        return EnvironmentRequest("managed", "toy", requirements=(text,)).id(tag)

    assert id_of("a==1\n") == id_of("# said\n\na==1  # via b\n")
    assert id_of("a==1\n") != id_of("a==2\n")
    assert id_of("a==1\n") != id_of("a==1\n", "cpython-3.11.8-linux-x86_64")


def test_a_request_travels(toy: Path) -> None:
    request = request_for("toy", distributions=["toy-c"], version="0.5")
    assert EnvironmentRequest.from_json(request.to_json()) == request


def test_a_lock_that_is_not_solved_yet_is_solved_when_used(toy: Path) -> None:
    (toy / "toy.txt").unlink()
    assert request_for("toy").requirements == ("# size: 1.5 GB\n# python: 3.11\nToy-C==1.0\nx\n",)


@pytest.mark.parametrize(
    ("name", "version", "reason"),
    [("nothing", "", "no-lock"), ("toy", "2", "no-distribution"), ("toy", "./env", "path")],
)
def test_what_cannot_be_asked_for(toy: Path, name: str, version: str, reason: str) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        request_for(name, version=version)
    assert caught.value.reason == reason and caught.value.hint


def test_a_place_needs_no_lock() -> None:
    request = request_for("nothing", version="/opt/env")
    assert (request.kind, request.python) == ("interpreter", "/opt/env")


@pytest.mark.parametrize("name", locks.lock_names())
def test_shipped_locks_are_exact_and_name_no_index(name: str) -> None:
    lock = find_lock(name)
    assert isinstance(lock, Lock) and lock.size_bytes, "it states its size"
    for line in locks.requirement_lines(lock.text):
        assert "==" in line and "--" not in line and "://" not in line and "+" not in line, line
    assert "://" not in lock.wanted and "--" not in lock.wanted
    named = set(map(locks.distribution_of, locks.requirement_lines(lock.text)))
    assert not lock.text or "numpy" in named, "the worker needs it"


def test_every_compiler_that_was_seen_to_work_has_a_lock() -> None:
    plugins = [load_compiler(target) for target in discover().values()]
    seen = [one for one in plugins if one.packages and not one.not_yet_run_on_hardware]
    assert {one.environment or one.name for one in seen} <= set(lock_names())


@pytest.mark.parametrize(("name", "quantiser"), [("openvino", "nncf"), ("onnxruntime", "onnx")])
def test_what_quantises_has_what_it_takes_in_its_environment(name: str, quantiser: str) -> None:
    assert load_compiler(discover()[name]).quantises
    lock = find_lock(name)
    assert isinstance(lock, Lock)
    assert quantiser in map(locks.distribution_of, locks.requirement_lines(lock.text))


def test_what_is_left_out_stays_out(toy: Path) -> None:
    wanted = "# without: torch, big\ntoy-c==1.0\n"
    (toy / "toy.in").write_text(wanted)
    lock = find_lock("toy")
    assert lock is not None and lock.without == ("torch", "big")
    request = request_for("toy", distributions=["toy-c"], version="0.5")
    assert request.whole and request.requirements == ("toy-c==0.5\nx==2\n",)
    assert request_for("toy").whole
    (toy / "toy.txt").unlink()
    assert not request_for("toy").whole, "what is not solved yet names too little"


@pytest.mark.parametrize("name", locks.lock_names())
def test_a_shipped_lock_is_that_of_its_input(name: str) -> None:
    lock = find_lock(name)
    assert lock is not None
    solved = locks.requirement_lines(lock.text)
    for line in locks.requirement_lines(lock.wanted):
        if lock.text and (version := locks._version(line)):
            pins = {
                locks._version(s) for s in solved if distribution_of(s) == distribution_of(line)
            }
            assert version in pins, f"`ngb env lock {name}` was not run since {line} was written"


UV = """#!/bin/sh
echo "$@" > "$0.arguments"
cat > "$0.input"
for word in "$@"; do
  case "$word" in --overrides=*) cat "${word#--overrides=}" > "$0.over";; esac
done
test -f "$0.fails" && { echo "no solution" >&2; exit 1; }
cat <<END
# said
--index-url https://index.example/simple
a==1+cpu ; python_full_version < '3.11'
b==2 ; sys_platform == 'win32'
c==3 ; sys_platform == 'win32' or sys_platform == 'linux'
torch==2 ; sys_platform == 'never'
END
"""


def test_a_lock_is_solved_for_every_python(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = tmp_path / "uv"
    uv.write_text(UV)
    uv.chmod(0o755)
    monkeypatch.setattr(locking, "find_uv", lambda: str(uv))
    monkeypatch.setattr(locking, "own_pip", lambda: None)
    (toy / "toy.in").write_text("# python: 3.11\n# without: torch\ntoy-c==1.0\n")
    lock = find_lock("toy")
    assert lock is not None
    assert locking.solve(lock).splitlines()[1:] == [
        "a==1 ; python_full_version < '3.11'",
        "c==3 ; sys_platform == 'win32' or sys_platform == 'linux'",
    ]
    words = Path(f"{uv}.arguments").read_text().split()
    assert words[:2] == ["pip", "compile"]
    assert {"--universal", "--python-version=3.11", "--no-annotate"} <= set(words)
    assert Path(f"{uv}.over").read_text() == "torch ; sys_platform == 'never'\n"
    assert Path(f"{uv}.input").read_text().split()[-1] == "numpy"
    Path(f"{uv}.fails").touch()
    with pytest.raises(EnvironmentFailed, match="no solution") as caught:
        locking.solve(lock)
    assert caught.value.reason == "solve"
    monkeypatch.setattr(locking, "find_uv", lambda: None)
    with pytest.raises(EnvironmentFailed, match="solved by uv"):
        locking.solve(lock)
