from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from run_fixture import Run

from ngraphbench.cli.app import run as run_command
from ngraphbench.errors import SpecError, Unsupported
from ngraphbench.models.blocks import FAMILIES, block_sizes, build_block, count_block
from ngraphbench.models.exporter import Exporter
from ngraphbench.models.modules import build_module, flatten_outputs
from ngraphbench.models.sources import resolve_model
from ngraphbench.models.torchmodel import to_array
from ngraphbench.store.schema import load_schema
from ngraphbench.types import Json
from ngraphbench.workload import Workload, read_arrays

torch = pytest.importorskip("torch")
pytest.importorskip("timm")


def test_defaults_are_part_of_the_model() -> None:
    plain = resolve_model("block:vit", base=Path())
    spelled = resolve_model("block:vit?depth=4&width=64&resolution=56", base=Path())
    assert plain.args == {"depth": 4, "width": 64, "resolution": 56}
    assert plain.content == spelled.content
    assert plain.content != resolve_model("block:vit?depth=5", base=Path()).content


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("block:vitt", "vit"),
        ("block:vit?deep=3", "depth"),
        ("block:vit?depth=0", "from 1 on"),
        ("block:vit?width=40", "multiple of 32"),
        ("block:vit?depth=true", "from 1 on"),
        ("block:", "block:NAME"),
    ],
)
def test_what_does_not_fit_is_refused_before_torch(text: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_model(text, base=Path())
    assert hint in str(caught.value)


def test_there_are_no_pretrained_blocks() -> None:
    with pytest.raises(SpecError):
        resolve_model("block:vit", base=Path(), pretrained=True)
    with pytest.raises(Unsupported):
        build_block({"source": "block:vit"}, pretrained=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_more_block_adds_the_same(family: str) -> None:
    """Stem and head stay: parameters and FLOPs are straight lines over depth."""
    two, four = ({"depth": depth, "width": 32, "resolution": 56} for depth in (2, 4))
    a, b = count_block(family, two), count_block(family, four)
    assert a["block_parameters"] == b["block_parameters"] > 0
    assert a["block_flops"] == b["block_flops"] > 0
    assert b["parameters"] - a["parameters"] == 2 * a["block_parameters"]
    assert b["flops"] - a["flops"] == 2 * a["block_flops"]


def test_flops_of_a_basic_block_by_hand() -> None:
    found = count_block("basic", {"depth": 1, "width": 64, "resolution": 56})
    assert found["block_flops"] == 2 * 2 * 14 * 14 * 9 * 64 * 64
    assert found["block_parameters"] == 2 * (9 * 64 * 64 + 2 * 64)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_block_changes_the_output(family: str) -> None:
    args = block_sizes(family, {"depth": 2, "width": 32, "resolution": 32})
    torch.manual_seed(0)
    module = build_block({"source": f"block:{family}", "args": args}).eval()
    image = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        whole = module(image)
        without = torch.nn.Sequential(module[0], module[1], module[3])(image)
    assert float((whole - without).norm() / whole.norm()) > 1e-3
    assert not torch.allclose(whole[0], whole[1])


FACTORY = """
import torch
from ngraphbench.models.blocks import FAMILIES, block_sizes, build_block

class All(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.families = torch.nn.ModuleDict({
            family: build_block({
                "source": f"block:{family}",
                "args": block_sizes(
                    family, {"depth": 1 + (family == "swin"), "width": 32, "resolution": 32}
                ),
            })
            for family in FAMILIES
        })
    def forward(self, image):
        return {family: module(image) for family, module in self.families.items()}

def everything():
    return All(), lambda batch: (torch.randn(batch, 3, 32, 32),)
"""


def exported(text: str, folder: Path) -> tuple[Json, Workload]:
    model = resolve_model(text, base=folder)
    exporter = Exporter()
    exporter.open({"model": model.to_json(), "root": str(folder / "w"), "seed": 0})
    return exporter.batch({"batch": 3}), Workload.open(folder / "w", batch=3)


def agree(workload: Workload, outputs: list[str]) -> None:
    """Check that the module as a worker builds it, and ONNX Runtime, give the reference."""
    runtime = pytest.importorskip("onnxruntime")
    images = read_arrays(workload.folder / "inputs-a.npz")
    wanted = read_arrays(workload.folder / "reference-a.npz")
    with torch.no_grad():
        result = build_module(workload)(*map(torch.from_numpy, images.values()))
    eager = {name: to_array(tensor) for name, tensor in flatten_outputs(result)}
    session = runtime.InferenceSession(workload.onnx_path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    compiled = dict(zip(names, session.run(None, images), strict=True))
    assert list(wanted) == outputs
    for name in outputs:
        for found in (eager[name], compiled[name]):
            error = np.linalg.norm(found - wanted[name])
            assert error < 1e-4 * np.linalg.norm(wanted[name]), name


@pytest.mark.slow
def test_every_family_agrees_in_eager_and_onnxruntime(tmp_path: Path) -> None:
    """In one graph: an export costs seconds before its first operator."""
    (tmp_path / "factory.py").write_text(FACTORY)
    bound, workload = exported("factory.py:everything", tmp_path)
    assert set(bound["forms"]) == {"torch", "onnx"}, bound["export_error"]
    agree(workload, [f"output.{family}" for family in FAMILIES])


@pytest.mark.slow
def test_a_block_goes_through_the_exporter(tmp_path: Path) -> None:
    bound, workload = exported("block:basic?depth=1&width=32&resolution=32", tmp_path)
    assert set(bound["forms"]) == {"torch", "onnx"}, bound["export_error"]
    assert not bound["constant"]
    assert [spec["shape"] for spec in bound["inputs"]] == [[3, 3, 32, 32]]
    agree(workload, ["output"])


def test_records_of_blocks_fit_the_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    run, model = Run(), resolve_model("block:vit", base=Path())
    record = run.cell(run.session("b"), model, "eager", 1, ms=2.0, verification=None)
    jsonschema.validate(record, load_schema())


def test_families_are_listed_without_torch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "timm.models", None)
    assert run_command(["list", "blocks"]) == 0
    told = capsys.readouterr()
    assert "mobilevit" in told.out
    assert "ngraphbench[torch]" in told.err
