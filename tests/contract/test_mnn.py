"""MNN: the conformance suite, and what is special to it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngraphbench.compilers.mnn import Mnn, MnnProgram, _has_exact_gelu
from ngraphbench.errors import RunFailed
from ngraphbench.plugin import resolve_options
from ngraphbench.testing import CompilerContract, observe
from ngraphbench.testing.workloads import write_workload
from ngraphbench.types import VENDOR_DEFAULT, Device

MNN = Mnn()
GELU = b"\x0a\x01x\x12\x01y\x22\x04Gelu"
TANH = b"\x2a\x18\x0a\x0bapproximate\xa0\x01\x03\x22\x04tanh"


class TestMnn(CompilerContract):
    compiler = Mnn()


@pytest.fixture
def _vendor() -> None:
    support = MNN.probe(Device())
    if not support.ok:
        pytest.skip(support.hint)


def _compiled(root: Path, sample: str, *, threads: int = 1, preset: str = "shipped") -> MnnProgram:
    write_workload(root, sample, batches=(1,))
    workload = observe.open_workload(root, batch=1)
    return MNN.compile(workload, Device(threads=threads), resolve_options(MNN, {"preset": preset}))


@pytest.mark.parametrize("preset", ["shipped", "recommended"])
@pytest.mark.parametrize("threads", [1, 2, VENDOR_DEFAULT])
def test_fp32_is_pinned_and_threads_are_passed_on(
    tmp_path: Path, preset: str, threads: int, monkeypatch: pytest.MonkeyPatch, _vendor: None
) -> None:
    from MNN import nn

    asked: list[dict[str, Any]] = []
    real = nn.create_runtime_manager
    monkeypatch.setattr(nn, "create_runtime_manager", lambda c: asked.extend(c) or real(c))
    _compiled(tmp_path, "mlp", threads=threads, preset=preset).close()
    assert [config["precision"] for config in asked] == ["high"]
    assert [config.get("numThread", VENDOR_DEFAULT) for config in asked] == [threads]


def test_integers_beyond_its_own_are_refused(tmp_path: Path, _vendor: None) -> None:
    program = _compiled(tmp_path, "tokens")
    with pytest.raises(RunFailed, match="beyond int32"):
        program.load({"ids": np.full((1, 6), 2**40, np.int64)})
    program.close()


def test_converting_leaves_no_files_and_reports_to_nobody(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], _vendor: None
) -> None:
    root = write_workload(tmp_path / "model", "conv", batches=(1,))
    before = sorted(root.rglob("*"))
    temporary = set(Path(tempfile.gettempdir()).glob("mnn-*"))
    program = MNN.compile(observe.open_workload(root, batch=1), Device(), {})
    assert sorted(root.rglob("*")) == before
    program.close()
    assert set(Path(tempfile.gettempdir()).glob("mnn-*")) <= temporary
    told = capfd.readouterr().err
    assert "Converted Success" in told and "aliyun" not in told


@pytest.mark.parametrize(
    ("content", "exact"),
    [(GELU, True), (GELU + TANH, False), (b"\x22\x04Relu", False), (b"no Gelu here", False)],
)
def test_gelu_is_told_from_its_approximation(tmp_path: Path, content: bytes, exact: bool) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert _has_exact_gelu(path) is exact
