"""Graphs whose batch axis or inputs break tools; each docstring says the right behaviour."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper

from tests.cases.onnx_building import case, constant, fed, model, node, normal, value

# --- The batch axis


@case(feed={"x": fed(["B", 4, 4])})
def batch_hardcoded_reshape() -> ModelProto:
    """B=1 ok; B>1: ONNX Runtime errors, OpenVINO 2026.4 silently returns shape [1,3]: output batch
    axis must be checked; status "batch not supported by model"; other batches still
    measured.
    """
    return model(
        [node("Reshape", ["x", "s"], ["r"]), node("MatMul", ["r", "w"], ["y"])],
        [value("x", shape=["N", 4, 4])],
        [value("y", shape=["N", 3])],
        [constant("s", np.array([1, 16], np.int64)), constant("w", normal(16, 3))],
    )


@case(feed={"x": fed(["B", 3, 8, 8])})
def batch_folded_silently() -> ModelProto:
    """Declared batch 1; after a naive rewrite to B it RUNS but folds the batch into axis 1 and uses
    a batch-1 grid: detect by row-wise check against B=1, mark wrong, never report
    throughput.
    """
    return model(
        [
            node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            node("Reshape", ["c", "s"], ["r"]),
            node("ReduceMean", ["r"], ["mu"], axes=[1], keepdims=1),
            node("Sub", ["r", "mu"], ["y"]),
        ],
        [value("x", shape=[1, 3, 8, 8])],
        [value("y", shape=[1, 64, 6])],
        [constant("w", normal(6, 3, 3, 3)), constant("s", np.array([1, -1, 6], np.int64))],
    )


@case(feed={"x": fed(["B", 6])})
def axis0_not_a_batch() -> ModelProto:
    """First axis is symbolic but rows depend on each other: whole-batch check against the reference
    is right, row-by-row check must not be used as the verdict.
    """
    return model(
        [node("CumSum", ["x", "ax"], ["y"])],
        [value("x", shape=["T", 6])],
        [value("y", shape=["T", 6])],
        [constant("ax", np.array(0, np.int64))],
    )


@case(feed={"x": fed(["B", 5, 8]), "h0": fed([1, "B", 4])})
def batch_axis_one() -> ModelProto:
    """Batch on axis 1 of output and of a state input: find the axis, do not assume 0."""
    return model(
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            node("RNN", ["t", "W", "R", "", "", "h0"], ["Y", "hN"], hidden_size=4),
            node("Squeeze", ["Y", "one"], ["y"]),
        ],
        [value("x", shape=["batch", 5, 8]), value("h0", shape=[1, "batch", 4])],
        [value("y", shape=[5, "batch", 4]), value("hN", shape=[1, "batch", 4])],
        [
            constant("W", normal(1, 4, 8)),
            constant("R", normal(1, 4, 4, seed=1)),
            constant("one", np.array([1], np.int64)),
        ],
    )


@case(feed={"ids": fed([1, 6], "int:0:9", "int64"), "dist": fed([1, 6, 6])})
def shared_symbol_no_batch_out() -> ModelProto:
    """One symbol for two axes of one input and in a second input; no batch axis in the output."""
    return model(
        [
            node("Gather", ["E", "ids"], ["e"]),
            node("Transpose", ["e"], ["et"], perm=[0, 2, 1]),
            node("MatMul", ["e", "et"], ["q"]),
            node("Add", ["q", "dist"], ["d"]),
            node("Softmax", ["d"], ["p"], axis=-1),
            node("Squeeze", ["p", "z"], ["y"]),
        ],
        [value("ids", TensorProto.INT64, [1, "seq"]), value("dist", shape=[1, "seq", "seq"])],
        [value("y", shape=["seq", "seq"])],
        [constant("E", normal(9, 4)), constant("z", np.array([0], np.int64))],
    )


@case(feed={"x": fed(["B", 32])})
def dynamic_quant_batch() -> ModelProto:
    """Dynamic quantisation: a row depends on the rest of its batch; compare batch with batch, with
    an int8 tolerance, and say so.
    """
    w = np.random.default_rng(3).integers(-127, 128, (32, 8)).astype(np.int8)
    return model(
        [
            node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
            node("MatMulInteger", ["xq", "w", "xz", "wz"], ["m"]),
            node("Cast", ["m"], ["mf"], to=TensorProto.FLOAT),
            node("Mul", ["xs", "ws"], ["s"]),
            node("Mul", ["mf", "s"], ["y"]),
        ],
        [value("x", shape=["N", 32])],
        [value("y", shape=["N", 8])],
        [
            constant("w", w),
            constant("wz", np.array(0, np.int8)),
            constant("ws", np.array(0.01, np.float32)),
        ],
    )


# --- Inputs


@case(feed={"ids": fed(["B", 5], "int:0:16", "int64")})
def gather_bound() -> ModelProto:
    """Ids must be < 16: infer the bound from the Gather table (or let the user give a range); not a
    compiler fault.
    """
    return model(
        [node("Gather", ["E", "ids"], ["e"]), node("ReduceSum", ["e", "ax"], ["y"], keepdims=0)],
        [value("ids", TensorProto.INT64, ["N", 5])],
        [value("y", shape=["N", 4])],
        [constant("E", normal(16, 4)), constant("ax", np.array([1], np.int64))],
    )


@case(
    feed={
        "x": fed(["B", 4]),
        "mask": fed(["B", 4], "int:0:2", "bool"),
        "flag": fed([], "const:1", "bool"),
    }
)
def bool_and_scalar_inputs() -> ModelProto:
    """Bool tensor input, rank-0 bool input choosing an If branch."""
    t = helper.make_graph(
        [node("Where", ["mask", "x", "zero"], ["o1"])], "t", [], [value("o1", shape=["N", 4])]
    )
    e = helper.make_graph([node("Neg", ["x"], ["o2"])], "e", [], [value("o2", shape=["N", 4])])
    return model(
        [node("If", ["flag"], ["y"], then_branch=t, else_branch=e)],
        [
            value("x", shape=["N", 4]),
            value("mask", TensorProto.BOOL, ["N", 4]),
            value("flag", TensorProto.BOOL, []),
        ],
        [value("y", shape=["N", 4])],
        [constant("zero", np.float32(0))],
    )


@case(feed={"x": fed(["B", 4], "normal", "bfloat16")})
def bf16_io() -> ModelProto:
    """Bfloat16 in and out: numpy has no such dtype; use ml_dtypes or report "dtype not supported by
    this backend".
    """
    return model(
        [node("Mul", ["x", "x"], ["y"])],
        [value("x", TensorProto.BFLOAT16, ["N", 4])],
        [value("y", TensorProto.BFLOAT16, ["N", 4])],
    )


@case(feed={"x": fed(["B", 64], "normal", "float16")})
def fp16_io() -> ModelProto:
    """Float16 in and out; a float32 tolerance is wrong here."""
    return model(
        [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["y"])],
        [value("x", TensorProto.FLOAT16, ["N", 64])],
        [value("y", TensorProto.FLOAT16, ["N", 32])],
        [constant("w", normal(64, 32).astype(np.float16))],
    )


@case(feed={"s": fed(["B"], "str", "str")})
def string_input() -> ModelProto:
    """String input: say "string inputs need --inputs", do not crash."""
    return model(
        [node("StringNormalizer", ["s"], ["y"], case_change_action="LOWER")],
        [value("s", TensorProto.STRING, ["N"])],
        [value("y", TensorProto.STRING, ["N"])],
    )


@case(feed={"s": fed(["B"], "str", "str")})
def string_identity() -> ModelProto:
    """String in, string out, no locale needed (StringNormalizer in string_input needs en_US.UTF-8
    on the host).
    """
    return model(
        [node("Identity", ["s"], ["y"])],
        [value("s", TensorProto.STRING, ["N"])],
        [value("y", TensorProto.STRING, ["N"])],
    )


@case(feed={"x": fed([4, 3])})
def sequence_output() -> ModelProto:
    """Output is a sequence of tensors: compare element by element or report unsupported."""
    o = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    return model([node("SplitToSequence", ["x"], ["y"], axis=0)], [value("x", shape=[4, 3])], [o])


@case(feed={"x": fed(["B", 3, 8, 8])})
def odd_dims() -> ModelProto:
    """Dims of -1, 0-named and nameless dims mean "unknown"."""
    m = model(
        [node("GlobalAveragePool", ["x"], ["p"]), node("Flatten", ["p"], ["y"])],
        [value("x", shape=[1, 3, 8, 8])],
        [value("y", shape=[1, 3])],
    )
    d = m.graph.input[0].type.tensor_type.shape.dim
    d[0].dim_value = -1
    d[2].Clear()
    d[3].Clear()
    m.graph.output[0].type.tensor_type.shape.dim[0].dim_value = -1
    return m


@case(valid=None, feed={"x": fed(["B", 3])})
def input_without_shape() -> ModelProto:
    """Input with element type but no shape at all: ask for a shape."""
    return model([node("Relu", ["x"], ["y"])], [value("x")], [value("y")])


@case(feed={"a": fed([0, 4, 8], "int:0:3", "int64"), "b": fed([0, 8, 4], "int:0:3", "int64")})
def zero_batch_matmul_i64() -> ModelProto:
    """Int64 MatMul with zero-length batch: empty output; an empty comparison is not a pass."""
    return model(
        [node("MatMul", ["a", "b"], ["y"])],
        [value("a", TensorProto.INT64, [0, 4, 8]), value("b", TensorProto.INT64, [0, 8, 4])],
        [value("y", TensorProto.INT64, [0, 4, 4])],
    )


@case(feed={"x": fed(["B", 4], "int:0:9", "int64")})
def int64_big_constant() -> ModelProto:
    """Int64 constant above 2^31: a backend that narrows to int32 gives a wrong answer; exact
    compare for ints.
    """
    return model(
        [node("Add", ["x", "k"], ["y"])],
        [value("x", TensorProto.INT64, ["N", 4])],
        [value("y", TensorProto.INT64, ["N", 4])],
        [constant("k", np.array(2**40 + 1, np.int64))],
    )


@case(feed={"x": fed(["B", 3, 16, 16])})
def size_multiple() -> ModelProto:
    """Height and width must be multiples of 4: default size 1 or odd fails in Concat."""
    return model(
        [
            node("Conv", ["x", "w1"], ["c1"], strides=[2, 2], pads=[1, 1, 1, 1]),
            node("Conv", ["c1", "w2"], ["c2"], strides=[2, 2], pads=[1, 1, 1, 1]),
            node("Resize", ["c2", "", "sc"], ["u"], mode="nearest"),
            node("Concat", ["c1", "u"], ["y"], axis=1),
        ],
        [value("x", shape=["batch", 3, "height", "width"])],
        [value("y", shape=["batch", 8, "(floor(height/2 - 1/2) + 1)", "floor(width/2 - 1/2) + 1"])],
        [
            constant("w1", normal(4, 3, 3, 3)),
            constant("w2", normal(4, 4, 3, 3)),
            constant("sc", np.array([1, 1, 2, 2], np.float32)),
        ],
    )


@case(feed={"x": fed(["B", 1, 256])})
def min_length() -> ModelProto:
    """Length must exceed 64 (reflect padding): default length 1 fails."""
    return model(
        [
            node("Pad", ["x", "p"], ["q"], mode="reflect"),
            node("Conv", ["q", "w"], ["y"], strides=[64]),
        ],
        [value("x", shape=["batch", 1, "len"])],
        [value("y", shape=["batch", 4, "frames"])],
        [constant("p", np.array([0, 0, 64, 0, 0, 64], np.int64)), constant("w", normal(4, 1, 128))],
    )


@case(feed={"x": fed(["B", 4])})
def weights_as_inputs() -> ModelProto:
    """IR 3 style: weights listed as graph inputs; feed only x."""
    return model(
        [node("MatMul", ["x", "w"], ["y"])],
        [value("x", shape=["N", 4]), value("w", shape=[4, 2])],
        [value("y", shape=["N", 2])],
        [constant("w", normal(4, 2))],
        opset=8,
        ir=3,
    )


@case(feed={})
def no_inputs() -> ModelProto:
    """No input at all: one run, no batch sweep."""
    return model(
        [node("ConstantOfShape", ["s"], ["y"])],
        [],
        [value("y", shape=[2, 2])],
        [constant("s", np.array([2, 2], np.int64))],
    )
