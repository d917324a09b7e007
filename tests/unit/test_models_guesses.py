"""Sizes that a file leaves open: others are tried, and what was tried is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ngraphbench.errors import CompileFailed
from ngraphbench.models.exporter import Exporter
from ngraphbench.models.graphinputs import plan_graph_inputs
from ngraphbench.models.sources import resolve_model
from ngraphbench.types import Json

FLOAT = TensorProto.FLOAT


def graph(nodes: list[NodeProto], shape: list[int | str], weights: Json) -> ModelProto:
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def exported(folder: Path, made: ModelProto, *, batch: int = 2) -> Json:
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    exporter = Exporter()
    model = resolve_model("m.onnx", base=folder).to_json()
    exporter.open({"model": model, "root": str(folder / "w"), "seed": 0})
    return exporter.batch({"batch": batch})


def test_a_question_mark_is_no_name() -> None:
    made = graph([helper.make_node("Relu", ["x"], ["y"])], ["-1", 3, "?", "?"], {})
    plan = plan_graph_inputs(made, {"x": {"shape": ["batch", 3, 48, 320]}})
    assert plan.bound(2)[0].shape == (2, 3, 48, 320)
    guessed = plan_graph_inputs(made, {})
    assert "dims-guessed: axis 2 of x=224, axis 3 of x=224" in guessed.notes[0]


def test_a_size_at_which_outputs_are_constant_is_left_for_another(tmp_path: Path) -> None:
    # One frame of 128 samples less the mean of all frames is nothing.
    nodes = [
        helper.make_node("Slice", ["x", "zero", "end", "one", "step"], ["f"]),
        helper.make_node("ReduceMean", ["f"], ["m"], axes=[1]),
        helper.make_node("Sub", ["f", "m"], ["y"]),
    ]
    numbers = {"zero": 0, "end": 2**31 - 1, "one": 1, "step": 128}
    weights = {name: np.array([number], np.int64) for name, number in numbers.items()}
    bound = exported(tmp_path, graph(nodes, ["N", "samples"], weights))
    assert bound["inputs"][0]["shape"] == [2, 256]
    assert not bound["constant"]
    assert any(note.startswith("dims-found: samples=256") for note in bound["notes"])


def test_outputs_that_are_constant_at_every_size_keep_the_first(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sub", ["x", "x"], ["y"])]
    bound = exported(tmp_path, graph(nodes, ["N", "samples"], {}))
    assert bound["inputs"][0]["shape"] == [2, 64]
    assert bound["constant"]


def test_when_no_size_fits_all_of_them_are_told_and_the_option_too(tmp_path: Path) -> None:
    then, other = (
        helper.make_graph(
            [helper.make_node("Pad", ["x", "far"], [name], mode="reflect")],
            name,
            [],
            [helper.make_tensor_value_info(name, FLOAT, None)],
        )
        for name in ("t", "f")
    )
    nodes = [helper.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=other)]
    weights = {"yes": np.array(True), "far": np.array([0, 600, 0, 600], np.int64)}
    with pytest.raises(CompileFailed) as caught:
        exported(tmp_path, graph(nodes, ["N", "samples"], weights))
    text = str(caught.value)
    # What failed is told once, not once for each graph around it.
    assert "Pad node" in text and "If node" not in text
    assert "samples as 64, 256, 128, 48, 512, 32, 16." in text
    assert "--input x=batchxSIZE" in text


def test_what_fails_alike_at_every_size_is_no_matter_of_sizes(tmp_path: Path) -> None:
    with pytest.raises(CompileFailed) as caught:
        exported(tmp_path, graph([helper.make_node("Unheard", ["x"], ["y"])], ["N", "n"], {}))
    assert "Unheard" in str(caught.value)
    assert "guessed" not in str(caught.value)
