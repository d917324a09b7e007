"""No credential of the environment is in anything that a run leaves or prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import ngb, records
from steady import as_steady

from ngraphbench.redaction import HIDDEN
from ngraphbench.testing.workloads import write_onnx

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_lock")]

MARK = "pl4nt3d"
PLANTED = {
    "CI_TOKEN": f"{MARK}-token",
    "AWS_SECRET_ACCESS_KEY": f"{MARK}-aws",
    "HF_KEY": f"{MARK}-hf",
    "ORT_AUTH": f"{MARK}-ort",
    "HTTPS_PROXY": f"http://user:{MARK}-proxy@127.0.0.1:9",
    "PIP_INDEX_URL": f"https://reader:{MARK}-pip@127.0.0.1:9/simple",
    "PIP_EXTRA_INDEX_URL": f"https://{MARK}-extra-0123456789@127.0.0.1:9/simple",
    "PIP_RETRIES": "0",
    "PIP_TIMEOUT": "1",
}

TELLTALE = '''"""A model that tells all it knows of its process, and then fails."""
import os

def prints():
    print({k: v for k, v in os.environ.items()})
    token, index = os.environ["CI_TOKEN"], os.environ["PIP_INDEX_URL"]
    raise RuntimeError(f"no login with {token} at {index}")
'''


def files_with(text: str, folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and text.encode() in p.read_bytes()]


def test_nothing_of_a_secret_is_written_or_printed(tmp_path: Path, site) -> None:
    pytest.importorskip("torch")
    (tmp_path / "telltale.py").write_text(TELLTALE)
    env = {**site, **PLANTED, "UV_INDEX_URL": PLANTED["PIP_INDEX_URL"]}
    done = ngb(
        *("bench", "telltale.py:prints", "double.onnx", "-c", "fake", "-c", "onnxruntime@1.19.0"),
        *("-b", "1", "--baseline", "fake", "--profile", "quick", "--json", "-o", "run"),
        cwd=tmp_path,
        env={**env, "XDG_DATA_HOME": str(tmp_path / "data")},
        short=True,
        check=1,
    )
    found = {(r["case"]["model"]["label"], r["label"]): as_steady(r) for r in records(done)}
    failed = found["prints", "fake"]
    assert (failed["status"], failed["stage"]) == ("failed", "export")
    # It was told, without the secret itself.
    assert failed["message"].count(HIDDEN) == 2
    assert found["double", "fake"]["status"] == "ok"
    assert found["double", "onnxruntime@1.19.0"]["status"] == "unavailable"
    shown = ngb("show", "run", cwd=tmp_path, check=1)
    ngb("report", "run", cwd=tmp_path, check=0)
    assert MARK not in done.stdout + done.stderr + shown.stdout + shown.stderr
    assert files_with(MARK, tmp_path / "run") == []
    # The program did tell, and its log is kept.
    logs = [path for path in files_with(HIDDEN, tmp_path / "run") if path.suffix == ".log"]
    assert any("PIP_INDEX_URL" in log.read_text() for log in logs)


def test_an_address_with_a_password_is_refused_and_not_repeated(tmp_path: Path) -> None:
    write_onnx(tmp_path / "double.onnx", "fake")
    address = f"ssh://bob:{MARK}@127.0.0.1:9"
    done = ngb("bench", "double.onnx", "--device", address, "-o", "run", cwd=tmp_path, check=2)
    assert "holds a password" in " ".join(done.stderr.split())
    assert MARK not in done.stdout + done.stderr
    assert not (tmp_path / "run").exists()
