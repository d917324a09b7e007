"""The conformance suite on LiteRT."""

from __future__ import annotations

from pathlib import Path

import pytest
from artefacts import check_prebuilt, saved
from delegates import DelegateContract

from ngraphbench.compilers.litert import LiteRt
from ngraphbench.types import Device


class TestLiteRt(DelegateContract):
    compiler = LiteRt()
    cumsum = "CUMSUM"


def test_a_tflite_runs_as_it_is(tmp_path: Path) -> None:
    if not (support := LiteRt().probe(Device())).ok:
        pytest.skip(support.hint)
    file = saved(LiteRt(), tmp_path, "conv")
    check_prebuilt(LiteRt(), file, tmp_path, "conv")
