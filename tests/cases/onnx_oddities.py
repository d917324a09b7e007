"""Graphs whose outputs, names or cost break tools; each docstring says the right behaviour."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper

from tests.cases.onnx_building import case, constant, fed, model, node, normal, value

# --- Outputs and their comparison


@case(feed={"x": fed([], "const:2.3")})
def passthrough_output() -> ModelProto:
    """An output is the input itself (no Identity): some runtimes return garbage/zeros; must be
    caught by the check.
    """
    return model(
        [node("Constant", [], ["v"], value=constant("", np.float32(0)))],
        [value("x", shape=[])],
        [value("v", shape=[]), value("x", shape=[])],
    )


@case(feed={"x": fed(["B", 16])})
def nan_from_random() -> ModelProto:
    """Log of negative random input: NaN in the reference at the same places is equal; NaN only in
    the backend is a failure.
    """
    return model(
        [node("Log", ["x"], ["y"])], [value("x", shape=["N", 16])], [value("y", shape=["N", 16])]
    )


@case(feed={"x": fed(["B", 8])})
def random_op() -> ModelProto:
    """RandomNormalLike: reference differs from itself; report "non-deterministic", not a backend
    failure.
    """
    return model(
        [node("RandomNormalLike", ["x"], ["r"]), node("Add", ["x", "r"], ["y"])],
        [value("x", shape=["N", 8])],
        [value("y", shape=["N", 8])],
    )


@case(feed={"x": fed(["B", 8])})
def dropout_training() -> ModelProto:
    """Dropout with training_mode=true left in the file."""
    return model(
        [node("Dropout", ["x", "r", "t"], ["y"])],
        [value("x", shape=["N", 8])],
        [value("y", shape=["N", 8])],
        [constant("r", np.float32(0.5)), constant("t", np.array(True))],
    )


@case(feed={"x": fed(["B", 8])})
def tiny_outputs() -> ModelProto:
    """Outputs near 1e-7: an absolute tolerance of 1e-3 accepts anything, even zeros; need a scale-
    relative metric.
    """
    return model(
        [node("Mul", ["x", "k"], ["y"])],
        [value("x", shape=["N", 8])],
        [value("y", shape=["N", 8])],
        [constant("k", np.float32(1e-07))],
    )


@case(feed={"x": fed(["B", 512])})
def cancellation() -> ModelProto:
    """Large cancellation: element-wise relative error is huge though the result is as accurate as
    fp32 allows; compare with an fp64 reference or norm.
    """
    w = normal(512, 8)
    w = np.concatenate([w, -w + 1e-06 * normal(512, 8, seed=9)], 0)
    return model(
        [node("Concat", ["x", "x"], ["c"], axis=1), node("MatMul", ["c", "w"], ["y"])],
        [value("x", shape=["N", 512])],
        [value("y", shape=["N", 8])],
        [constant("w", w)],
    )


@case(feed={"x": fed(["B", 8])})
def constant_output() -> ModelProto:
    """Output does not depend on the input and has no batch axis (vacuous check: all backends
    agree).
    """
    return model(
        [node("Identity", ["k"], ["y"])],
        [value("x", shape=["N", 8])],
        [value("y", shape=[3])],
        [constant("k", normal(3))],
    )


# --- Files and names


@case(valid=False, feed={"x": fed(["B", 2])})
def ir_too_new() -> ModelProto:
    """IR version newer than any runtime: "model format too new for BACKEND", others go on."""
    return model(
        [node("Relu", ["x"], ["y"])],
        [value("x", shape=["N", 2])],
        [value("y", shape=["N", 2])],
        ir=99,
    )


@case(valid=None, feed={"x": fed(["B", 2])})
def opset_too_new() -> ModelProto:
    """Opset newer than any runtime; onnx.checker and OpenVINO let it pass, ONNX Runtime refuses:
    check opset yourself.
    """
    return model(
        [node("Relu", ["x"], ["y"])],
        [value("x", shape=["N", 2])],
        [value("y", shape=["N", 2])],
        opset=999,
    )


@case(valid=None, feed={"x": fed(["B", 2])})
def custom_op() -> ModelProto:
    """Operator of an unknown domain: unsupported everywhere, named in the report."""
    return model(
        [helper.make_node("Frobnicate", ["x"], ["y"], domain="com.example")],
        [value("x", shape=["N", 2])],
        [value("y", shape=["N", 2])],
        extra=[("com.example", 1)],
    )


@case(feed={"x": fed(["B", 2])})
def duplicate_node_names() -> ModelProto:
    """Two nodes share a name: the checker and OpenVINO accept, ONNX Runtime 1.32 refuses; rename
    nodes in a copy or report it per backend, never use node names as keys.
    """
    return model(
        [
            node("Relu", ["x"], ["a"], name="n"),
            node("Neg", ["a"], ["b"], name="n"),
            node("Abs", ["b"], ["y"]),
        ],
        [value("x", shape=["N", 2])],
        [value("y", shape=["N", 2])],
    )


@case(valid=False, feed={"x": fed(["B", 2])})
def unsorted_nodes() -> ModelProto:
    """Nodes not in topological order: invalid by the spec."""
    return model(
        [node("Neg", ["a"], ["y"]), node("Relu", ["x"], ["a"])],
        [value("x", shape=["N", 2])],
        [value("y", shape=["N", 2])],
    )


@case(feed={"<img src=x onerror=alert(1)>": fed(["B", 2])})
def hostile_names() -> ModelProto:
    """Names and doc strings that are HTML, a spreadsheet formula or a terminal escape: escape in
    HTML, CSV, Markdown and terminal output.
    """
    n = "<img src=x onerror=alert(1)>"
    m = model(
        [node("Relu", [n], ["=1+1|\x1b[31mred"])],
        [value(n, shape=["N", 2])],
        [value("=1+1|\x1b[31mred", shape=["N", 2])],
        name="</script><b>g",
    )
    m.doc_string = "| a | b |\n</td>"
    return m


# --- Cost: hangs, memory, slowness


@case(feed={"x": fed(["B", 4])})
def endless_loop() -> ModelProto:
    """Loop of 2^40 steps, never ends: kill at the timeout, status "timeout", other cells go on."""
    body = helper.make_graph(
        [node("Mul", ["v", "k"], ["v2"]), node("Identity", ["c"], ["c2"])],
        "b",
        [
            value("i", TensorProto.INT64, []),
            value("c", TensorProto.BOOL, []),
            value("v", shape=None),
        ],
        [value("c2", TensorProto.BOOL, []), value("v2", shape=None)],
    )
    return model(
        [node("Loop", ["n", "t", "x"], ["y"], body=body)],
        [value("x", shape=["N", 4])],
        [value("y", shape=["N", 4])],
        [
            constant("n", np.array(2**40, np.int64)),
            constant("t", np.array(True)),
            constant("k", np.float32(0.999)),
        ],
    )


@case(feed={"x": fed(["B", 1])})
def memory_per_row() -> ModelProto:
    """Peak memory is 64 MiB x B: small batches fit, large ones end in out-of-memory; record "oom",
    keep the smaller results.
    """
    return model(
        [
            node("Mul", ["x", "k"], ["r"]),
            node("Unsqueeze", ["r", "two"], ["c"]),
            node("Unsqueeze", ["r", "one"], ["d"]),
            node("MatMul", ["c", "d"], ["big"]),
            node("ReduceMean", ["big"], ["y"], axes=[1, 2], keepdims=0),
        ],
        [value("x", shape=["N", 1])],
        [value("y", shape=["N"])],
        [
            constant("k", normal(1, 4096)),
            constant("two", np.array([2], np.int64)),
            constant("one", np.array([1], np.int64)),
        ],
    )


@case(feed={"x": fed(["B", 128])})
def denormal_weights() -> ModelProto:
    """All values denormal: same graph 10x slower than with normal values; warn, offer flush-to-
    zero.
    """
    n, ins = ([], "x")
    for i in range(8):
        n += [
            node("Mul", [ins, "k" if i == 0 else "one"], [f"a{i}"]),
            node("MatMul", [f"a{i}", "w"], [f"m{i}"]),
        ]
        ins = f"m{i}"
    w = np.eye(128, dtype=np.float32)
    return model(
        [*n, node("Identity", [ins], ["y"])],
        [value("x", shape=["N", 128])],
        [value("y", shape=["N", 128])],
        [constant("k", np.float32(1e-40)), constant("one", np.float32(1)), constant("w", w)],
    )


@case(feed={"x": fed(["B", 128])})
def denormal_control() -> ModelProto:
    """Control for denormal_weights."""
    m = denormal_weights()
    for i in m.graph.initializer:
        if i.name == "k":
            i.CopyFrom(constant("k", np.float32(1.0)))
    return m


@case(feed={"x": fed(["B", 1])})
def trivially_fast() -> ModelProto:
    """One Identity: microseconds; time per call must be measured over many calls, speed-ups from
    noise flagged.
    """
    return model(
        [node("Identity", ["x"], ["y"])], [value("x", shape=["N", 1])], [value("y", shape=["N", 1])]
    )
