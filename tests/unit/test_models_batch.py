"""The batch axis: found by name, followed through a model, proved where it is only a guess."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

from ngraphbench.errors import Unsupported
from ngraphbench.models.batch import (
    batch_symbols,
    conjectures,
    contradiction,
    differing_row,
    output_axis,
    rows_problem,
    sampled_rows,
    windows,
)
from ngraphbench.models.exporter import Exporter
from ngraphbench.models.reference import Outputs
from ngraphbench.models.sources import resolve_model
from ngraphbench.types import Array, Arrays, Json, TensorSpec
from ngraphbench.workload import read_arrays

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


@pytest.mark.parametrize(
    ("shapes", "symbols"),
    [
        ({"x": ["N", 3]}, {"N"}),
        ({"x": ["T", 6]}, {"T"}),
        ({"x": ["T", "N", 6]}, {"N"}),
        ({"x": ["seq_len", "batch_size", 6]}, {"batch_size"}),
        ({"x": [3, "N"]}, set()),
        ({"x": ["N", 5], "h": [1, "N", 4]}, {"N"}),
        ({"x": ["a", 5], "y": ["c", 5]}, {"a", "c"}),
        ({"ids": [1, "seq"], "d": [1, "seq", "seq"]}, set()),
        ({"s": []}, set()),
        ({"x": ["?x.0", 3]}, {"?x.0"}),
        ({"x": ["?x.0", "?x.1"], "s": [2, "?s.1", 8], "r": []}, {"?x.0", "?s.1"}),
        ({"x": ["N", 5], "s": [2, "width", 8]}, {"N"}),
        ({"x": [1, "?x.1", 8]}, set()),
    ],
)
def test_which_symbols_are_the_batch(shapes: dict[str, list], symbols: set[str]) -> None:
    assert batch_symbols(shapes, []) == symbols


def test_a_fixed_batch_is_looked_for_on_first_axes_and_on_those_of_states() -> None:
    specs = [
        TensorSpec("x", "float32", (1, 8)),
        TensorSpec("h", "float32", (2, 1, 4)),
        TensorSpec("c", "float32", (1, 1, 4)),
        TensorSpec("rate", "int64", ()),
    ]
    assert list(conjectures(specs, 1)) == [
        {"x": 0, "h": 1, "c": 0},
        {"x": 0, "h": 1, "c": 1},
        {"x": 0, "c": 0},
        {"x": 0},
    ]
    assert not list(conjectures(specs, 3))


@pytest.mark.parametrize(
    ("small", "large", "axis"),
    [
        ((1, 3), (4, 3), 0),
        ((5, 1, 2), (5, 4, 2), 1),
        ((1, 3), (1, 3), None),
        ((1, 64), (1, 256), None),
        ((1, 7), (4, 9), None),
        ((1, 3), (4, 3, 1), None),
    ],
)
def test_an_output_follows_the_batch_on_one_axis_or_on_none(
    small: tuple[int, ...], large: tuple[int, ...], axis: int | None
) -> None:
    assert output_axis(small, large, sizes=(1, 4)) == axis


def test_a_declared_batch_that_is_not_there_is_a_contradiction() -> None:
    declared = {"y": ("N", 64)}
    assert "is 1x256" in contradiction(declared, {"N"}, {"y": (1, 256)}, batch=4)
    # On another axis it is no more than a wrong declaration.
    assert not contradiction(declared, {"N"}, {"y": (64, 4)}, batch=4)
    assert not contradiction({"y": ("k",)}, {"N"}, {"y": (3,)}, batch=4)


def problem(function: Callable[[Array], Array], *, size: int) -> str:
    def run(inputs: Arrays) -> Outputs:
        return Outputs({"y": function(inputs["x"])}, {"y": "float32"})

    return rows_problem(run, {"x": X}, run({"x": X}), axes={"x": 0}, sizes=(size, 4))


@pytest.mark.parametrize("batch", [1, 2, 16, 17, 33, 64, 1000])
def test_rows_are_sampled_over_the_whole_batch(batch: int) -> None:
    rows = sampled_rows(batch)
    assert rows == sorted(set(rows)) and len(rows) == min(batch, 16)
    assert {0, batch // 2, batch - 1} <= set(rows) <= set(range(batch))
    assert max(np.diff([*rows, batch])) <= -(-2 * batch // 16)
    assert rows == sampled_rows(batch)
    assert batch < 64 or rows != sampled_rows(batch, seed=1)


def test_windows_of_the_models_own_size_cover_a_small_batch() -> None:
    for size, batch in ((1, 4), (2, 5), (4, 8), (3, 2)):
        found = windows(size, batch)
        assert all(len(rows) == size for rows in found) and len(found) <= 16
        assert {row for rows in found for row in rows} == set(range(batch))


def test_a_single_row_that_differs_is_found_and_counted() -> None:
    x = np.random.default_rng(1).standard_normal((40, 3)).astype(np.float32)
    odd = sampled_rows(40)[5]

    def run(inputs: Arrays) -> Outputs:
        y = inputs["x"] * 2
        if len(y) > 1:
            y[odd] += 1
        return Outputs({"y": y}, {"y": "float32"})

    def first(rows: list[int]) -> tuple[int | None, int]:
        whole, axes = run({"x": x}), {"x": 0}
        return differing_row(run, {"x": x}, whole, axes=axes, rows=rows, followed={"y": 0})

    assert first(sampled_rows(40)) == (odd, 6)
    assert first([row for row in sampled_rows(40) if row != odd]) == (None, 15)


def test_notes_say_how_many_rows_were_tried(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    free = exported(tmp_path / "free", graph(nodes, ["N", 16], ["N", 3], {"w": W}), batch=40)
    assert "rows-alone: 16 of 40 rows were tried and are alone as in the batch" in free["notes"]
    fixed = exported(tmp_path / "fixed", graph(nodes, [1, 16], [1, 3], {"w": W}), batch=40)
    assert any("its rows agree (16 of 40 were tried)" in note for note in fixed["notes"])
    mean = helper.make_node("ReduceMean", ["x"], ["m"], axes=[0])
    made = graph([mean, helper.make_node("Sub", ["x", "m"], ["y"])], ["N", 16], ["N", 16], {})
    mixed = exported(tmp_path / "mixed", made, batch=4)
    (note,) = [note for note in mixed["notes"] if note.startswith("rows-depend-on-batch")]
    assert note.endswith(
        "row 0 alone gives other values than in the batch (1 of 4 rows were tried)"
    )


def test_rows_that_stand_for_themselves_are_a_batch() -> None:
    assert not problem(lambda x: x * 2, size=1)
    assert not problem(lambda x: x * 2, size=2)
    assert not problem(lambda x: x * 2, size=3)
    assert not problem(lambda x: (x * 2).T, size=2)


def test_rows_that_mix_are_none() -> None:
    assert "other values" in problem(lambda x: x - x.mean(0), size=1)
    # Time: later entries depend on earlier ones alone, so the first rows would agree.
    assert "other values" in problem(lambda x: x.cumsum(0), size=2)
    assert "and 1x24 at batch 4" in problem(lambda x: x.reshape(1, -1), size=1)
    assert "and 6 at batch 4" in problem(lambda x: x.mean(0), size=1)


def test_rows_that_rounding_moves_apart_are_a_batch_all_the_same() -> None:
    def chaotic(inputs: Arrays) -> Outputs:
        x = inputs["x"]
        # Like a kernel that adds up in another order for one row than for more.
        x = x if len(x) == 1 else np.nextafter(x, np.float32(np.inf))
        return Outputs({"y": np.sin(np.float32(1e5) * x)}, {"y": "float32"})

    whole = chaotic({"x": X})
    assert not rows_problem(chaotic, {"x": X}, whole, axes={"x": 0}, sizes=(1, 4))
    other = Outputs({"y": -whole.arrays["y"]}, whole.dtypes)
    assert rows_problem(chaotic, {"x": X}, other, axes={"x": 0}, sizes=(1, 4))


# --- Through the exporter, in this process


def graph(
    nodes: list, x: list, y: list, weights: dict[str, np.ndarray], others: tuple = ()
) -> ModelProto:
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x), *others],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def exported(folder: Path, made: ModelProto, *, batch: int) -> Json:
    folder.mkdir(exist_ok=True)
    save(made, str(folder / "m.onnx"))
    exporter = Exporter()
    model = resolve_model("m.onnx", base=folder).to_json()
    exporter.open({"model": model, "root": str(folder / "w"), "seed": 0})
    return exporter.batch({"batch": batch})


W = np.random.default_rng(1).standard_normal((16, 3)).astype(np.float32)


def test_a_fixed_batch_is_rewritten_where_the_rows_agree(tmp_path: Path) -> None:
    made = graph([helper.make_node("MatMul", ["x", "w"], ["y"])], [1, 16], [1, 3], {"w": W})
    bound = exported(tmp_path, made, batch=4)
    assert bound["outputs"][0]["shape"] == [4, 3]
    assert bound["notes"][0].startswith("batch-rewritten: the file declares batch 1")
    found = read_arrays(tmp_path / "w" / "b4" / "reference-a.npz")["y"]
    x = read_arrays(tmp_path / "w" / "b4" / "inputs-a.npz")["x"]
    assert np.allclose(found, x @ W, atol=1e-5)


@pytest.mark.parametrize(("declared", "batch"), [(2, 1), (2, 5), (8, 3)])
def test_any_fixed_batch_is_rewritten_to_any_other(
    tmp_path: Path, declared: int, batch: int
) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    made = graph(nodes, [declared, 16], [declared, 3], {"w": W})
    assert exported(tmp_path, made, batch=batch)["outputs"][0]["shape"] == [batch, 3]


@pytest.mark.parametrize(
    ("nodes", "shapes", "words"),
    [
        ([("Reshape", "x", "one")], ([1, 16], [1, 16]), "1x64 at batch 4"),
        ([("CumSum", "x", "zero")], ([8, 16], [8, 16]), "other values"),
        ([("Reshape", "x", "fixed")], ([1, 16], [1, 16]), "with another size"),
        ([("Reshape", "x", "one")], (["N", 16], ["N", 16]), "without the batch"),
    ],
)
def test_a_batch_that_the_operators_fix_stays_fixed(
    tmp_path: Path, nodes: list, shapes: tuple, words: str
) -> None:
    constants = {
        "one": np.array([1, -1], np.int64),
        "fixed": np.array([1, 16], np.int64),
        "zero": np.array(0, np.int64),
    }
    made = graph([helper.make_node(op, i, ["y"]) for op, *i in nodes], *shapes, constants)
    with pytest.raises(Unsupported, match=words) as caught:
        exported(tmp_path, made, batch=4)
    assert caught.value.reason == "batch-fixed"


def test_a_wrong_declared_shape_is_left_out(tmp_path: Path) -> None:
    import onnx

    made = graph([helper.make_node("MatMul", ["x", "w"], ["y"])], ["N", 16], ["N", 7], {"w": W})
    bound = exported(tmp_path, made, batch=2)
    assert bound["outputs"][0]["shape"] == [2, 3]
    assert any(note.startswith("declared-shape-wrong") for note in bound["notes"])
    model = onnx.load(str(tmp_path / "w" / "b2" / "model.onnx"))
    assert not model.graph.output[0].type.tensor_type.HasField("shape")


def test_a_batch_on_axis_one_of_a_state_is_rewritten(tmp_path: Path) -> None:
    rnn = np.random.default_rng(2)
    state = helper.make_tensor_value_info("h0", TensorProto.FLOAT, [1, 1, 4])
    rate = helper.make_tensor_value_info("rate", TensorProto.FLOAT, [])
    made = graph(
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            helper.make_node("RNN", ["t", "W", "R", "", "", "h0"], ["Y", ""], hidden_size=4),
            helper.make_node("Mul", ["Y", "rate"], ["y"]),
        ],
        [1, 5, 8],
        [5, 1, 1, 4],
        {
            "W": rnn.standard_normal((1, 4, 8)).astype(np.float32),
            "R": rnn.standard_normal((1, 4, 4)).astype(np.float32),
        },
        (state, rate),
    )
    bound = exported(tmp_path, made, batch=3)
    assert [spec["shape"] for spec in bound["inputs"]] == [[3, 5, 8], [1, 3, 4], []]
    assert bound["outputs"][0]["shape"] == [5, 1, 3, 4]


def test_a_size_that_depends_on_values_is_no_size(tmp_path: Path) -> None:
    made = graph(
        [
            helper.make_node("Greater", ["x", "zero"], ["mask"]),
            helper.make_node("NonZero", ["mask"], ["places"]),
            helper.make_node("Cast", ["places"], ["y"], to=TensorProto.FLOAT),
        ],
        ["N", 16],
        [2, "k"],
        {"zero": np.float32(0)},
    )
    bound = exported(tmp_path, made, batch=3)
    assert bound["outputs"][0]["shape"] == [2, "?1"]


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8",
     "uint64", "uint32", "uint16", "uint8", "bool"],
)  # fmt: skip
def test_every_dtype_goes_in_and_out(tmp_path: Path, dtype: str) -> None:
    names = {"float32": "FLOAT", "float64": "DOUBLE"}
    kind = getattr(TensorProto, names.get(dtype, dtype.upper()))
    made = helper.make_graph(
        [helper.make_node("Reshape", ["x", "s"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, ["N", 16])],
        [helper.make_tensor_value_info("y", kind, ["N", 4, 4])],
        [numpy_helper.from_array(np.array([-1, 4, 4], np.int64), "s")],
    )
    opset = helper.make_opsetid("", 17)
    bound = exported(
        tmp_path, helper.make_model(made, opset_imports=[opset], ir_version=8), batch=2
    )
    assert (bound["outputs"][0]["dtype"], bound["outputs"][0]["shape"]) == (dtype, [2, 4, 4])
    x = read_arrays(tmp_path / "w" / "b2" / "inputs-a.npz")["x"]
    assert x.any() and x.shape == (2, 16)
    assert not bound["constant"]
