"""The conformance suite on LiteRT, and what is special to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ngraphbench.compilers.litert import LiteRt
from ngraphbench.plugin import resolve_options
from ngraphbench.testing import CompilerContract, write_workload
from ngraphbench.testing.observe import open_workload
from ngraphbench.types import Device, Json
from ngraphbench.workload import Workload

DEVICE = Device(threads=1)


class TestLiteRt(CompilerContract):
    compiler = LiteRt()


@pytest.fixture(autouse=True)
def _need_the_vendor() -> None:
    support = LiteRt().probe(DEVICE)
    if not support.ok:
        pytest.skip(support.hint)


def covered(workload: Workload, **options: Any) -> Json:
    compiler = LiteRt()
    program = compiler.compile(workload, DEVICE, resolve_options(compiler, options))
    coverage = program.coverage()
    program.close()
    return coverage


def test_what_the_delegate_took_is_told(tmp_path: Path) -> None:
    root = write_workload(tmp_path, "conv", batches=(2,), forms=("torch", "pt2"))
    workload = open_workload(root, batch=2)
    found = covered(workload)
    assert (found["share"], found["unit"], found["partitions"]) == (1.0, "flops", 1)
    assert found["parts"]["XNNPACK"] > 0 and found["parts"]["fallback"] == 0
    alone = covered(workload, delegate="none")
    assert (alone["share"], alone["partitions"]) == (0.0, 0)
    assert alone["parts"]["XNNPACK"] == 0


def test_a_delegate_that_took_nothing_is_told_as_such(tmp_path: Path) -> None:
    workload = custom(tmp_path, "torch.cumsum(x, 1)")
    found = covered(workload)
    assert (found["share"], found["unit"]) == (0.0, "nodes")
    assert found["parts"] == {"XNNPACK": 0, "fallback": 1}
    assert found["fallback_operators"] == ["CUMSUM"]
    assert any("took no operator" in note for note in found["notes"])


def custom(root: Path, expression: str) -> Workload:
    """Return a workload of one float32 input ``x`` [2, 4] whose output is the expression."""
    import torch

    from ngraphbench.models.portable import export_program

    write_workload(root, "fake", batches=(2,), forms=("torch", "pt2"))
    namespace: dict[str, Any] = {"torch": torch}
    exec(f"class Net(torch.nn.Module):\n    def forward(self, x): return {expression}", namespace)
    workload = open_workload(root, batch=2)
    x = torch.from_numpy(workload.input_arrays("a")["x"])
    export_program(namespace["Net"]().eval(), {"x": x}, path=workload.pt2_path)
    return workload
