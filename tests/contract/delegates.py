"""The conformance suite on a compiler whose delegate takes what it can of an exported graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ngraphbench.plugin import ReportsCoverage
from ngraphbench.testing import CompilerContract, write_workload
from ngraphbench.testing.observe import open_workload
from ngraphbench.types import Device, Json
from ngraphbench.workload import Workload


class DelegateContract(CompilerContract):
    """Checks besides what the delegate took; ``cumsum`` names an operator it does not take."""

    cumsum: ClassVar[str]

    def test_what_the_delegate_took_is_told(self, tmp_path: Path) -> None:
        root = write_workload(tmp_path, "conv", batches=(2,), forms=("torch", "pt2"))
        workload = open_workload(root, batch=2)
        found = self._covered(workload)
        assert (found["share"], found["unit"], found["partitions"]) == (1.0, "flops", 1)
        assert found["parts"]["XNNPACK"] > 0 and found["parts"]["fallback"] == 0
        alone = self._covered(workload, delegate="none")
        assert (alone["share"], alone["partitions"]) == (0.0, 0)
        assert alone["parts"]["XNNPACK"] == 0

    def test_a_delegate_that_took_nothing_is_told_as_such(self, tmp_path: Path) -> None:
        found = self._covered(_exported(tmp_path, "torch.cumsum(x, 1)"))
        assert (found["share"], found["unit"]) == (0.0, "nodes")
        assert found["parts"] == {"XNNPACK": 0, "fallback": 1}
        assert found["fallback_operators"] == [self.cumsum]
        assert any("took no operator" in note for note in found["notes"])

    def _covered(self, workload: Workload, **options: Any) -> Json:
        program = self.compiler.compile(workload, Device(threads=1), self._resolved() | options)
        assert isinstance(program, ReportsCoverage)
        coverage = program.coverage()
        program.close()
        return coverage


def _exported(root: Path, expression: str) -> Workload:
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
