"""The command in a record asks for the very cell it stands in."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from ngraphbench.case import Case, CompilerRef, Limits, ModelRef, Session
from ngraphbench.cli.options import model_entries
from ngraphbench.models.sources import resolve_model
from ngraphbench.profiles import PROFILES
from ngraphbench.session.recording import reproduce_command
from ngraphbench.spec import build_experiment
from ngraphbench.types import Device


def words_of(model: ModelRef) -> list[str]:
    case = Case(model, CompilerRef("x", "m:X"), Device(threads=2), 4)
    session = Session((case,), "x", PROFILES["quick"], Limits())
    return shlex.split(reproduce_command(case, session))


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("timm:resnet18", {}),
        ("timm:resnet18?num_classes=10", {}),
        ("timm:resnet18?num_classes=10", {"act_layer": "relu", "img_size": [64, 48]}),
        ("nets.py:one?name=a%26b", {"deep": True, "rate": 0.5, "text": "1"}),
    ],
)
def test_arguments_of_a_model_are_in_the_command(
    tmp_path: Path, text: str, args: dict[str, Any]
) -> None:
    (tmp_path / "nets.py").write_text("def one(**args): ...\n")
    model = resolve_model(text, base=tmp_path, args=args)
    again = resolve_model(words_of(model)[2], base=tmp_path)
    assert (again.args, again.content) == (model.args, model.content)


@pytest.mark.parametrize(
    "given",
    [
        "x=batchx3x8:float32:0..1",
        "x=scalar:int64",
        "x=normal",
        "a=b:c=batchx4:-1.5..2",
        "x=batch:0..1",
    ],
)
def test_inputs_are_in_the_command(given: str) -> None:
    def inputs_of(option: str) -> dict[str, Any]:
        entries = model_entries(["m.onnx"], [option], None)
        found = build_experiment({"name": "t", "models": entries, "compilers": ["x"]}).models[0]
        return {name: one.model_dump(exclude_none=True) for name, one in found.inputs.items()}

    model = ModelRef("m.onnx", "m", "onnx", "c", inputs=inputs_of(given))
    words = words_of(model)
    assert inputs_of(words[words.index("--input") + 1]) == model.inputs
