"""Models of transformers: from types, configurations and folders, and never from a hub."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import ngb, records
from steady import as_steady

from ngraphbench.errors import SpecError
from ngraphbench.models.modules import create_module
from ngraphbench.models.sources import resolve_model
from ngraphbench.models.torchmodel import TorchModel
from ngraphbench.types import Arrays, Json, TensorSpec

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

BERT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 50,
}
SIZES: dict[str, Json] = {
    "bert": BERT,
    "vit": {**BERT, "image_size": 16, "patch_size": 8},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 50},
    "llama": {**BERT, "num_key_value_heads": 2, "architectures": ["LlamaForCausalLM"]},
    "t5": {"d_model": 16, "d_kv": 8, "num_layers": 1, "num_heads": 2, "d_ff": 32,
           "vocab_size": 50},
}  # fmt: skip
SIZES["vit"].pop("vocab_size")
INPUTS = {
    "bert": ["input_ids", "attention_mask"],
    "vit": ["pixel_values"],
    "gpt2": ["input_ids", "attention_mask"],
    "llama": ["input_ids", "attention_mask"],
    "t5": ["input_ids", "attention_mask", "decoder_input_ids"],
}
OUTPUTS = {
    "bert": {"output.last_hidden_state": (2, 64, 16), "output.pooler_output": (2, 16)},
    "vit": {"output.last_hidden_state": (2, 5, 16), "output.pooler_output": (2, 16)},
    "gpt2": {"output.last_hidden_state": (2, 64, 16)},
    "llama": {"output.logits": (2, 64, 50)},
    "t5": {
        "output.last_hidden_state": (2, 64, 16),
        "output.encoder_last_hidden_state": (2, 64, 16),
    },
}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return


def opened(source: str, base: Path, **more: Any) -> TorchModel:
    return TorchModel(resolve_model(source, base=base, **more).to_json())


def inputs_of(model: TorchModel) -> tuple[tuple[TensorSpec, ...], Arrays]:
    from ngraphbench.models.feeds import make_feed

    feed = make_feed(model.plan({}), 2, seed=0, attempt=0, examples=lambda seed: {})
    return feed.specs, feed.a


@pytest.mark.parametrize("name", SIZES)
def test_a_type_runs_on_inputs_of_its_configuration(tmp_path: Path, name: str) -> None:
    model = opened(f"transformers:{name}", tmp_path, args=SIZES[name])
    specs, arrays = inputs_of(model)
    assert list(arrays) == INPUTS[name]
    for key in ("input_ids", "decoder_input_ids"):
        if key in arrays:
            assert 40 < arrays[key].max() < 50 and arrays[key].min() >= 0
    assert all(array.all() for key, array in arrays.items() if key == "attention_mask")
    outputs = model.run(arrays, specs)
    # Keys and values for later runs would be outputs too.
    assert {key: array.shape for key, array in outputs.arrays.items()} == OUTPUTS[name]
    assert model.weights == "random(seed 0)"


def test_weights_depend_on_the_seed_alone(tmp_path: Path) -> None:
    def first(seed: int) -> bytes:
        model = opened("transformers:bert", tmp_path, args=BERT, seed=seed)
        return next(iter(model.weight_arrays()))[0].tobytes()

    assert first(1) == first(1) != first(2)


def test_a_folder_comes_with_its_weights_in_fp32(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(3)
    config = transformers.BertConfig(**BERT, num_labels=7)
    kept = transformers.BertForSequenceClassification(config).to(torch.bfloat16)
    kept.save_pretrained(tmp_path / "tiny")
    model = opened("transformers:tiny", tmp_path)
    assert model.weights == "checkpoint tiny"
    assert type(model.module).__name__ == "BertForSequenceClassification"
    state = model.module.state_dict()
    for name, value in kept.state_dict().items():
        assert torch.equal(state[name], value.float() if value.is_floating_point() else value)
    assert model.module.classifier.weight.dtype == torch.float32
    (tmp_path / "tiny" / "model.safetensors").unlink()
    torch.save(kept.state_dict(), tmp_path / "tiny" / "pytorch_model.bin")
    assert opened("transformers:tiny", tmp_path).weights == "checkpoint tiny"
    again = opened("transformers:tiny", tmp_path).module.classifier.weight
    assert torch.equal(again, model.module.classifier.weight)
    plain = opened("transformers:tiny/config.json", tmp_path)
    assert plain.weights == "random(seed 0)"
    assert not torch.equal(plain.module.classifier.weight, model.module.classifier.weight)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("transformers:brt", ["'brt' is neither", "nothing is downloaded", "bert"]),
        ("transformers:bert-base-uncased", ["'bert-base-uncased' is neither", "download it"]),
        ("transformers:bert?hiden_size=3", ["BertConfig has no 'hiden_size'", "'hidden_size'"]),
        ("transformers:bert?architectures=BertForNothing", ["no model class 'BertForNothing'"]),
    ],
)
def test_what_is_not_there_is_told(tmp_path: Path, source: str, words: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        create_module(resolve_model(source, base=tmp_path).to_json())
    assert all(word in str(caught.value) for word in words), caught.value


def test_another_class_of_a_type(tmp_path: Path) -> None:
    args = {**BERT, "architectures": "BertForMaskedLM"}
    model = opened("transformers:bert", tmp_path, args=args)
    assert type(model.module).__name__ == "BertForMaskedLM"
    specs, arrays = inputs_of(model)
    assert model.run(arrays, specs).arrays["output.logits"].shape == (2, 64, 50)


def test_a_folder_is_measured(tmp_path: Path) -> None:
    config = transformers.ViTConfig(**SIZES["vit"], num_labels=5)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "tiny")
    command = ("bench", "transformers:tiny", "-c", "eager", "-c", "onnxruntime", "-b", "2")
    done = ngb(*command, "--profile", "quick", "--json", cwd=tmp_path, short=True, check=0)
    eager, onnx = map(as_steady, records(done))
    for record in (eager, onnx):
        assert (record["status"], record["weights"]) == ("ok", "checkpoint tiny")
        assert record["case"]["model"]["kind"] == "transformers"
        assert record["verification"]["reference"] == "eager-fp64"
