"""Denormal numbers are counted by their bits, in arrays and in models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ngraphbench.errors import Unsupported
from ngraphbench.models.denormals import count_denormals, describe_denormals, without_denormals
from ngraphbench.models.onnxfile import open_onnx, weight_arrays

VALUES = [0.0, -0.0, 1.0, -1.0, np.inf, np.nan]


@pytest.mark.parametrize(
    ("dtype", "tiny"), [("float32", 1e-40), ("float32", -1e-45), ("float64", 5e-324)]
)
def test_only_denormals_count(dtype: str, tiny: float) -> None:
    normal = np.array([*VALUES, np.finfo(dtype).tiny], dtype)
    assert count_denormals(normal, dtype) == 0
    assert count_denormals(np.append(normal, np.array([tiny, tiny], dtype)), dtype) == 2


@pytest.mark.parametrize(("dtype", "tiny"), [("float32", 1e-40), ("float64", 5e-324)])
def test_only_denormals_are_set_to_zero(dtype: str, tiny: float) -> None:
    values = np.array([[*VALUES, tiny], [*VALUES, np.finfo(dtype).tiny]], dtype)[:, ::2]
    found = without_denormals(values)
    expected = values.copy()
    expected[0, -1] = 0
    assert np.array_equal(found, expected, equal_nan=True)
    assert values[0, -1] != 0


def test_bfloat16_bits() -> None:
    bits = np.array([0x0000, 0x8000, 0x3F80, 0x7F80, 0x0001, 0x807F], np.uint16)
    assert count_denormals(bits, "bfloat16") == 2
    assert count_denormals(bits, "uint16") == 0


def test_small_halves_are_ordinary_weights() -> None:
    assert count_denormals(np.array([1e-6], np.float16), "float16") == 0


def test_strides_and_emptiness() -> None:
    values = np.full((4, 4), 1e-40, np.float32)
    assert count_denormals(values[:, ::2], "float32") == 8
    assert count_denormals(values[:0], "float32") == 0


def test_the_phrase() -> None:
    arrays = [(np.full(3, 1e-40, np.float32), "float32"), (np.ones(1000, np.float32), "float32")]
    assert describe_denormals(arrays, what="weights") == "3 of 1,003 weights are denormal numbers"
    assert describe_denormals(arrays[1:], what="weights") == ""


@pytest.mark.parametrize("external", [False, True])
def test_weights_of_an_onnx_file(tmp_path: Path, external: bool) -> None:
    weight = numpy_helper.from_array(np.array([1.0, 1e-40], np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
        [weight],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph), path, save_as_external_data=external, size_threshold=0)
    found = describe_denormals(weight_arrays(open_onnx(path)), what="weights")
    assert found == "1 of 2 weights are denormal numbers"


def test_a_tensor_that_lacks_data_is_named(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones(4, np.float32), "w")
    weight.raw_data = weight.raw_data[:7]
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])], "g", [], [value], [weight]
    )
    path = tmp_path / "short.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(Unsupported, match=r"'w' of short.onnx does not hold"):
        list(weight_arrays(open_onnx(path)))
