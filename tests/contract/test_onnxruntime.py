"""The conformance suite on ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest
from int8 import ROUNDED, calibrated, error_and_coverage

from ngraphbench.compilers.onnxruntime import OnnxRuntime
from ngraphbench.compilers.qdq import quantised_file
from ngraphbench.errors import Unsupported
from ngraphbench.testing import CompilerContract, observe
from ngraphbench.testing.workloads import write_workload
from ngraphbench.types import INT8, Device


class TestOnnxRuntime(CompilerContract):
    compiler = OnnxRuntime()


class TestOnnxRuntimeUnoptimised(CompilerContract):
    compiler = OnnxRuntime()
    options: ClassVar = {"level": "none", "spin": False}
    models = ("mlp",)


@pytest.mark.parametrize(("level", "int8"), [("all", 1), ("none", 0)])
def test_int8_is_calibrated_and_counted(tmp_path: Path, level: str, int8: int) -> None:
    pytest.importorskip("onnx")
    root = calibrated(tmp_path, "conv")
    error, coverage = error_and_coverage(OnnxRuntime(), root, level=level)
    assert ROUNDED[0] < error < ROUNDED[1]
    # Without its optimiser the runtime takes Q/DQ nodes at their word, and computes in float32.
    assert coverage["products"] == {"int8": int8, "wider": 1 - int8}


def test_int8_without_a_calibration_set_is_unsupported(tmp_path: Path) -> None:
    root = write_workload(tmp_path / "conv", "conv", batches=(2,))
    with pytest.raises(Unsupported, match="--calib"):
        error_and_coverage(OnnxRuntime(), root)


def test_a_quantised_file_runs_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    root = calibrated(tmp_path, "conv")
    workload = observe.open_workload(root, batch=2, precision=INT8)
    (root / "b2" / "model.onnx").write_bytes(quantised_file(workload, per_channel=True))
    (root / "b2" / "calibration.npz").unlink()
    about = json.loads((root / "b2" / "batch.json").read_text())
    (root / "b2" / "batch.json").write_text(json.dumps(about | {"quantised": True}))
    error, coverage = error_and_coverage(OnnxRuntime(), root)
    assert ROUNDED[0] < error < ROUNDED[1]
    assert coverage["products"] == {"int8": 1, "wider": 0}


def test_an_artefact_in_int8_still_says_so(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    workload = observe.open_workload(calibrated(tmp_path, "conv"), batch=2, precision=INT8)
    program = OnnxRuntime().compile(workload, Device(), {})
    program.save(tmp_path)
    loaded = OnnxRuntime().load_artifact(tmp_path, workload, Device(), {})
    assert loaded.coverage()["products"] == program.coverage()["products"]
    assert loaded.coverage()["products"]["int8"] == 1
