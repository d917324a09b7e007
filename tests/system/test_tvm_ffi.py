"""TVM with another apache-tvm-ffi than it was built with is a status, with its reason.

It runs where ``NGRAPHBENCH_TVM_PYTHON`` names an interpreter that has TVM and pip. Nothing is
installed there: an environment beside it has the other version before it on its path.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from command_line import ngb, records

from ngraphbench.testing.workloads import write_workload

VARIABLE = "NGRAPHBENCH_TVM_PYTHON"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} names no interpreter."),
]


def beside(folder: Path, version: str) -> Path:
    """Return an environment that sees TVM's, with ``version`` of apache-tvm-ffi before it."""
    python = os.environ[VARIABLE]
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    told = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    )
    (site / "tvm.pth").write_text(told.stdout)
    wanted = f"apache-tvm-ffi=={version}"
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site)]
    done = subprocess.run([*install, wanted], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{wanted} cannot be had: {done.stderr[-200:]}")
    return folder


def test_another_ffi_is_a_status_with_its_reason(tmp_path: Path) -> None:
    place = beside(tmp_path / "env", "0.1.10")
    root = write_workload(tmp_path / "source", "mlp", batches=(2,), forms=("onnx",))
    chosen = f"tvm@{place}"
    done = ngb(
        *("bench", str(root / "b2" / "model.onnx"), "-c", chosen, "-b", "2", "--json"),
        *("--profile", "quick", "-o", "run"),
        cwd=tmp_path,
    )
    (found,) = [record for record in records(done) if record["label"].startswith("tvm@")]
    assert (found["status"], found["reason"]) == ("unavailable", "probe"), found["message"]
    # What it lacks, in its own words.
    assert "extra_lib_paths" in found["message"] + str(found["detail"])
