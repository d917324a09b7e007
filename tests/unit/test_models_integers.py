"""Integers that a graph can take: below the rows of its tables, equal to what it compares with."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ngraphbench.models.integers import integer_generators

INT = TensorProto.INT64
TABLE = np.zeros((9, 4), np.float32)


def graph(
    nodes: list[NodeProto], weights: dict[str, object], *, shape: list[int | str] | None = None
) -> ModelProto:
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("i", INT, ["N", 5] if shape is None else shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])


def branch(name: str) -> object:
    tensor = numpy_helper.from_array(np.float32(1))
    node = helper.make_node("Constant", [], [name], value=tensor)
    output = helper.make_tensor_value_info(name, TensorProto.FLOAT, [])
    return helper.make_graph([node], name, [], [output])


def test_classes_stay_below_the_depth_of_a_one_hot_code() -> None:
    nodes = [helper.make_node("OneHot", ["i", "depth", "values"], ["y"])]
    weights = {"depth": np.array([7], np.int64), "values": np.array([0, 1], np.float32)}
    assert integer_generators(graph(nodes, weights)) == {"i": "int:0:7"}


def test_the_smallest_of_all_tables_counts() -> None:
    nodes = [
        helper.make_node("Cast", ["i"], ["j"], to=TensorProto.INT32),
        helper.make_node("OneHot", ["j", "depth", "values"], ["a"]),
        helper.make_node("Gather", ["table", "i"], ["b"]),
    ]
    weights = {
        "depth": np.array(700, np.int64),
        "values": np.array([0, 1], np.float32),
        "table": TABLE,
    }
    assert integer_generators(graph(nodes, weights)) == {"i": "int:0:9"}


def test_a_comparison_with_all_classes_is_a_one_hot_code() -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["i", "last"], ["j"]),
        helper.make_node("Expand", ["j", "shape"], ["k"]),
        helper.make_node("Equal", ["k", "classes"], ["y"]),
    ]
    weights = {
        "last": np.array([2], np.int64),
        "shape": np.array([1, 1, 6], np.int64),
        "classes": np.arange(6, dtype=np.int64).reshape(1, 1, 6),
    }
    assert integer_generators(graph(nodes, weights)) == {"i": "int:0:6"}
    some = weights | {"classes": np.array([[[0, 1, 2, 3, 4, 9]]], np.int64)}
    assert not integer_generators(graph(nodes, some))


def test_a_table_of_small_integers_and_its_scale_bound_the_ids() -> None:
    nodes = [
        helper.make_node("Cast", ["small"], ["large"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["large", "scale"], ["table"]),
        helper.make_node("Gather", ["table", "i"], ["y"]),
    ]
    weights = {"small": TABLE.astype(np.int8), "scale": np.ones((1, 4), np.float32)}
    assert integer_generators(graph(nodes, weights)) == {"i": "int:0:9"}


@pytest.mark.parametrize("shape", [[], [1]])
def test_one_number_is_what_it_is_compared_with(shape: list[int | str]) -> None:
    nodes = [
        helper.make_node("Equal", ["i", "fast"], ["a"]),
        helper.make_node("If", ["a"], ["y"], then_branch=branch("t"), else_branch=branch("f")),
        helper.make_node("Equal", ["slow", "i"], ["b"]),
    ]
    weights = {"fast": np.int64(16000), "slow": np.int64(8000)}
    assert integer_generators(graph(nodes, weights, shape=shape)) == {"i": "const:16000"}


def test_many_numbers_that_are_compared_stay_as_they_are() -> None:
    # A mask of padding, say: all ids of one value would be no sentence.
    nodes = [helper.make_node("Equal", ["i", "pad"], ["y"])]
    assert not integer_generators(graph(nodes, {"pad": np.int64(0)}))


def test_a_comparison_with_no_constant_says_nothing() -> None:
    nodes = [helper.make_node("Equal", ["i", "i"], ["y"])]
    assert not integer_generators(graph(nodes, {"half": np.float32(0.5)}, shape=[]))
    nodes = [helper.make_node("Equal", ["i", "half"], ["y"])]
    assert not integer_generators(graph(nodes, {"half": np.float32(0.5)}, shape=[]))
