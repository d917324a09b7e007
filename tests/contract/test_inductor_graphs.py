"""What Inductor tells of its graphs: breaks, what is left to eager, the recompile limit."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngraphbench.compilers.pytorch import Inductor
from ngraphbench.models.modules import build_module
from ngraphbench.session.flags import coverage_flag
from ngraphbench.types import Device, TensorSpec
from ngraphbench.workload import Workload, write_arrays

TWO_GRAPHS = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1
"""

PARTLY_TAKEN = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))

    @torch.compiler.disable
    def aside(self, x):
        return self.layers[3](x)

    def forward(self, x):
        x = self.layers[1](self.layers[0](x))
        return self.layers[2](self.aside(x))
"""

NEVER_THE_SAME = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x) + 0 * self.calls
"""

NEVER_THE_SAME_IN_TWO_GRAPHS = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(2))
        self.calls = 0

    @torch.compiler.disable
    def count(self):
        self.calls += 1

    def forward(self, x):
        x = self.layers[0](x)
        self.count()
        return self.layers[1](x) + 0 * self.calls
"""


DEVICE = Device(threads=1)


@pytest.mark.slow
def test_inductor_counts_its_graphs(tmp_path: Path) -> None:
    coverage = _inductor(tmp_path, TWO_GRAPHS).coverage()
    assert coverage["graphs"] == 2
    assert coverage["graph_breaks"] == 1
    assert not coverage["fell_back_to_eager"]


@pytest.mark.slow
def test_inductor_tells_what_it_did_not_compile(tmp_path: Path) -> None:
    program = _inductor(tmp_path, PARTLY_TAKEN)
    coverage = program.coverage()
    # Three of four equal products are inside of graphs.
    assert coverage["share"] == pytest.approx(0.75)
    assert coverage["unit"] == "flops"
    assert coverage["graph_breaks"] >= 1
    assert (coverage["recompiles"], coverage["recompile_limit_hit"]) == (0, False)
    again = program.coverage()
    assert again == coverage, "Looking at it must not look like a recompilation."


@pytest.mark.slow
def test_inductor_tells_that_it_gave_up_recompiling(tmp_path: Path) -> None:
    dynamo: Any = pytest.importorskip("torch._dynamo")
    with dynamo.config.patch(recompile_limit=3):
        coverage = _inductor(tmp_path, NEVER_THE_SAME).coverage()
    dynamo.reset()
    assert coverage["recompile_limit_hit"] and coverage["fell_back_to_eager"]
    assert (coverage["graph_breaks"], coverage["recompiles"]) == (0, 2)
    flag = coverage_flag(coverage)
    assert flag is not None and flag["flag"] == "partly-compiled"


def test_inductor_tells_that_it_gave_up_on_one_of_its_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dynamo: Any = pytest.importorskip("torch._dynamo")
    torch: Any = pytest.importorskip("torch")
    # What Dynamo takes is the same for every backend, and this one takes no time.
    quick = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", lambda module, mode, **kept: quick(module, **kept))
    dynamo.reset()
    with dynamo.config.patch(recompile_limit=3):
        coverage = _inductor(tmp_path, NEVER_THE_SAME_IN_TWO_GRAPHS).coverage()
    dynamo.reset()
    assert coverage["recompile_limit_hit"] and coverage["graph_breaks"] >= 1
    assert coverage["share"] is None and not coverage["fell_back_to_eager"]
    flag = coverage_flag(coverage)
    assert flag is not None and flag["flag"] == "partly-compiled"


def _inductor(tmp_path: Path, source: str) -> Any:
    support = Inductor().probe(DEVICE)
    if not support.ok:
        pytest.skip(support.hint)
    (tmp_path / "b2").mkdir()
    (tmp_path / "net.py").write_text(source)
    write_arrays(tmp_path / "b2/inputs-a.npz", {"x": np.ones((2, 64), np.float32)})
    workload = Workload(
        root=tmp_path,
        batch=2,
        precision="fp32",
        forms=("torch",),
        inputs=(TensorSpec("x", "float32", (2, 64)),),
        outputs=(TensorSpec("output", "float32", (2, 64)),),
        model={"source": "net.py:Net", "path": str(tmp_path / "net.py"), "kind": "file", "seed": 0},
        build=build_module,
    )
    return Inductor().compile(workload, DEVICE, {})
