"""XLA: the conformance suite, and what is special to it."""

from __future__ import annotations

import dataclasses
import gc
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from ngraphbench.compilers.stablehlo import jaxlib_module, read_model, stablehlo_text
from ngraphbench.compilers.xla import EXECUTABLE, Xla, XlaProgram, _flags, _parts
from ngraphbench.errors import CompileFailed, Unsupported
from ngraphbench.testing import CompilerContract, observe
from ngraphbench.testing.workloads import write_workload
from ngraphbench.types import Array, Device, TensorSpec, storage_dtype
from ngraphbench.workload import Workload

XLA = Xla()
THREADS = "besides XLA's pool, which has as many as asked, the calling thread takes part"
WEIGHTS = ("arguments", "constants")


class TestXla(CompilerContract):
    compiler = XLA
    known_gaps: ClassVar = {"test_threads_asked_for_are_used": THREADS}


@pytest.mark.slow
class TestXlaShipped(CompilerContract):
    compiler = XLA
    options: ClassVar = {"preset": "shipped"}
    known_gaps: ClassVar = {"test_threads_asked_for_are_used": THREADS}


@pytest.fixture
def _vendor() -> None:
    support = XLA.probe(Device())
    if not support.ok:
        pytest.skip(support.hint)


def _compiled(root: Path, sample: str, *, weights: str, threads: int = 1) -> XlaProgram:
    workload = observe.open_workload(write_workload(root, sample), batch=2)
    return XLA.compile(workload, Device(threads=threads), {"weights": weights})


def _graph(
    root: Path,
    nodes: list[Any],
    *,
    inputs: list[TensorSpec],
    outputs: list[TensorSpec],
    constants: dict[str, Array] | None = None,
    opset: int = 17,
) -> Workload:
    """Return a workload of a graph of ONNX nodes, at batch 2."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper

    def info(spec: TensorSpec) -> Any:
        element = helper.np_dtype_to_tensor_dtype(storage_dtype(spec.dtype))
        return helper.make_tensor_value_info(spec.name, element, list(spec.shape))

    graph = helper.make_graph(
        nodes,
        "graph",
        [info(spec) for spec in inputs],
        [info(spec) for spec in outputs],
        [onnx.numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    (root / "b2").mkdir()
    onnx.save(
        helper.make_model(graph, opset_imports=opsets, ir_version=8), root / "b2" / "model.onnx"
    )
    return Workload(root, 2, "fp32", ("onnx",), tuple(inputs), tuple(outputs))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_pool_has_as_many_threads_as_asked(tmp_path: Path, threads: int, _vendor: None) -> None:
    def pool() -> int:
        names = [(task / "comm").read_text() for task in observe.TASKS.iterdir()]
        return sum(name.startswith("tf_XLAEigen") for name in names)

    gc.collect()
    before = pool()
    program = _compiled(tmp_path, "mlp", weights="constants", threads=threads)
    assert pool() - before == threads
    program.close()


@pytest.mark.parametrize("weights", WEIGHTS)
def test_weights_are_where_they_were_wanted(tmp_path: Path, weights: str, _vendor: None) -> None:
    program = _compiled(tmp_path / "model", "wide", weights=weights)
    program.load(observe.open_workload(tmp_path / "model", batch=2).input_arrays("a"))
    assert len(program._arguments) == (5 if weights == "arguments" else 1)
    program.save(tmp_path)
    held = (tmp_path / EXECUTABLE).stat().st_size > 4 * 512 * 512 * 4
    assert held == (weights == "constants")
    program.close()


@pytest.mark.parametrize("weights", WEIGHTS)
def test_coverage_counts_what_the_executable_holds(
    tmp_path: Path, weights: str, _vendor: None
) -> None:
    program = _compiled(tmp_path, "wide", weights=weights)
    coverage = program.coverage()
    assert (coverage["share"], coverage["weights"]) == (1.0, weights)
    assert sum(coverage["parts"].values()) >= 4
    program.close()


def test_parts_name_custom_calls_and_libraries() -> None:
    text = """%fused {
  ROOT %a = f32[2]{0} add(%x, %y)
}
ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2]{0} parameter(0)
  %c = f32[2]{0} fusion(%x), kind=kLoop, calls=%fused
  %d = (f32[2]{0}, s8[4]{0}) custom-call(%c), custom_call_target="__cublas$gemm"
  ROOT %e = f32[2]{0} fusion(%d), calls=%f, backend_config={"fusion_config":{"kind":"__ynn"}}
}"""
    assert _parts(text) == {"custom-call __cublas$gemm": 1, "fusion": 1, "fusion __ynn": 1}


def test_products_ask_for_float32(tmp_path: Path, _vendor: None) -> None:
    write_workload(tmp_path, "conv", batches=(1,))
    workload = observe.open_workload(tmp_path, batch=1)
    model, _ = read_model(workload)
    text = str(jaxlib_module(stablehlo_text(model), {}, workload=workload))
    assert text.count("HIGHEST") == 2 * text.count("stablehlo.convolution") > 0


def test_sixty_four_bits_stay(tmp_path: Path, _vendor: None) -> None:
    onnx = pytest.importorskip("onnx")
    specs = [TensorSpec("x", "int64", (2, 3)), TensorSpec("y", "int64", (2, 3))]
    node = onnx.helper.make_node("Add", ["x", "x"], ["y"])
    program = XLA.compile(
        _graph(tmp_path, [node], inputs=specs[:1], outputs=specs[1:]), Device(), {}
    )
    program.load({"x": np.full((2, 3), 2**40, np.int64)})
    program.run()
    assert (program.outputs()["y"] == 2**41).all()
    program.close()


def test_ops_of_older_sets_keep_their_meaning(tmp_path: Path, _vendor: None) -> None:
    onnx = pytest.importorskip("onnx")
    specs = [TensorSpec("x", "float32", (2, 3, 4)), TensorSpec("y", "float32", (2, 3, 4))]
    # Until opset 13 Softmax ran over all axes from this one on.
    node = onnx.helper.make_node("Softmax", ["x"], ["y"], axis=1)
    workload = _graph(tmp_path, [node], inputs=specs[:1], outputs=specs[1:], opset=11)
    program = XLA.compile(workload, Device(), {})
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    program.load({"x": x})
    program.run()
    wanted = np.exp(x) / np.exp(x).sum(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(program.outputs()["y"], wanted, rtol=1e-5)
    program.close()


def test_ops_without_lowering_are_named(tmp_path: Path, _vendor: None) -> None:
    onnx = pytest.importorskip("onnx")
    specs = [TensorSpec("x", "float32", (2, 3, 3)), TensorSpec("y", "float32", (2,))]
    node = onnx.helper.make_node("Det", ["x"], ["y"])
    with pytest.raises(Unsupported, match=r"aten\.linalg_det"):
        XLA.compile(_graph(tmp_path, [node], inputs=specs[:1], outputs=specs[1:]), Device(), {})


def test_pools_that_round_up_are_refused(tmp_path: Path, _vendor: None) -> None:
    onnx = pytest.importorskip("onnx")
    specs = [TensorSpec("x", "float32", (2, 1, 4, 4)), TensorSpec("y", "float32", (2, 1, 2, 2))]
    node = onnx.helper.make_node(
        "MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1
    )
    with pytest.raises(Unsupported, match="MaxPool with ceil_mode"):
        XLA.compile(_graph(tmp_path, [node], inputs=specs[:1], outputs=specs[1:]), Device(), {})


def test_control_flow_is_refused(tmp_path: Path, _vendor: None) -> None:
    onnx = pytest.importorskip("onnx")
    helper, number = onnx.helper, onnx.TensorProto.FLOAT

    def branch(op: str) -> Any:
        made = helper.make_tensor_value_info(op, number, [2, 3])
        return helper.make_graph([helper.make_node(op, ["x"], [op])], op, [], [made])

    specs = [TensorSpec("x", "float32", (2, 3)), TensorSpec("y", "float32", (2, 3))]
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node(
            "If", ["positive"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg")
        ),
    ]
    zero = {"zero": np.zeros((), np.float32)}
    workload = _graph(tmp_path, nodes, inputs=specs[:1], outputs=specs[1:], constants=zero)
    with pytest.raises(Unsupported, match="does not lower"):
        XLA.compile(workload, Device(), {})


def test_types_that_came_out_otherwise_are_refused(tmp_path: Path, _vendor: None) -> None:
    write_workload(tmp_path, "mlp", batches=(1,))
    workload = observe.open_workload(tmp_path, batch=1)
    text = stablehlo_text(read_model(workload)[0])
    dynamic = dataclasses.replace(workload.outputs[0], shape=("n", 4))
    with pytest.raises(Unsupported, match="tensor<1x4xf32> of tensor<"):
        jaxlib_module(text, {}, workload=dataclasses.replace(workload, outputs=(dynamic,)))


def test_flags_reach_xla(tmp_path: Path, _vendor: None) -> None:
    assert _flags("--a=true b=2") == [("a", True), ("b", "2")]
    with pytest.raises(CompileFailed, match="name=value"):
        _flags("nothing")
    write_workload(tmp_path, "mlp", batches=(1,))
    workload = observe.open_workload(tmp_path, batch=1)
    XLA.compile(workload, Device(), {"flags": "xla_cpu_enable_fast_math=true"}).close()
    with pytest.raises(CompileFailed, match="no_such_flag"):
        XLA.compile(workload, Device(), {"flags": "no_such_flag=1"})
