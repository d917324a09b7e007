"""A third party's plugin package: installed into a folder, found, and put to the suite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "plugin_package"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and unpack it, as pip would, into a folder of its own."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("plugin")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=PACKAGE,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("ngb_toy-*.whl")
    subprocess.run(
        [sys.executable, "-m", "zipfile", "-e", str(wheel), str(folder / "site")], check=True
    )
    return folder / "site"


def _python(site: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(site)},
        cwd=PACKAGE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_installed_plugin_is_discovered(site: Path) -> None:
    code = "from ngraphbench.plugin import discover; print(discover()['toy'])"
    assert _python(site, "-c", code).strip() == "ngb_toy:Toy"


@pytest.mark.alone
@pytest.mark.slow
def test_installed_plugin_keeps_the_contract(site: Path) -> None:
    report = _python(site, "-m", "pytest", "tests", "-q", "-rs", "-p", "no:cacheprovider")
    skipped = [line for line in report.splitlines() if line.startswith("SKIPPED")]
    # What a plugin need not have, and the toy has not: lanes and artefacts.
    assert all("lane" in line or "artefact" in line for line in skipped), report
    assert "passed" in report
