"""A third party's compiler: installed beside the tool, and then used like any other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ngb, records, write_model
from steady import as_steady

pytestmark = pytest.mark.slow

PACKAGE = Path(__file__).parents[1] / "plugin_package"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment in which the plugin is installed, in a folder of its own."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, "--no-index", "--target", str(folder), str(PACKAGE)], check=True, capture_output=True
    )
    return {"PYTHONPATH": str(folder)}


def test_it_is_listed(site: dict[str, str], tmp_path: Path) -> None:
    listed = json.loads(ngb("list", "--json", cwd=tmp_path, env=site, check=0).stdout)
    toy = listed["compilers"]["toy"]
    assert toy["ok"] and toy["accepts"] == ["onnx"] and toy["version"]
    assert "toy" not in json.loads(ngb("list", "--json", cwd=tmp_path, check=0).stdout)["compilers"]


def test_it_is_run_and_reported(site: dict[str, str], tmp_path: Path) -> None:
    write_model(tmp_path / "m.onnx")
    arguments = ("bench", "m.onnx", "-c", "toy", "-c", "onnxruntime", "-b", "1", "-o", "run")
    done = ngb(
        *arguments, "--profile", "quick", "--json", cwd=tmp_path, env=site, short=True, check=0
    )
    found = {record["label"]: as_steady(record) for record in records(done)}
    assert set(found) == {"toy", "onnxruntime", "onnxruntime:level=none"}
    toy = found["toy"]
    assert toy["status"] == "ok", toy["message"]
    assert toy["case"]["compiler"]["target"] == "ngb_toy:Toy"
    assert toy["summary"]["vs_baseline"]["estimate"] > 0
    assert toy["environment"]["packages"]
    assert "toy" in ngb("show", "run", cwd=tmp_path, check=0).stdout
    ngb("report", "run", cwd=tmp_path, check=0)
    assert "toy" in (tmp_path / "run" / "report.html").read_text()


def test_without_it_the_name_is_unknown(tmp_path: Path) -> None:
    write_model(tmp_path / "m.onnx")
    done = ngb("bench", "m.onnx", "-c", "toy", cwd=tmp_path, check=2)
    assert "There is no compiler 'toy'" in done.stderr
