from __future__ import annotations

from pathlib import Path

import pytest

from ngraphbench.models.sources import resolve_model
from ngraphbench.models.torchmodel import TorchModel, to_array, to_tensor

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")


def test_a_head_of_zeros_is_filled_so_that_outputs_follow_inputs() -> None:
    text = "torchvision:vit_b_16?image_size=16&num_classes=3"
    model = TorchModel(resolve_model(text, base=Path.cwd()).to_json())
    assert [note.split(":")[0] for note in model.notes] == ["zero-weights-filled"]
    assert model.module.heads.head.weight.any()


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
