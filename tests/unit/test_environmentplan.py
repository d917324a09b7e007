"""Which environment each candidate of a plan gets, and what that makes of its session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plan_fixture import COMPILERS, FACTS, write_models

from ngraphbench import locks
from ngraphbench.case import Session
from ngraphbench.plan import Plan, make_plan
from ngraphbench.session.commandline import reproduce_command
from ngraphbench.spec import build_experiment
from ngraphbench.types import Json

TAG = "cpython-3.11.7-linux-x86_64"
PLACES = {"/opt/a": {"id": "aaaa"}, "/opt/b": {"problem": "There is no Python at /opt/b."}}


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with models; ``onnxruntime`` and ``eager`` alone have locks."""
    folder = tmp_path / "locks"
    folder.mkdir()
    for name, main in (("onnxruntime", "onnxruntime-gpu==1"), ("eager", "torch==2")):
        (folder / f"{name}.in").write_text(f"# size: 1 MB\n{main}\nnumpy\n")
        (folder / f"{name}.txt").write_text(f"{main}\nnumpy==2\n")
    monkeypatch.setattr(locks, "_OWN", folder)
    return write_models(tmp_path)


def plan(base: Path, compilers: list[Any], *, facts: Json | None = None, **more: Any) -> Plan:
    experiment = build_experiment(
        {"name": "t", "models": ["a.onnx"], "compilers": compilers, "batch_sizes": [1], **more}
    )
    local = {**FACTS["local"], "interpreter": TAG, "interpreters": PLACES, **(facts or {})}
    compilers = {**COMPILERS, "fake": "plan_fixture:Fake"}
    return make_plan(experiment, base=base, compilers=compilers, facts={"local": local})


def only(found: Plan) -> Session:
    (session,) = found.sessions
    return session


def test_in_the_interpreter_at_hand_nothing_is_asked_for(base: Path) -> None:
    session = only(plan(base, ["onnxruntime", "tuner", "onnxruntime@1.32.0"]))
    assert session.environments == {} and "environments" not in session.fingerprint


def test_a_version_that_is_not_here_gets_its_own(base: Path) -> None:
    session = only(plan(base, ["onnxruntime@1.31.0", "onnxruntime@1.32.0"]))
    assert [case.label for case in session.cases] == [
        "onnxruntime:level=none",
        "onnxruntime@1.31.0",
        "onnxruntime@1.32.0",
    ]
    assert list(session.environments) == ["onnxruntime@1.31.0"]
    request = locks.EnvironmentRequest.from_json(session.environments["onnxruntime@1.31.0"])
    assert request.requirements[0] == "onnxruntime-gpu==1.31.0\nnumpy==2\n"
    assert session.fingerprint["environments"] == {"onnxruntime@1.31.0": request.id(TAG)}
    assert session.fingerprint["packages"] == {"onnxruntime": "1.32.0"}


def test_managed_gives_each_its_own_and_needs_nothing_here(base: Path) -> None:
    found = plan(base, ["onnxruntime", "tuner"], environments="managed", facts={"packages": {}})
    session = only(found)
    assert [case.label for case in session.cases] == ["onnxruntime:level=none", "onnxruntime"]
    assert list(session.environments) == ["onnxruntime"]
    assert session.fingerprint["packages"] == {}
    (left_out,) = found.skipped
    assert (left_out.case.label, left_out.status, left_out.reason) == (
        "tuner",
        "unavailable",
        "no-lock",
    )
    assert "--environments managed" in reproduce_command(session.cases[0], session)
    assert json.loads(json.dumps(found.to_json())) == Plan.from_json(found.to_json()).to_json()


def test_what_needs_no_distribution_needs_no_environment(base: Path) -> None:
    found = plan(base, ["fake"], environments="managed", baseline=None)
    assert list(only(found).environments) == ["onnxruntime"] and found.skipped == ()


def test_another_lock_or_interpreter_is_another_session(base: Path) -> None:
    def session_id(**facts: Any) -> str:
        found = plan(base, ["onnxruntime"], environments="managed", facts=facts)
        return only(found).session_id

    first = session_id()
    assert first == session_id() != session_id(interpreter="cpython-3.12.1-linux-x86_64")
    (base / "locks/onnxruntime.txt").write_text("onnxruntime-gpu==1\nnumpy==2.1\n")
    assert session_id() != first
    places = {"/opt/a": {"id": "bbbb"}}
    compilers = ["onnxruntime@/opt/a"]
    assert only(plan(base, compilers)).session_id != (
        only(plan(base, compilers, facts={"interpreters": places})).session_id
    )


def test_a_place_is_used_or_said_to_be_none(base: Path) -> None:
    found = plan(base, ["tuner@/opt/a", "tuner@/opt/b"])
    session = only(found)
    assert session.environments["tuner@/opt/a"]["kind"] == "interpreter"
    assert session.fingerprint["environments"] == {"tuner@/opt/a": "aaaa"}
    (left_out,) = found.skipped
    assert (left_out.reason, left_out.message) == ("no-python", "There is no Python at /opt/b.")


def test_the_co_runner_has_its_environment_too(base: Path) -> None:
    measure = {"beside": "a.onnx"}
    session = only(plan(base, ["onnxruntime"], environments="managed", measure=measure))
    assert "onnxruntime" in session.environments
    session = only(plan(base, [{"onnxruntime@1.31.0": {}}], measure=measure, baseline=None))
    assert list(session.environments) == ["onnxruntime@1.31.0"]
