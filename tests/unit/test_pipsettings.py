"""The user's pip settings, and what pip and uv are given of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ngraphbench.environments.installing import Installer
from ngraphbench.environments.pipsettings import Pip, PipSettings, own_pip, read_settings

LISTED = r"""
global.index-url='https://user:secret@index.example/simple'
global.extra-index-url='\nhttps://a.example/simple\nhttps://b.example/simple'
global.find-links='/weak'
global.target='/elsewhere'
freeze.find-links='/not-for-install'
install.find-links='/wheels /more'
install.no-binary=':none:'
:env:.constraint='/etc/c.txt'
:env:.cert='/etc/ca.pem'
:env:.proxy='http://proxy.example:3128'
:env:.cache-dir='/var/cache/pip'
:env:.no-index='1'
:env:.default-timeout='99'
:env:.only-binary='numpy,torch'
"""


@pytest.fixture
def settings(tmp_path: Path) -> PipSettings:
    """Return what is read from a pip that lists the settings above."""
    script = tmp_path / "pip.py"
    script.write_text(f"import sys\nassert sys.argv[1:] == ['config', 'list']\nprint({LISTED!r})\n")
    return read_settings(Pip((sys.executable, str(script)), (24, 0)), variables={})


def test_sections_are_merged_as_pip_does(settings: PipSettings) -> None:
    assert settings.values["find-links"] == "/wheels /more"
    assert settings.values["extra-index-url"] == (
        "https://a.example/simple https://b.example/simple"
    )
    assert "target" not in settings.values, "it installs elsewhere"


def test_pip_gets_them_all_as_variables(settings: PipSettings) -> None:
    found = settings.pip_variables()
    assert found["PIP_INDEX_URL"] == "https://user:secret@index.example/simple"
    assert found["PIP_FIND_LINKS"] == "/wheels /more" and found["PIP_CONSTRAINT"] == "/etc/c.txt"
    assert found["PIP_CONFIG_FILE"] == "/dev/null" and "PIP_TARGET" not in found


def test_uv_gets_its_own_words_for_them(settings: PipSettings) -> None:
    assert settings.uv_variables() == {
        "UV_DEFAULT_INDEX": "https://user:secret@index.example/simple",
        "UV_INDEX": "https://a.example/simple https://b.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_CONSTRAINT": "/etc/c.txt",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "HTTP_PROXY": "http://proxy.example:3128",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "ALL_PROXY": "http://proxy.example:3128",
        "UV_CACHE_DIR": "/var/cache/pip/uv",
        "UV_HTTP_TIMEOUT": "99",
    }
    words = ["--find-links=/wheels", "--find-links=/more", "--no-index"]
    assert settings.uv_arguments() == [*words, "--only-binary=numpy", "--only-binary=torch"]


def test_without_pip_its_variables_are_read() -> None:
    found = read_settings(None, variables={"PIP_INDEX_URL": "https://i.example", "PIP_USER": "1"})
    assert not found.known and found.values == {"index-url": "https://i.example"}
    assert found.pip_variables() == {"PIP_INDEX_URL": "https://i.example"}
    assert found.uv_variables() == {"UV_DEFAULT_INDEX": "https://i.example"}


def test_the_real_pip_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip = own_pip()
    if pip is None:
        pytest.skip("there is no pip here")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    (tmp_path / "pip.conf").write_text("[global]\nfind-links = /one\n  /two\n")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    assert read_settings(pip).values["find-links"] == "/one /two"
    monkeypatch.setenv("PIP_FIND_LINKS", "/three")
    assert read_settings(pip).values["find-links"] == "/three"


@pytest.mark.parametrize("uv", [None, "/bin/uv"])
def test_the_command_and_its_variables(
    uv: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: PipSettings
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/the/client")
    monkeypatch.setenv("PIP_INDEX_URL", "https://stale.example")
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "7")
    installer = Installer(tmp_path / "env", print, variables={"MARK": "1"}, uv=uv)
    pip = Pip(("/bin/python", "-m", "pip"), (24, 0))
    command, variables = installer.command(tmp_path / "r.txt", pip, settings)
    python = str(tmp_path / "env/bin/python")
    assert command[-2:] == ["-r", str(tmp_path / "r.txt")]
    assert "PYTHONPATH" not in variables and variables["MARK"] == "1"
    assert variables["TMPDIR"] == str(tmp_path)
    if uv:
        assert command[:5] == ["/bin/uv", "pip", "install", "--python", python]
        assert {"--link-mode=copy", "--compile-bytecode", "--no-index"} <= set(command)
        assert variables["UV_PYTHON_DOWNLOADS"] == "never"
        assert variables["UV_HTTP_TIMEOUT"] == "7", "what the user told uv itself comes first"
        assert variables["UV_DEFAULT_INDEX"] == "https://user:secret@index.example/simple"
        assert not any("secret" in word for word in command), "every user sees a command line"
    else:
        assert command[:6] == ["/bin/python", "-m", "pip", "--python", python, "install"]
        assert variables["PIP_INDEX_URL"] == "https://user:secret@index.example/simple"
        assert variables["PIP_USER"] == "0" and variables["PIP_CONFIG_FILE"] == "/dev/null"
        own, _ = installer.command(tmp_path / "r.txt", None, settings)
        assert own[:4] == [python, "-m", "pip", "install"]


def test_what_is_whole_gets_no_dependencies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def run(self: Installer, command: list[str], variables: dict[str, str]) -> int:
        ran.append(list(command))
        return 0

    monkeypatch.setattr(Installer, "_run", run)
    for whole in (False, True):
        folder = tmp_path / str(whole)
        folder.mkdir()
        Installer(folder, lambda text: None, uv=None).make(["x==1\n"], whole=whole)
        assert ("--no-deps" in ran[-1]) == whole
