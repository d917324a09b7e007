"""ONNX graphs in double precision, and what they tell of a model's own rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from ngraphbench.errors import Unsupported
from ngraphbench.models.double import is_quantised, nudged_values, widen
from ngraphbench.models.exporter import Exporter
from ngraphbench.models.reference import Exact, Outputs, Reference, make_reference
from ngraphbench.models.rounding import own_rounding
from ngraphbench.models.sources import resolve_model
from ngraphbench.types import Arrays, Json

FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE


def graph(nodes: list, x: list, y: list, weights: dict[str, np.ndarray]) -> ModelProto:
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, x)],
        [helper.make_tensor_value_info("y", FLOAT, y)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def exported(folder: Path, made: ModelProto, *, batch: int = 2) -> Json:
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    exporter = Exporter()
    model = resolve_model("m.onnx", base=folder).to_json()
    exporter.open({"model": model, "root": str(folder / "w"), "seed": 0})
    return exporter.batch({"batch": batch})


def test_every_float_becomes_a_double() -> None:
    inner = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value_float=0.5)],
        "inner",
        [],
        [helper.make_tensor_value_info("c", FLOAT, [])],
    )
    made = graph(
        [
            helper.make_node("If", ["flag"], ["half"], then_branch=inner, else_branch=inner),
            helper.make_node("ConstantOfShape", ["shape"], ["zero"]),
            helper.make_node("Cast", ["whole"], ["two"], to=FLOAT),
            helper.make_node("Resize", ["x", "", "scales"], ["r"], mode="nearest"),
            helper.make_node("Sum", ["r", "half", "zero", "two"], ["y"]),
        ],
        [1, 2],
        [2, 2],
        {
            "flag": np.array(True),
            "shape": np.array([1], np.int64),
            "whole": np.array(2, np.int64),
            "scales": np.array([2, 1], np.float32),
        },
    )
    widen(made)
    from onnx.reference import ReferenceEvaluator

    (found,) = ReferenceEvaluator(made).run(None, {"x": np.array([[0.1, 1e-12]])})
    assert found.dtype == np.float64
    assert np.array_equal(found, np.array([[0.1, 1e-12]] * 2) + 0.5 + 2)
    types = {value.type.tensor_type.elem_type for value in (*made.graph.input, *made.graph.output)}
    assert types == {DOUBLE}


def test_a_nudge_moves_every_value_by_half_a_unit_in_the_last_place() -> None:
    values = np.linspace(1, 2, 100)
    moved = nudged_values(values, np.random.default_rng(0))
    assert np.allclose(np.abs(moved / values - 1), 2.0**-24, rtol=1e-6)
    whole = np.arange(3)
    assert nudged_values(whole, np.random.default_rng(0)) is whole


def test_a_model_is_compared_with_its_own_fp64(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    bound = exported(tmp_path, graph(nodes, ["N", 16], ["N", 3], {"w": weights}))
    assert bound["reference"] == "onnxruntime:level=none-fp64"
    assert 0 < bound["baseline_rel_l2"] < 1e-6
    rows = "rows-alone: 2 of 2 rows were tried and are alone as in the batch"
    assert (bound["ill_conditioned"], bound["notes"]) == (False, [rows])


def test_operators_without_fp64_kernels_go_to_the_reference_evaluator(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((2, 3, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    bound = exported(tmp_path, graph(nodes, ["N", 3, 8, 8], ["N", 2, 6, 6], {"w": weights}))
    assert bound["reference"] == "onnx-reference-fp64"
    assert 0 < bound["baseline_rel_l2"] < 1e-6


def test_a_sine_of_huge_angles_is_ill_conditioned(tmp_path: Path) -> None:
    weights = 1e10 * np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Div", ["m", "big"], ["d"]),
        helper.make_node("Sin", ["d"], ["y"]),
    ]
    constants = {"w": weights, "big": np.float32(1e3)}
    bound = exported(tmp_path, graph(nodes, ["N", 64], ["N", 64], constants))
    assert bound["ill_conditioned"]
    assert bound["baseline_rel_l2"] > 1e-2
    assert any(note.startswith("ill-conditioned") for note in bound["notes"])


def test_quantised_graphs_are_named() -> None:
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    assert is_quantised(graph(nodes, [1], [1], {}))
    assert not is_quantised(graph([helper.make_node("Relu", ["x"], ["y"])], [1], [1], {}))


def reference(own: float, exact: float, nudged: float):
    """Return the reference of a model that gives these values in fp32, fp64 and fp64 nudged."""

    def runs(value: float):
        array = np.array([1.0, value])
        return lambda inputs: Outputs({"y": array}, {"y": "float64"})

    def make(*, seconds: float, nudged_: float = nudged, **asked: bool) -> Exact:
        return Exact("by-hand", runs(nudged_ if asked["nudged"] else exact))

    x: Arrays = {"x": np.zeros(1)}
    return make_reference("own", runs(own), a=x, b=x, exact=make)


def test_without_fp64_inputs_moved_by_one_unit_tell_what_rounding_does() -> None:
    def made(factor: float) -> Reference:
        def run(inputs: Arrays) -> Outputs:
            return Outputs({"y": np.sin(np.float32(factor) * inputs["x"])}, {"y": "float32"})

        def exact(*, seconds: float, nudged: bool) -> Exact:
            raise Unsupported("There is none.", reason="fp64")

        random = np.random.default_rng(0)
        a, b = ({"x": random.standard_normal((4, 8)).astype(np.float32)} for _ in "ab")
        return make_reference("own", run, a=a, b=b, exact=exact)

    wild = made(1e5)
    assert wild.ill_conditioned and 1e-4 < (wild.baseline_rel_l2 or 0) < 0.1
    assert any(note.startswith("rounding-estimated") for note in wild.notes)
    tame = made(1.0)
    assert (tame.ill_conditioned, tame.baseline_rel_l2, len(tame.notes)) == (False, None, 1)


def test_a_rounding_that_cannot_be_told_is_none() -> None:
    def run(inputs: Arrays) -> Outputs:
        if inputs["x"][0] != 1:
            raise ValueError("out of range")
        return Outputs({"y": np.sqrt(inputs["x"])}, {"y": "float32"})

    x = np.array([1.0], np.float32)
    assert own_rounding(run, {"x": x}, run({"x": x})) == 0.0
    whole = {"x": np.array([1], np.int64)}
    assert own_rounding(run, whole, run(whole)) == 0.0


def test_rounding_must_explain_why_fp64_is_elsewhere() -> None:
    close = reference(1.0, 1.0001, 1.0001)
    assert (close.name, close.ill_conditioned) == ("by-hand-fp64", False)
    explained = reference(1.0, 1.5, 1.52)
    assert explained.name == "by-hand-fp64" and explained.ill_conditioned
    assert explained.baseline_rel_l2 == pytest.approx(0.5 / np.hypot(1, 1.5))
    other = reference(1.0, 1.5, 1.5)
    assert (other.name, other.ill_conditioned, other.baseline_rel_l2) == ("own", False, None)
    assert other.notes[0].startswith("fp64-disagrees")
