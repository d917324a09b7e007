"""How a session gets its environments, what becomes of those that fail, and what doctor says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ngraphbench.case import Case, CompilerRef, Limits, ModelRef, Session
from ngraphbench.cli.printing import print_availability
from ngraphbench.compilers.fake import FakeCompiler
from ngraphbench.environments.managed import Environment
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.locks import EnvironmentRequest
from ngraphbench.plugin import discover
from ngraphbench.profiles import PROFILES
from ngraphbench.session import availability
from ngraphbench.session import provision as module
from ngraphbench.session.availability import Availability, accelerators
from ngraphbench.session.provision import Provision
from ngraphbench.session.state import CaseState, status_of
from ngraphbench.types import Device, Json, Support

CASE = Case(ModelRef("m", "m", "onnx", "c"), CompilerRef("toy", "t:T"), Device(), 1)
FAILING = replace(CASE, compiler=CompilerRef("toy", "t:T", version="9"))
OTHERS = replace(CASE, compiler=CompilerRef("toy", "t:T", version="1"))
HERE = replace(CASE, compiler=CompilerRef("other", "t:T"))
PLACE = replace(CASE, compiler=CompilerRef("toy", "t:T", version=sys.executable))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the ids that are in use now; nothing is made."""
    names: list[str] = []

    @contextmanager
    def provided(
        request: EnvironmentRequest, *, observe: Any, begin: Any, words: Any, **_: Any
    ) -> Iterator:
        observe("waiting")
        if request.version != "1":
            begin()
            observe("installing")
        if request.version == "9":
            words.append("no such version")
            raise EnvironmentFailed("No such version.", reason="install", hint="Another.")
        names.append(request.name)
        about: Json = {"name": request.name, "seconds": 2.5, "distributions": {"toy": "1"}}
        yield Environment("abc", Path("/env"), "ready", about)
        names.remove(request.name)

    monkeypatch.setattr(module, "provided", provided)
    return names


def made(tmp_path: Path, events: list[Json], *, stopped: bool = False) -> Provision:
    asked = {
        "toy": EnvironmentRequest("managed", "toy", size_bytes=5_000_000),
        "toy@1": EnvironmentRequest("managed", "toy", "1"),
        "toy@9": EnvironmentRequest("managed", "toy", "9"),
        PLACE.compiler.head: EnvironmentRequest("interpreter", "toy", python=sys.executable),
    }
    session = Session(
        (CASE, FAILING, HERE, OTHERS, PLACE),
        "toy",
        PROFILES["quick"],
        Limits(),
        environments={head: request.to_json() for head, request in asked.items()},
    )
    return Provision(session, events.append, lambda: stopped, {}, tmp_path / "logs")


def test_each_case_gets_its_home(tmp_path: Path, held: list[str]) -> None:
    events: list[Json] = []
    with made(tmp_path, events) as provision:
        provision.provide([CASE, FAILING, HERE])
        home = provision.home(CASE)
        assert home is not None and home.python == Path("/env/bin/python")
        assert home.facts == {"lock": "abc", "lock_name": "toy", "distributions": {"toy": "1"}}
        assert home.made_s == 2.5 and held == ["toy"]
        assert provision.home(HERE) is None
        elsewhere = provision.home(PLACE)
        assert elsewhere is not None and elsewhere.made_s is None
        assert "numpy" in elsewhere.facts["distributions"] and elsewhere.facts["lock"]
    assert held == [], "nothing is in use any more"
    notes = [event["text"] for event in events if event["event"] == "note"]
    assert notes[0] == "making the environment of toy (about 5 MB)"
    assert {"event": "environment", "id": "abc"} in events
    phases = [event for event in events if event["event"] == "phase"]
    assert phases[0]["phase"] == "environment" and phases[0]["of"] == 2


def test_what_someone_else_made_meanwhile_is_not_this_runs(tmp_path: Path, held: list[str]) -> None:
    events: list[Json] = []
    with made(tmp_path, events) as provision:
        provision.provide([OTHERS])
        assert held == ["toy"]
    assert [event["event"] for event in events] == ["phase"]


def test_a_failure_is_told_each_time_and_leaves_a_log(tmp_path: Path, held: list[str]) -> None:
    with made(tmp_path, []) as provision:
        provision.provide([FAILING])
        for _ in range(2):
            with pytest.raises(EnvironmentFailed) as caught:
                provision.home(FAILING)
    state = CaseState()
    state.fail(caught.value, "environment")
    assert (state.status, state.reason, state.stage) == ("unavailable", "install", "environment")
    assert status_of(caught.value) == "unavailable"
    assert (tmp_path / "logs/environment-toy@9.log").read_text() == "no such version\n"


def test_an_interrupt_begins_no_other(tmp_path: Path, held: list[str]) -> None:
    with made(tmp_path, [], stopped=True) as provision, pytest.raises(KeyboardInterrupt):
        provision.provide([CASE])
    assert held == []


def available(**given: Any) -> Availability:
    no = {"cpu": Support(ok=False, hint="pip install fake")}
    plain = Availability("fake", FakeCompiler(), no, {}, lock="fake", size_bytes=7_000_000)
    return replace(plain, **given)


def test_what_is_nowhere_has_a_reason_and_a_cure() -> None:
    found = available()
    assert found.places == [] and found.devices == [] and found.version == ""
    assert found.reason == "pip install fake"
    assert found.cure == "ngb env create fake   (about 7 MB)"


def test_an_environment_that_does_not_work_says_why_itself() -> None:
    found = available(managed={"cpu": Support(ok=False, hint="needs clang")})
    assert (found.places, found.reason, found.cure) == ([], "needs clang", "")


def test_what_works_somewhere_needs_none() -> None:
    works = {"cpu": Support(ok=True, version="2"), "cuda": Support(ok=False)}
    found = available(managed=works)
    assert (found.places, found.version, found.cure) == (["managed"], "2", "")
    both = available(here={"cpu": Support(ok=True, version="1"), "cuda": works["cpu"]})
    assert (both.places, both.version, both.devices) == (["here"], "1", ["cpu", "cuda"])


def test_an_accelerator_that_is_there_in_vain_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(FakeCompiler, "accelerators", ("cpu", "cuda"))
    cpu = Support(ok=True, version="1")
    print_availability([available(here={"cpu": cpu, "cuda": Support(ok=False, hint="no driver")})])
    assert "cuda: no driver" in capsys.readouterr().out
    assert available(here={"cpu": cpu}).left_out == {}
    assert available().left_out == {}, "there is one reason then, and it is told"


def test_only_what_might_run_there_is_asked_about_an_accelerator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, list[str]]] = []

    def probe_all(targets: Any, device: Any, **rest: Any) -> dict[str, Support]:
        asked.append((device.accelerator, sorted(targets)))
        return {name: Support(ok=True, version="1") for name in targets}

    monkeypatch.setattr(availability, "accelerators", lambda: ["cpu", "cuda"])
    monkeypatch.setattr(availability, "probe_all", probe_all)
    monkeypatch.setattr(availability, "_environment", lambda plugin: None)
    targets = {name: discover()[name] for name in ("mnn", "tensorrt")}
    found = {one.name: one.devices for one in availability.survey(targets, threads=1)}
    assert [one for one in asked if one[1]] == [
        ("cpu", ["mnn", "tensorrt"]),
        ("cuda", ["tensorrt"]),
    ]
    assert found == {"mnn": ["cpu"], "tensorrt": ["cpu", "cuda"]}


def test_an_accelerator_on_which_nobody_ran_it_is_labelled(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    label = "cuda: not yet run on hardware"
    monkeypatch.setenv("COLUMNS", "200")
    print_availability([available()])
    assert label not in capsys.readouterr().out
    monkeypatch.setattr(FakeCompiler, "accelerators_not_yet_run", ("cuda",))
    print_availability([available()])
    assert label in capsys.readouterr().out
    assert available().to_json()["accelerators_not_yet_run"] == ["cuda"]


def test_accelerators_are_told_by_their_files(tmp_path: Path) -> None:
    assert accelerators(root=tmp_path) == ["cpu"]
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    assert accelerators(root=tmp_path) == ["cpu", "cuda"]


@pytest.mark.parametrize(
    ("kind", "card"), [("intel-gpu", "drm/renderD128"), ("npu", "accel/accel0")]
)
def test_accelerators_of_one_kind_are_told_by_their_maker(
    tmp_path: Path, kind: str, card: str
) -> None:
    device = tmp_path / "sys/class" / card / "device"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x1002\n")
    assert accelerators(root=tmp_path) == ["cpu"]
    (device / "vendor").write_text("0x8086\n")
    assert accelerators(root=tmp_path) == ["cpu", kind]
