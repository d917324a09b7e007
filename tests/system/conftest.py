"""Lets tests import the modules that stand beside them, and keeps their host lock private."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is TMPDIR of all that is started; the host lock lies there too."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("NGRAPHBENCH_LOCK", str(folder / "host.lock"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder
