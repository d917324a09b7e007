"""Modules from model references, and the names of nested inputs and outputs."""

from __future__ import annotations

import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from ngraphbench.errors import CompileFailed, RunFailed, SpecError, Unsupported
from ngraphbench.models.modules import (
    arrange_inputs,
    build_module,
    create_module,
    flatten_inputs,
    flatten_outputs,
)
from ngraphbench.testing.observe import open_workload
from ngraphbench.testing.workloads import write_workload

torch = pytest.importorskip("torch", reason="pip install ngraphbench[torch]")

SOURCE = """
import torch
import beside

class Net(torch.nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.layer = torch.nn.Linear(width, 2)
    def forward(self, x, mask=None, scale=None):
        return self.layer(x)

def pair():
    return Net(), (torch.zeros(2, 3),)

def callable_pair():
    return Net(), lambda batch: (torch.zeros(batch, 3),)

def broken():
    raise ValueError("no such width")

def number():
    return 3
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("VALUE = 1\n")
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    return path


def _model(source: Path, factory: str, **more: Any) -> dict[str, Any]:
    return {"kind": "file", "source": f"net.py:{factory}", "path": str(source), "seed": 0} | more


def test_same_seed_gives_same_weights(source: Path) -> None:
    first, _ = create_module(_model(source, "Net"))
    second, _ = create_module(_model(source, "Net"))
    other, _ = create_module(_model(source, "Net", seed=1))
    assert torch.equal(first.layer.weight, second.layer.weight)
    assert not torch.equal(first.layer.weight, other.layer.weight)
    assert not first.training


def test_arguments_reach_the_factory(source: Path) -> None:
    module, examples = create_module(_model(source, "Net", args={"width": 5}))
    assert module.layer.in_features == 5
    assert examples is None


@pytest.mark.parametrize("factory", ["pair", "callable_pair"])
def test_example_inputs_follow_the_batch(source: Path, factory: str) -> None:
    _, examples = create_module(_model(source, factory))
    assert examples is not None
    assert [tuple(t.shape) for t in examples(5)] == [(5, 3)]


def test_errors_name_the_cause(source: Path) -> None:
    with pytest.raises(SpecError, match="Did you mean 'Net'"):
        create_module(_model(source, "Nett"))
    with pytest.raises(CompileFailed, match="no such width") as broken:
        create_module(_model(source, "broken"))
    assert "?name=value" in broken.value.hint
    with pytest.raises(SpecError, match="gave a int"):
        create_module(_model(source, "number"))
    with pytest.raises(SpecError, match="no model file"):
        create_module(_model(source.with_name("gone.py"), "Net"))
    with pytest.raises(Unsupported):
        create_module({"kind": "onnx", "source": "x.onnx"})


def test_unknown_library_model_names_the_nearest() -> None:
    pytest.importorskip("timm")
    with pytest.raises(SpecError, match="resnet18"):
        create_module({"kind": "timm", "source": "timm:resnet81"})


def test_weights_file_decides(tmp_path: Path) -> None:
    root = write_workload(tmp_path, "mlp")
    state = build_module(open_workload(root, batch=1)).state_dict()
    torch.save({name: value + 1 for name, value in state.items()}, root / "weights.pt")
    changed = build_module(open_workload(root, batch=1)).state_dict()
    assert all(torch.equal(changed[name], value + 1) for name, value in state.items())
    torch.save({"w1": state["w1"]}, root / "weights.pt")
    with pytest.raises(CompileFailed, match="do not fit"):
        build_module(open_workload(root, batch=1))


def test_outputs_are_named_by_place() -> None:
    t = torch.zeros(1)
    point = namedtuple("point", ["u", "v"])
    value = {"b": t, "a": {"c": t, "none": None}, "l": [t, 3], "p": point(t, "text")}
    names = [name for name, _ in flatten_outputs(value)]
    assert names == ["output.b", "output.a.c", "output.l.0", "output.p.u"]
    assert [name for name, _ in flatten_outputs(t)] == ["output"]
    assert [name for name, _ in flatten_outputs((t, t))] == ["output.0", "output.1"]
    with pytest.raises(RunFailed, match="no tensor, but float"):
        flatten_outputs(1.0)


def test_inputs_are_named_by_argument(source: Path) -> None:
    module, _ = create_module(_model(source, "Net"))
    t = torch.zeros(1)
    assert [name for name, _ in flatten_inputs(module, (t, t))] == ["x", "mask"]
    assert [name for name, _ in flatten_inputs(module, {"x": t, "scale": t})] == ["x", "scale"]
    assert arrange_inputs(module, {"x": 1, "scale": 2}) == ((1,), {"scale": 2})
    assert arrange_inputs(module, {"x": 1, "mask": 2}) == ((1, 2), {})
    assert arrange_inputs(module, {"other": 1}) == ((1,), {})
    with pytest.raises(Unsupported, match="not a tensor"):
        flatten_inputs(module, (t, 3))


def test_importing_needs_no_vendor() -> None:
    code = (
        "import sys, ngraphbench.models.modules, ngraphbench.compilers.pytorch as p\n"
        "import ngraphbench.compilers.onnxruntime, ngraphbench.compilers.openvino\n"
        "print(sorted({'torch', 'onnx', 'onnxruntime', 'openvino'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
