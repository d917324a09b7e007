"""Torch modules as torch.export programs: written on demand, checked, read elsewhere."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngraphbench.compilers.exported import delegated, graph_flops, load_exported
from ngraphbench.errors import CompileFailed, Unsupported
from ngraphbench.models.exporter import Exporter
from ngraphbench.models.origins import Bound, TorchSource
from ngraphbench.models.sources import resolve_model
from ngraphbench.testing.workloads import reference_arrays, write_workload
from ngraphbench.types import Json
from ngraphbench.workload import Workload, read_arrays

torch = pytest.importorskip("torch")

NETS = """
import torch

class Rows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(50, 8)
    def forward(self, ids, scale=None, shift=None):
        rows = self.table(ids) + shift
        return {'sum': rows.sum(1), 'none': None, 'best': rows.sum(1).argmax(-1)}

class Branches(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1

def rows():
    return Rows(), lambda b: {'shift': torch.randn(b, 6, 1), 'ids': torch.randint(0, 50, (b, 6))}

def branches():
    return Branches(), lambda b: (torch.randn(b, 3),)
"""


@pytest.fixture(autouse=True)
def _without_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the ONNX form, which takes seconds and is tested elsewhere."""
    bound = Bound(forms=("torch",))
    monkeypatch.setattr(TorchSource, "finish", lambda *arguments: bound)


def exported(folder: Path, factory: str, *, forms: list[str]) -> Json:
    (folder / "nets.py").write_text(NETS)
    exporter = Exporter()
    model = resolve_model(f"nets.py:{factory}", base=folder).to_json()
    exporter.open({"model": model, "root": str(folder / "w"), "seed": 0})
    return exporter.batch({"batch": 3, "forms": forms})


def run(workload: Workload, which: str) -> list[Any]:
    arrays = workload.input_arrays(which)
    tensors = [torch.from_numpy(arrays[spec.name]) for spec in workload.inputs]
    with torch.no_grad():
        return list(load_exported(workload).module()(*tensors))


def test_a_program_takes_and_gives_what_the_workload_says_in_its_order(tmp_path: Path) -> None:
    bound = exported(tmp_path, "rows", forms=["pt2"])
    assert "pt2" in bound["forms"] and bound["pt2_error"] == ""
    workload = Workload.open(tmp_path / "w", batch=3)
    assert workload.pt2_path.is_file()
    for which in ("a", "b"):
        found = run(workload, which)
        wanted = read_arrays(workload.folder / f"reference-{which}.npz")
        assert len(found) == len(wanted) == 2
        for tensor, spec in zip(found, workload.outputs, strict=True):
            assert np.allclose(tensor.numpy(), wanted[spec.name], atol=1e-5)


def test_nothing_is_written_that_nobody_takes(tmp_path: Path) -> None:
    assert "pt2" not in exported(tmp_path, "rows", forms=[])["forms"]
    workload = Workload.open(tmp_path / "w", batch=3)
    assert not (workload.folder / "model.pt2").exists()
    with pytest.raises(Unsupported, match="no torch\\.export form"):
        _ = workload.pt2_path


def test_what_cannot_be_exported_says_why(tmp_path: Path) -> None:
    bound = exported(tmp_path, "branches", forms=["pt2"])
    assert "torch" in bound["forms"] and "pt2" not in bound["forms"]
    with pytest.raises(Unsupported, match=r"torch\.export: .*data-dependent") as caught:
        _ = Workload.open(tmp_path / "w", batch=3).pt2_path
    assert caught.value.reason == "export-failed"


def other_version(path: Path, version: str) -> None:
    """Write what another version of torch might have, which no torch here can read."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("m/models/model.json", json.dumps({"torch_version": version}))


def test_a_program_of_another_torch_is_unsupported_and_a_broken_one_is_not(tmp_path: Path) -> None:
    root = write_workload(tmp_path, "mlp", batches=(1,), forms=("torch",))
    workload = replace(Workload.open(root, batch=1), forms=("pt2",))
    other_version(workload.pt2_path, "99.1.0")
    with pytest.raises(Unsupported, match=r"that torch 99\.1\.0 exported") as caught:
        load_exported(workload)
    assert caught.value.reason == "model-format"
    assert "99.1.0 or " in caught.value.hint
    other_version(workload.pt2_path, torch.__version__)
    with pytest.raises(CompileFailed, match="cannot be read"):
        load_exported(workload)


def test_a_delegates_share_is_of_flops_and_of_nodes_where_there_are_none(tmp_path: Path) -> None:
    root = write_workload(tmp_path, "conv", batches=(2,), forms=("torch", "pt2"))
    workload = Workload.open(root, batch=2)
    (found,) = run(workload, "a")
    wanted = reference_arrays(root, batch=2)["output"]
    assert np.allclose(found.numpy(), wanted, atol=1e-5)
    program = load_exported(workload).run_decompositions()
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    assert [str(node.target) for node in nodes] == ["aten.convolution.default", "aten.relu.default"]
    # Two for each multiply-add: 2 images, 4 of 3 channels, 8 x 8 places, 3 x 3 weights.
    assert graph_flops(nodes) == 2 * 2 * 4 * 3 * 64 * 9
    whole = delegated(taken=nodes[:1], left=nodes[1:], name="D")
    assert (whole["share"], whole["unit"]) == (1.0, "flops")
    assert whole["parts"] == {"D": 1, "fallback": 1}
    assert whole["fallback_operators"] == ["aten.relu"]
    none = delegated(taken=[], left=nodes[1:], name="D")
    assert (none["share"], none["unit"]) == (0.0, "nodes")
    assert any("took no operator" in note for note in none["notes"])
    assert delegated(taken=[], left=[], name="D")["share"] is None
