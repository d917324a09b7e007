"""How the agent starts workers: each launch in an environment of another size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ngraphbench import agent
from ngraphbench.case import Case, CompilerRef, Limits, ModelRef, Session
from ngraphbench.environments.capture import padding
from ngraphbench.profiles import PROFILES
from ngraphbench.session.provision import Provision
from ngraphbench.session.state import Site
from ngraphbench.types import Device

FAKE = "ngraphbench.compilers.fake:FakeCompiler"
CASE = Case(ModelRef("m", "m", "onnx", "c"), CompilerRef("fake", FAKE), Device(threads=2), 1)


class Recorder:
    """Stands for the class of worker processes and keeps what they would be started with."""

    def __init__(self) -> None:
        self.environments: list[Mapping[str, str]] = []

    def spawn(self, command: list[str], *, env: Mapping[str, str], **rest: Any) -> None:
        self.environments.append(env)


def test_the_environment_grows_by_launch_and_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    monkeypatch.setattr(agent, "WorkerProcess", recorder)
    site = Site(tmp_path, tmp_path / "spool", tmp_path / "kit", "token")
    session = Session((CASE,), "fake", PROFILES["quick"], Limits(), seed=3)
    provision = Provision(session, print, lambda: False, {}, site.logs)
    spawn = agent._spawner(site, session, provision)
    for key in ("a", "b"):
        for epoch in range(3):
            spawn(CASE, key, epoch)
    found = [env["NGB_PADDING"] for env in recorder.environments]
    assert found == [padding(seed=3, epoch=e, key=k) for k in ("a", "b") for e in range(3)]
    assert len({len(text) for text in found}) > 1
    # Nothing else of the environment changes from launch to launch of one cell.
    first, second = ({**env, "NGB_PADDING": ""} for env in recorder.environments[:2])
    assert first == second


def test_a_session_may_have_environments_of_its_own(tmp_path: Path) -> None:
    site = Site(tmp_path, tmp_path / "spool", tmp_path / "kit", "token")
    session = Session(
        (CASE,), "fake", PROFILES["quick"], Limits(), environments={"fake": {"path": "/x"}}
    )
    provision = Provision(session, print, lambda: False, {}, site.logs)
    assert callable(agent._spawner(site, session, provision))
