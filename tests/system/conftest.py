"""Lets tests import the modules that stand beside them, and keeps their host lock private."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from ngraphbench.testing.workloads import write_onnx

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("workers")


@pytest.fixture
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is TMPDIR of all that is started; the host lock lies there too."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("NGRAPHBENCH_LOCK", str(folder / "host.lock"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Mapping[str, str]:
    """Return an environment in which the vendor-free compiler is installed as ``fake``."""
    write_onnx(tmp_path / "double.onnx", "fake")
    about = tmp_path / "site" / "fakery-0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: fakery\nVersion: 0\n")
    (about / "entry_points.txt").write_text(
        "[ngraphbench.compilers]\nfake = ngraphbench.compilers.fake:FakeCompiler\n"
    )
    paths = [str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
