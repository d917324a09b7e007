"""ncnn: the conformance suite, and what is special to it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from ngraphbench.compilers.ncnn import HALF, Ncnn, NcnnProgram, _check_integers, _check_layers
from ngraphbench.errors import RunFailed, Unsupported
from ngraphbench.plugin import resolve_options
from ngraphbench.testing import CompilerContract, observe
from ngraphbench.testing.workloads import reference_arrays, write_workload
from ngraphbench.types import Device, TensorSpec

NCNN = Ncnn()
IDS = TensorSpec("ids", "int64", (1, 6))


class TestNcnn(CompilerContract):
    compiler = Ncnn()


@pytest.fixture
def _vendor() -> None:
    support = NCNN.probe(Device())
    if not support.ok:
        pytest.skip(support.hint)


def _compiled(
    root: Path, sample: str, *, batch: int, precision: str = "fp32", preset: str = "recommended"
) -> NcnnProgram:
    write_workload(root, sample)
    workload = observe.open_workload(root, batch=batch, precision=precision)
    return NCNN.compile(workload, Device(), resolve_options(NCNN, {"preset": preset}))


@pytest.mark.parametrize("preset", ["shipped", "recommended"])
def test_nothing_is_kept_in_16_bits_unless_asked(
    tmp_path: Path, preset: str, _vendor: None
) -> None:
    program = _compiled(tmp_path, "conv", batch=1, preset=preset)
    assert not [name for name in HALF if getattr(program._net.opt, name)]
    program.close()


def test_a_batch_is_one_matrix_and_one_extraction(tmp_path: Path, _vendor: None) -> None:
    program = _compiled(tmp_path, "conv", batch=3)
    program.load(observe.open_workload(tmp_path, batch=3).input_arrays("a"))
    assert [mat.n for _, mat in program._inputs] == [3]
    program.run()
    assert len(program._results) == 1
    program.close()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_integers_arrive_unchanged(tmp_path: Path, precision: str, _vendor: None) -> None:
    program = _compiled(tmp_path, "tokens", batch=2, precision=precision)
    program.run()
    wanted = reference_arrays(tmp_path, batch=2)["output"]
    error = observe.relative_error(program.outputs()["output"], wanted)
    assert error < (1e-5 if precision == "fp32" else 0.05)
    program.close()


def test_integers_beyond_its_own_are_refused(tmp_path: Path, _vendor: None) -> None:
    program = _compiled(tmp_path, "tokens", batch=1)
    with pytest.raises(RunFailed, match="beyond int32"):
        program.load({"ids": np.full((1, 6), 2**40, np.int64)})
    program.close()


def test_converting_leaves_no_files(tmp_path: Path, _vendor: None) -> None:
    root = write_workload(tmp_path / "model", "conv", batches=(1,))
    before = sorted(root.rglob("*"))
    temporary = set(Path(tempfile.gettempdir()).glob("ncnn-*"))
    program = NCNN.compile(observe.open_workload(root, batch=1), Device(), {})
    assert sorted(root.rglob("*")) == before
    program.close()
    assert set(Path(tempfile.gettempdir()).glob("ncnn-*")) <= temporary


def test_layers_it_lacks_are_named(_vendor: None) -> None:
    graph = "7767517\n2 3\nInput in0 0 1 in0\ntorch.unbind unbind_0 1 2 in0 a b\n"
    with pytest.raises(Unsupported, match=r"no layer for torch\.unbind"):
        _check_layers(graph)


def test_integers_are_only_looked_up() -> None:
    looked_up = (
        "7767517\n4 5\nInput in0 0 1 in0\nSplit s 1 2 in0 1 2\n"
        "Embed e 1 1 1 3 0=8\nEmbed f 1 1 2 4 0=8\n"
    )
    _check_integers(looked_up, (IDS,))
    added = looked_up.replace("Embed f 1 1 2 4 0=8", "BinaryOp f 1 1 2 4 0=0 1=1")
    with pytest.raises(Unsupported, match="BinaryOp reads floats"):
        _check_integers(added, (IDS,))
    _check_integers(added, (TensorSpec("x", "float32", (1, 6)),))
