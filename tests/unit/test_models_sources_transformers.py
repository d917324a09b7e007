"""``transformers:`` as text: types, folders and files; nothing is downloaded or imported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ngraphbench.errors import SpecError
from ngraphbench.models.sources import resolve_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tiny"
    made.mkdir()
    (made / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_size": 32}))
    return tmp_path


def test_a_type_is_random_and_takes_arguments(tmp_path: Path) -> None:
    found = resolve_model("transformers:bert?hidden_size=128&num_hidden_layers=2", base=tmp_path)
    assert (found.kind, found.weights, found.path) == ("transformers", "random", "")
    assert found.args == {"hidden_size": 128, "num_hidden_layers": 2}
    assert found.label == "bert?hidden_size=128&num_hidden_layers=2"
    plain = resolve_model("transformers:bert", base=tmp_path)
    assert plain.content != found.content
    assert resolve_model("transformers:bert", base=tmp_path, seed=1).content != plain.content


def test_a_folder_has_the_weights_that_lie_in_it(folder: Path) -> None:
    plain = resolve_model("transformers:tiny", base=folder)
    assert (plain.weights, plain.path, plain.label) == ("random", str(folder / "tiny"), "tiny")
    (folder / "tiny" / "model.safetensors").write_bytes(b"weights")
    stored = resolve_model("transformers:./tiny", base=folder)
    assert stored.weights == "checkpoint" and stored.content != plain.content
    (folder / "tiny" / "model.safetensors").write_bytes(b"others")
    assert resolve_model("transformers:./tiny", base=folder).content != stored.content
    config = resolve_model("transformers:tiny/config.json", base=folder)
    assert (config.weights, config.label) == ("random", "tiny")


def test_weights_in_several_pieces(folder: Path) -> None:
    for name in ("pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin"):
        (folder / "tiny" / name).write_bytes(b"{}")
    whole = resolve_model("transformers:tiny", base=folder)
    (folder / "tiny" / "pytorch_model-00002-of-00002.bin").write_bytes(b"2")
    more = resolve_model("transformers:tiny", base=folder)
    assert whole.weights == more.weights == "checkpoint" and whole.content != more.content


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("transformers:google/bert", "nothing is downloaded"),
        ("transformers:./empty", "has no config.json"),
        ("transformers:", "names no model"),
        ("transformer:bert", "Did you mean transformers:bert"),
    ],
)
def test_what_is_no_model_is_told_how_to_be_one(folder: Path, text: str, words: str) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(SpecError) as caught:
        resolve_model(text, base=folder)
    assert words in str(caught.value)


def test_pretrained_is_refused_as_it_would_download(folder: Path) -> None:
    with pytest.raises(SpecError, match="only timm and torchvision"):
        resolve_model("transformers:bert", base=folder, pretrained=True)
