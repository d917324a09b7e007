"""The conformance suite on OpenVINO."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from artefacts import check_prebuilt
from int8 import ROUNDED, calibrated, error_and_coverage

from ngraphbench.compilers.openvino import OpenVino
from ngraphbench.errors import CompileFailed, Unsupported
from ngraphbench.testing import CompilerContract
from ngraphbench.testing.workloads import write_workload


class TestOpenVino(CompilerContract):
    compiler = OpenVino()


@pytest.mark.parametrize("transformer", ["false", "true"])
def test_int8_is_calibrated_and_counted(tmp_path: Path, transformer: str) -> None:
    pytest.importorskip("nncf")
    root = calibrated(tmp_path, "conv")
    error, coverage = error_and_coverage(OpenVino(), root, transformer=transformer)
    assert ROUNDED[0] < error < ROUNDED[1]
    assert coverage["products"] == {"int8": 1, "wider": 0}


def test_int8_without_nncf_is_unsupported_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openvino")
    monkeypatch.setitem(sys.modules, "nncf", None)
    with pytest.raises(Unsupported, match="pip install nncf"):
        error_and_coverage(OpenVino(), calibrated(tmp_path, "conv"))


@pytest.mark.parametrize("dynamic", [True, False])
def test_its_own_files_run_as_they_are(tmp_path: Path, dynamic: bool) -> None:
    openvino = pytest.importorskip("openvino")
    root = write_workload(tmp_path / "source", "conv", batches=(2,))
    model = openvino.Core().read_model(str(root / "b2" / "model.onnx"))
    if dynamic:
        model.reshape([-1, 3, 8, 8])
    openvino.save_model(model, str(tmp_path / "conv.xml"), compress_to_fp16=False)
    assert (tmp_path / "conv.bin").exists()
    check_prebuilt(OpenVino(), tmp_path / "conv.xml", tmp_path, "conv")


def test_a_file_that_is_none_of_its_own_fails_with_its_words(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    (tmp_path / "broken.xml").write_text("<net>")
    with pytest.raises(CompileFailed, match="openvino"):
        OpenVino().signature(tmp_path / "broken.xml", ())
