"""Credentials are found by the names of variables and in addresses, and are not written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngraphbench.redaction import HIDDEN, Redaction, is_secret

VARIABLES = {
    "CI_TOKEN": "glpat-0123456789",
    "PIP_INDEX_URL": "https://reader:pa55word9@index.example/simple",
    "MIRROR": "https://ghp_0123456789abcdefghij@mirror.example",
    "DEVICE": "ssh://jonathan@board",
    "TOKENIZERS_PARALLELISM": "false",
    "GOOGLE_APPLICATION_CREDENTIALS": "/etc/keys/service.json",
    "SHORT_TOKEN": "abc",
}


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "hf_token", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "HF_KEY", "GIT_AUTH"]
)
def test_names_of_credentials(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["PATH", "OMP_NUM_THREADS", "PYTHONPATH", "KEYBOARD", "AUTHOR"])
def test_other_names(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("token glpat-0123456789.", f"token {HIDDEN}."),
        ("login with pa55word9 failed", f"login with {HIDDEN} failed"),
        ("git+https://any@h/x", f"git+https://{HIDDEN}@h/x"),
        ("HTTP://u:p@proxy:3128/", f"HTTP://{HIDDEN}@proxy:3128/"),
        ("ssh://bob:hunter2@board", f"ssh://bob:{HIDDEN}@board"),
        ("ghp_0123456789abcdefghij", HIDDEN),
        # These tell nothing that would open a door.
        ("ssh://jonathan@board/cuda", "ssh://jonathan@board/cuda"),
        ("it is false, abc", "it is false, abc"),
        ("/etc/keys/service.json", "/etc/keys/service.json"),
        ("https://example.org/a@b mail@host", "https://example.org/a@b mail@host"),
    ],
)
def test_text(said: str, kept: str) -> None:
    assert Redaction(VARIABLES).text(said) == kept


def test_values_keep_their_shape() -> None:
    given = {"a": ["x pa55word9", 1, None, {"b": (True, 2.5)}], "c": "plain"}
    assert Redaction(VARIABLES).value(given) == {
        "a": [f"x {HIDDEN}", 1, None, {"b": [True, 2.5]}],
        "c": "plain",
    }


def test_a_file_is_changed_only_where_it_must_be(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before \xff pa55word9 after\n")
    Redaction(VARIABLES).file(path)
    assert path.read_bytes() == b"before \xff " + HIDDEN.encode() + b" after\n"
    untouched = tmp_path / "other"
    untouched.write_bytes(b"\xff nothing here")
    before = untouched.stat().st_mtime_ns
    Redaction(VARIABLES).file(untouched)
    assert untouched.stat().st_mtime_ns == before
