"""The conformance suite on OpenVINO."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from int8 import ROUNDED, calibrated, error_and_coverage

from ngraphbench.compilers.openvino import OpenVino
from ngraphbench.errors import Unsupported
from ngraphbench.testing import CompilerContract


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
