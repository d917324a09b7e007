"""Folders of a user whom no database knows, and who has no HOME."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ngraphbench.engines.certificates import CERTS_VARIABLE, certificates_folder
from ngraphbench.environments.capture import worker_environment
from ngraphbench.environments.managed import FOLDER_VARIABLE, root_folder
from ngraphbench.errors import ClusterError, EnvironmentFailed
from ngraphbench.models.localfile import absolute_path
from ngraphbench.places import expanded, home_folder, user_folder
from ngraphbench.plugin import load_compiler
from ngraphbench.types import Device


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", FOLDER_VARIABLE, CERTS_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda text: text)


def test_home_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/user")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert home_folder() == Path("/home/user")
    assert user_folder("XDG_DATA_HOME") == Path("/home/user/.local/share")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert user_folder("XDG_DATA_HOME") == Path("/data")
    assert expanded("~/x.onnx") == Path("/home/user/x.onnx")


@pytest.mark.usefixtures("nobody")
def test_without_a_home_it_is_said_what_to_set(tmp_path: Path) -> None:
    assert home_folder() is None
    assert user_folder("XDG_DATA_HOME") is None
    with pytest.raises(EnvironmentFailed, match="HOME"):
        root_folder()
    with pytest.raises(ClusterError, match="HOME"):
        certificates_folder()
    got = worker_environment(
        compiler=load_compiler("ngraphbench.compilers.fake:FakeCompiler"),
        device=Device(),
        work=tmp_path,
        token="t",
        inherited={"PATH": "/bin"},
    )
    # The worker's own home serves for both.
    assert not {"HF_HOME", "TORCH_HOME"} & set(got)
    assert Path(got["HOME"]).is_relative_to(tmp_path)


def test_a_name_that_begins_with_a_tilde_is_a_name(tmp_path: Path) -> None:
    text = "~no-such-user.onnx"
    assert absolute_path(text, base=tmp_path) == tmp_path / text
