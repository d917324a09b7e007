from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngraphbench.errors import CompileFailed, Unavailable, Unsupported
from ngraphbench.models.exporter import Exporter
from ngraphbench.models.modules import build_module
from ngraphbench.models.sources import resolve_model
from ngraphbench.models.torchmodel import TorchModel, to_array, to_tensor
from ngraphbench.types import Json
from ngraphbench.workload import Workload, read_arrays

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")


def test_a_head_of_zeros_is_filled_so_that_outputs_follow_inputs() -> None:
    text = "torchvision:vit_b_16?image_size=16&num_classes=3"
    model = TorchModel(resolve_model(text, base=Path.cwd()).to_json())
    assert [note.split(":")[0] for note in model.notes] == ["zero-weights-filled"]
    assert model.module.heads.head.weight.any()


def test_residual_branches_that_start_as_zeros_are_filled() -> None:
    pytest.importorskip("timm")
    model = TorchModel(resolve_model("timm:test_resnet", base=Path.cwd()).to_json())
    scales = [p for n, p in model.module.named_parameters() if p.ndim == 1 and "weight" in n]
    assert scales and all(bool(p.any()) for p in scales)
    assert any("zero-weights-filled: " in note for note in model.notes)


def test_without_torch_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = resolve_model("torchvision:squeezenet1_1", base=Path.cwd()).to_json()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(Unavailable, match="needs torch") as caught:
        Exporter().open({"model": model, "root": str(tmp_path)})
    assert "ngraphbench[torch]" in caught.value.hint


def test_images_have_the_size_the_library_says() -> None:
    def shape(text: str) -> tuple[int | str, ...]:
        model = TorchModel(resolve_model(text, base=Path.cwd()).to_json())
        return model.plan({}).specs[0].shape

    assert shape("torchvision:squeezenet1_1") == ("batch", 3, 224, 224)
    assert shape("torchvision:inception_v3") == ("batch", 3, 299, 299)
    assert shape("torchvision:r3d_18") == ("batch", 3, 16, 224, 224)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "bool"])
def test_tensors_survive_the_way_through_arrays(dtype: str) -> None:
    tensor = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype)).t()
    back = to_tensor(to_array(tensor), dtype)
    assert back.dtype == tensor.dtype
    assert torch.equal(back, tensor)


NETS = """
import torch

class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
    def forward(self, x):
        self.calls += 1
        return x * self.calls

class Writes(torch.nn.Module):
    def forward(self, x):
        return x.mul_(2).relu()

class Chaos(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x * 1e9)

class Two(torch.nn.Module):
    def forward(self, image, scale, bias=None):
        return image * scale

def net(kind):
    return globals()[kind](), lambda batch: (torch.randn(batch, 8),)

def bare():
    return Two()
"""


def batch_of(folder: Path, name: str) -> Json:
    (folder / "nets.py").write_text(NETS)
    exporter = Exporter()
    model = resolve_model(f"nets.py:net?kind={name}", base=folder).to_json()
    exporter.open({"model": model, "root": str(folder / "w"), "seed": 0})
    return exporter.batch({"batch": 2})


def test_a_module_that_changes_itself_is_stateful(tmp_path: Path) -> None:
    bound = batch_of(tmp_path, "Counts")
    assert (bound["stateful"], bound["deterministic"]) == ("calls", False)
    assert any(note.startswith("stateful: a run changes calls") for note in bound["notes"])


def test_a_module_that_writes_into_its_input_gets_a_fresh_one_each_time(tmp_path: Path) -> None:
    bound = batch_of(tmp_path, "Writes")
    assert (bound["stateful"], bound["deterministic"]) == ("", True)
    folder = tmp_path / "w" / "b2"
    x, y = (read_arrays(folder / f"{kind}-a.npz") for kind in ("inputs", "reference"))
    assert np.allclose(y["output"], np.maximum(2 * x["x"].astype(np.float64), 0))


def test_a_module_whose_rounding_decides_is_ill_conditioned(tmp_path: Path) -> None:
    bound = batch_of(tmp_path, "Chaos")
    assert bound["ill_conditioned"] and bound["reference"] == "eager-fp64"
    assert bound["baseline_rel_l2"] > 1e-2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["imag"], "forward takes image, scale, bias"),
        (["image"], "forward also needs scale"),
        (["image", "bias"], "forward also needs scale"),
    ],
)
def test_inputs_must_be_those_of_forward(tmp_path: Path, given: list[str], words: str) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    model = TorchModel(resolve_model("nets.py:bare", base=tmp_path).to_json())
    with pytest.raises(Unsupported, match=words) as caught:
        model.plan({name: {"shape": ["batch", 4]} for name in given})
    assert caught.value.reason == "input"
    assert model.plan({name: {"shape": ["batch", 4]} for name in ("image", "scale")}).specs


def test_a_factory_may_build_in_inference_mode(tmp_path: Path) -> None:
    made = "@torch.inference_mode()\ndef made():\n    return torch.nn.Linear(4, 3)\n"
    (tmp_path / "made.py").write_text(f"import torch\n\n\n{made}")
    model = TorchModel(resolve_model("made.py:made", base=tmp_path).to_json())
    before = model.state()
    assert model.changed_since(before) == ""
    with torch.inference_mode():
        model.module.bias.add_(1.0)
    assert model.changed_since(before) == "bias"


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.layer(image).relu()


def saved(folder: Path, name: str, **more: Any) -> Exporter:
    exporter = Exporter()
    model = resolve_model(name, base=folder, **more).to_json()
    assert (model["kind"], model["weights"], model["label"]) == ("saved", "file", "m")
    opened = exporter.open({"model": model, "root": str(folder / "w"), "seed": 0})
    assert (opened["weights"], opened["inputs"][0]["name"]) == ("file", "image")
    return exporter


def holds(folder: Path, module: torch.nn.Module, *, batch: int) -> bool:
    """Return whether the reference is what ``module`` gives, and a worker would build it."""
    place = folder / "w" / f"b{batch}"
    x, y = (read_arrays(place / f"{kind}-a.npz") for kind in ("inputs", "reference"))
    built = build_module(Workload.open(folder / "w", batch=batch))
    tensor = torch.from_numpy(x["image"])
    assert torch.equal(built(tensor), module(tensor))
    return np.allclose(y["output"], module(tensor).detach().numpy(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [True, False])
def test_an_exported_program_is_a_model(tmp_path: Path, dynamic: bool) -> None:
    module = Small().eval()
    shapes = ({0: torch.export.Dim("batch")},) if dynamic else None
    program = torch.export.export(module, (torch.randn(2, 4),), dynamic_shapes=shapes)
    torch.export.save(program, str(tmp_path / "m.pt2"))
    exporter = saved(tmp_path, "m.pt2")
    assert exporter.batch({"batch": 2})["reference"] == "eager-fp64"
    assert holds(tmp_path, module, batch=2)
    if dynamic:
        assert exporter.batch({"batch": 5})["outputs"][0]["shape"] == [5, 3]
        return
    with pytest.raises(Unsupported) as caught:
        exporter.batch({"batch": 5})
    assert caught.value.reason == "batch-fixed"


@pytest.mark.slow
def test_torchscript_is_a_model_once_its_inputs_are_given(tmp_path: Path) -> None:
    module = Small().eval()
    torch.jit.script(module).save(str(tmp_path / "m.torchscript"))
    given = {"image": {"shape": ["batch", 4]}}
    exporter = saved(tmp_path, "m.torchscript", inputs=given)
    assert exporter.batch({"batch": 3})["outputs"][0]["shape"] == [3, 3]
    assert holds(tmp_path, module, batch=3)
    with pytest.raises(Unsupported, match="Nothing says"):
        saved(tmp_path, "m.torchscript")


def test_a_file_of_weights_is_no_model(tmp_path: Path) -> None:
    torch.save(Small().state_dict(), tmp_path / "m.pt")
    with pytest.raises(CompileFailed, match="cannot be read as TorchScript") as caught:
        saved(tmp_path, "m.pt")
    assert "checkpoint" in caught.value.hint
