"""What is special to one compiler: its options, its dtypes, its ways to say no."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngraphbench.compilers import openvino
from ngraphbench.compilers.fake import FakeCompiler
from ngraphbench.compilers.onnxruntime import OnnxRuntime
from ngraphbench.compilers.openvino import OpenVino
from ngraphbench.compilers.pytorch import Eager
from ngraphbench.errors import CompileFailed, RunFailed, Unsupported
from ngraphbench.models.modules import build_module
from ngraphbench.plugin import Compiler, Program, RunsConcurrently, resolve_options
from ngraphbench.testing.workloads import fake_workload, reference_arrays
from ngraphbench.types import Arrays, Device, TensorSpec, storage_dtype
from ngraphbench.workload import Workload, write_arrays

DEVICE = Device(threads=1)
ONNX_COMPILERS = [OnnxRuntime(), OpenVino()]


def _require(compiler: Compiler) -> None:
    support = compiler.probe(DEVICE)
    if not support.ok:
        pytest.skip(support.hint)


def _bits(values: Any) -> Any:
    """Return bfloat16 bits of values that it holds exactly."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _outputs(program: Any, workload: Workload, runs: int = 1) -> Arrays:
    program.load(workload.input_arrays("a"))
    for _ in range(runs):
        program.run()
        program.sync()
    outputs: Arrays = program.outputs()
    return outputs


def _torch_workload(root: Path, forward: str, dtype: str = "float32") -> Workload:
    source = (
        f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        {forward}\n"
    )
    (root / "b2").mkdir()
    (root / "net.py").write_text(source)
    x = np.arange(8).reshape(2, 4) - 3
    write_arrays(
        root / "b2/inputs-a.npz", {"x": _bits(x) if dtype == "bfloat16" else x.astype(dtype)}
    )
    spec = TensorSpec("x", dtype, (2, 4))
    return Workload(
        root=root,
        batch=2,
        precision="fp32",
        forms=("torch",),
        inputs=(spec,),
        outputs=(TensorSpec("output", dtype, (2, 4)),),
        model={"kind": "file", "source": "net.py:Net", "path": str(root / "net.py"), "seed": 0},
        build=build_module,
    )


def _onnx_workload(root: Path, op: str, *, dtype: str = "float32", **versions: int) -> Workload:
    import onnx
    from onnx import TensorProto, helper

    (root / "b2").mkdir()
    element = getattr(
        TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())
    )
    info = [helper.make_tensor_value_info(name, element, [2, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", info[:1], info[1:])
    opsets = [helper.make_opsetid("", versions.get("opset", 17))]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=versions.get("ir", 8))
    onnx.save(model, root / "b2/model.onnx")
    x = np.arange(8).reshape(2, 4)
    write_arrays(
        root / "b2/inputs-a.npz", {"x": _bits(x) if dtype == "bfloat16" else x.astype(dtype)}
    )
    return Workload(
        root=root,
        batch=2,
        precision="fp32",
        forms=("onnx",),
        inputs=(TensorSpec("x", dtype, (2, 4)),),
        outputs=(TensorSpec("y", dtype, (2, 4)),),
    )


@pytest.mark.parametrize("compiler", ONNX_COMPILERS, ids=lambda c: c.name)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int64", "uint8", "bool"])
def test_dtypes_pass_through(compiler: Compiler, dtype: str, tmp_path: Path) -> None:
    _require(compiler)
    workload = _onnx_workload(tmp_path, "Identity", dtype=dtype)
    program = compiler.compile(workload, DEVICE, resolve_options(compiler, {}))
    found = _outputs(program, workload)["y"]
    assert found.dtype == storage_dtype(dtype)
    assert np.array_equal(found, workload.input_arrays("a")["x"])


@pytest.mark.parametrize("concurrent", [False, True])
def test_streams_compute_for_lanes_and_nobody_else(tmp_path: Path, concurrent: bool) -> None:
    _require(OpenVino())
    options = resolve_options(OpenVino(), {"hint": "throughput"})
    program: Program = OpenVino().compile(_products_workload(tmp_path), DEVICE, options)
    if concurrent:
        assert isinstance(program, RunsConcurrently)
        program = program.lanes(2)[1]
    program.load({"x": np.full((512, 512), 0.01, np.float32)})
    program.run()
    caller_ns, process_ns = time.thread_time_ns(), time.process_time_ns()
    for _ in range(10):
        program.run()
    caller_ns, process_ns = time.thread_time_ns() - caller_ns, time.process_time_ns() - process_ns
    assert (caller_ns < 0.5 * process_ns) == concurrent


@pytest.mark.parametrize(("asked", "exact"), [({}, True), ({"dynamic_quantization": True}, False)])
def test_weights_stored_as_int8_are_no_wish_for_int8(
    asked: dict[str, bool], exact: bool, tmp_path: Path
) -> None:
    _require(OpenVino())
    workload, weights = _small_weights(tmp_path)
    program = OpenVino().compile(workload, DEVICE, resolve_options(OpenVino(), asked))
    x = np.random.default_rng(1).standard_normal((8, 256)).astype(np.float32)
    program.load({"x": x})
    program.run()
    wanted = x.astype(np.float64) @ weights
    error = np.linalg.norm(program.outputs()["y"] - wanted) / np.linalg.norm(wanted)
    assert (error < 1e-5) == exact


def _small_weights(root: Path) -> tuple[Workload, Any]:
    """Return a product with weights of int8 times a scale, and those weights."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    small = random.integers(-127, 128, (256, 256)).astype(np.int8)
    scale = random.uniform(0.001, 0.01, (1, 256)).astype(np.float32)
    (root / "b8").mkdir()
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8, 256]) for n in "xy"]
    nodes = [
        helper.make_node("Cast", ["small"], ["large"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["large", "scale"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    kept = [numpy_helper.from_array(small, "small"), numpy_helper.from_array(scale, "scale")]
    model = helper.make_model(
        helper.make_graph(nodes, "g", info[:1], info[1:], kept),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(model, root / "b8/model.onnx")
    specs = [TensorSpec(name, "float32", (8, 256)) for name in "xy"]
    workload = Workload(
        root=root,
        batch=8,
        precision="fp32",
        forms=("onnx",),
        inputs=(specs[0],),
        outputs=(specs[1],),
    )
    return workload, small.astype(np.float64) * scale


def _products_workload(root: Path) -> Workload:
    import onnx
    from onnx import TensorProto, helper

    (root / "b1").mkdir()
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [512, 512]) for n in "xy"]
    names = ["x", "a", "b", "c", "y"]
    nodes = [
        helper.make_node("MatMul", [given, "x"], [made])
        for given, made in itertools.pairwise(names)
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "products", info[:1], info[1:]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(model, root / "b1/model.onnx")
    specs = [TensorSpec(name, "float32", (512, 512)) for name in "xy"]
    return Workload(
        root=root,
        batch=1,
        precision="fp32",
        forms=("onnx",),
        inputs=(specs[0],),
        outputs=(specs[1],),
    )


@pytest.mark.parametrize("compiler", ONNX_COMPILERS, ids=lambda c: c.name)
def test_unknown_operator_is_unsupported(compiler: Compiler, tmp_path: Path) -> None:
    _require(compiler)
    workload = _onnx_workload(tmp_path, "NoSuchOperator")
    with pytest.raises(Unsupported, match="NoSuchOperator") as caught:
        compiler.compile(workload, DEVICE, resolve_options(compiler, {}))
    assert caught.value.reason == "operator"


@pytest.mark.parametrize("versions", [{"ir": 99}, {"opset": 99}], ids=["ir", "opset"])
def test_newer_format_is_unsupported(versions: dict[str, int], tmp_path: Path) -> None:
    _require(OnnxRuntime())
    workload = _onnx_workload(tmp_path, "Relu", **versions)
    with pytest.raises(Unsupported) as caught:
        OnnxRuntime().compile(workload, DEVICE, {})
    assert caught.value.reason == "model-format"


def test_missing_provider_is_unsupported(tmp_path: Path) -> None:
    _require(OnnxRuntime())
    workload = _onnx_workload(tmp_path, "Relu")
    with pytest.raises(Unsupported) as caught:
        OnnxRuntime().compile(workload, DEVICE, {"provider": "QNNExecutionProvider"})
    assert caught.value.reason == "provider"


@pytest.mark.parametrize("forward", ["return x.mul_(2).relu()", "return x.relu_() + 0"])
def test_inputs_changed_in_place_are_restored(forward: str, tmp_path: Path) -> None:
    _require(Eager())
    workload = _torch_workload(tmp_path, forward)
    program = Eager().compile(workload, DEVICE, {})
    once = _outputs(program, workload)["output"]
    often = _outputs(program, workload, runs=5)["output"]
    assert program.coverage()["mutates_inputs"]
    assert np.array_equal(once, often)


def test_torch_bfloat16_is_bits(tmp_path: Path) -> None:
    _require(Eager())
    workload = _torch_workload(tmp_path, "return x * 2", dtype="bfloat16")
    found = _outputs(Eager().compile(workload, DEVICE, {}), workload)["output"]
    assert np.array_equal(found, _bits(2 * (np.arange(8).reshape(2, 4) - 3)))


def test_failing_module_is_told_with_its_cause(tmp_path: Path) -> None:
    _require(Eager())
    workload = _torch_workload(tmp_path, "raise ValueError('odd input')")
    with pytest.raises(CompileFailed, match="ValueError: odd input"):
        Eager().compile(workload, DEVICE, {})


def test_fake_runs_its_own_workload(tmp_path: Path) -> None:
    root = fake_workload(tmp_path)
    workload = Workload.open(root, batch=8)
    program = FakeCompiler().compile(workload, DEVICE, {})
    assert np.array_equal(_outputs(program, workload)["y"], reference_arrays(root, batch=8)["y"])


@pytest.mark.parametrize("fault", ["wrong", "nan", "constant"])
def test_fake_faults_change_the_outputs(fault: str, tmp_path: Path) -> None:
    root = fake_workload(tmp_path)
    workload = Workload.open(root, batch=2)
    program = FakeCompiler().compile(workload, DEVICE, {"fault": fault})
    found = _outputs(program, workload)["y"]
    assert not np.array_equal(found, reference_arrays(root, batch=2)["y"])


def test_fake_errors_are_plugin_errors(tmp_path: Path) -> None:
    workload = Workload.open(fake_workload(tmp_path), batch=2)
    with pytest.raises(CompileFailed):
        FakeCompiler().compile(workload, DEVICE, {"fault": "compile-error"})
    with pytest.raises(Unsupported):
        FakeCompiler().compile(workload, DEVICE, {"fault": "unsupported"})
    program = FakeCompiler().compile(workload, DEVICE, {"fault": "run-error"})
    with pytest.raises(RunFailed):
        _outputs(program, workload)


def test_openvino_says_what_and_not_where_in_its_sources() -> None:
    told = openvino._translated(
        RuntimeError(
            "Exception from src/inference/src/cpp/core.cpp:84:\n"
            "Check 'false' failed at src/frontends/unconverted_ops_report.cpp:151:\n"
            "FrontEnd API failed with OpConversionFailure:\n"
            "Model wasn't fully converted. Failed operations detailed log:\n"
            "While validating ONNX node '<Node(Dropout): y>':\n"
            "Training mode is not supported for Dropout op\n"
        )
    )
    assert isinstance(told, Unsupported) and told.reason == "operator"
    assert told.message == (
        "openvino: RuntimeError: Model wasn't fully converted. Failed operations detailed log:\n"
        "Training mode is not supported for Dropout op"
    )
