"""TensorRT over a fake of its API: nothing here has run on hardware yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_tensorrt
import pytest
from artefacts import check_prebuilt, saved

from ngraphbench.compilers import tensorrt
from ngraphbench.compilers.tensorrt import TensorRt
from ngraphbench.errors import CompileFailed, RunFailed, Unsupported
from ngraphbench.plugin import resolve_options
from ngraphbench.testing import CompilerContract, observe
from ngraphbench.testing.workloads import reference_arrays, write_workload
from ngraphbench.types import Device

GPU = Device(accelerator="cuda")


class FakedTensorRt(TensorRt):
    """The plugin as it is, with the fake in place in whatever process asks it something."""

    def probe(self, device: Device) -> Any:
        fake_tensorrt.install()
        return super().probe(device)

    def compile(self, *arguments: Any) -> Any:
        fake_tensorrt.install()
        return super().compile(*arguments)

    def load_artifact(self, *arguments: Any) -> Any:
        fake_tensorrt.install()
        return super().load_artifact(*arguments)


class TestTensorRt(CompilerContract):
    compiler = FakedTensorRt()
    accelerator = "cuda"
    models = ("conv", "tokens")
    heavy = "conv"

    def test_threads_asked_for_are_used(self, tmp_path: Path) -> None:
        pytest.skip("Its work is the GPU's.")


@pytest.fixture(autouse=True)
def _vendor() -> Iterator[Any]:
    yield fake_tensorrt.install()
    fake_tensorrt.remove()


def _compiled(root: Path, sample: str = "conv", *, precision: str = "fp32", **given: Any) -> Any:
    write_workload(root, sample, batches=(1,))
    workload = observe.open_workload(root, batch=1, precision=precision)
    plugin = TensorRt()
    return plugin.compile(workload, GPU, resolve_options(plugin, given))


def _rename(root: Path, old: str, new: str) -> Any:
    import onnx

    path = write_workload(root, "conv", batches=(1,)) / "b1/model.onnx"
    model = onnx.load(path)
    for node in model.graph.node:
        node.op_type = new if node.op_type == old else node.op_type
    onnx.save(model, path)
    return observe.open_workload(root, batch=1)


def test_it_is_labelled() -> None:
    assert TensorRt.not_yet_run_on_hardware
    assert not TensorRt().probe(Device()).ok, "it has no business on a CPU"


@pytest.mark.parametrize(
    ("precision", "flags"),
    [("fp32", set()), ("fp16", {"FP16"}), ("bf16", {"BF16"})],
)
def test_precision_decides_the_flags(
    tmp_path: Path, precision: str, flags: set[str], _vendor: Any
) -> None:
    program = _compiled(tmp_path, precision=precision)
    assert _vendor.built[-1].flags == flags, "TF32 must be off"
    program.close()


def test_int8_is_taken_from_the_file_alone(tmp_path: Path, _vendor: Any) -> None:
    with pytest.raises(Unsupported, match="int8"):
        _compiled(tmp_path / "plain", precision="int8")
    path = tmp_path / "quantised.onnx"
    path.write_bytes(b"\x0a\x01x\x12\x01y\x22\x0eQuantizeLinear")
    assert tensorrt._is_quantised(path)
    path.write_bytes(b"a doc string on QuantizeLinear")
    assert not tensorrt._is_quantised(path)


def test_newer_versions_take_types_from_the_file(tmp_path: Path) -> None:
    fake_tensorrt.install(version="11.4.0", strongly_typed=True)
    _compiled(tmp_path / "a").close()
    with pytest.raises(Unsupported, match="takes the types in the file"):
        _compiled(tmp_path / "b", precision="fp16")


def test_kernel_times_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tensorrt.CACHE_VARIABLE, str(tmp_path))
    for times in (1, 2):
        _compiled(tmp_path / "model").close()
        assert (tmp_path / "timing.cache").read_bytes() == b"measured " * times
    _compiled(tmp_path / "model", timing_cache=False).close()
    assert (tmp_path / "timing.cache").read_bytes() == b"measured " * 2


def test_results_wait_for_the_stream(tmp_path: Path) -> None:
    program = _compiled(tmp_path)
    workload = observe.open_workload(tmp_path, batch=1)
    program.load(workload.input_arrays("b"))
    program.run()
    found = program.outputs()["output"]
    wanted = reference_arrays(tmp_path, batch=1, which="b")["output"]
    assert observe.relative_error(found, wanted) < 1e-5
    program.close()


def test_closing_frees_all_memory(tmp_path: Path) -> None:
    program = _compiled(tmp_path)
    assert len(fake_tensorrt.MEMORY) == 2
    assert program.device_memory_bytes() == 4096 + 4 * (3 * 8 * 8 + 4 * 8 * 8)
    program.run()
    program.close()
    assert not fake_tensorrt.MEMORY


def test_coverage_is_what_the_inspector_says(tmp_path: Path) -> None:
    program = _compiled(tmp_path, precision="fp16")
    found = program.coverage()
    assert found["parts"] == {"TensorRT": 2} and found["precisions"] == {"FP16": 2}
    assert found["share"] == 1 and found["layers"] == {"Conv": 1, "Relu": 1}
    program.close()


def test_a_dla_says_what_it_leaves_to_the_gpu(tmp_path: Path, _vendor: Any) -> None:
    workload = {"sample": "mlp", "precision": "fp16", "dla_core": 0}
    with pytest.raises(Unsupported, match="cannot run 2 of 3 layers: Gemm"):
        _compiled(tmp_path / "a", **workload, gpu_fallback=False)
    program = _compiled(tmp_path / "b", **workload, gpu_fallback=True)
    found = program.coverage()
    assert found["share"] == pytest.approx(1 / 3) and found["parts"] == {"DLA": 1, "GPU": 2}
    config = _vendor.built[-1]
    assert (config.DLA_core, config.flags) == (0, {"FP16", "GPU_FALLBACK"})
    program.close()
    with pytest.raises(Unsupported, match="fp16 and int8"):
        _compiled(tmp_path / "c", dla_core=0)


def test_the_vendors_words_are_told(tmp_path: Path) -> None:
    plugin = TensorRt()
    with pytest.raises(Unsupported, match="No importer registered for op: Unheard"):
        plugin.compile(_rename(tmp_path / "a", "Relu", "Unheard"), GPU, {})
    with pytest.raises(CompileFailed, match="Could not find any implementation"):
        plugin.compile(_rename(tmp_path / "b", "Relu", "Unbuildable"), GPU, {})


def test_a_foreign_engine_is_refused(tmp_path: Path) -> None:
    root = write_workload(tmp_path / "model", "conv", batches=(1,))
    (tmp_path / "model.plan").write_bytes(b"of another version")
    (tmp_path / "dla.json").write_text("null")
    workload = observe.open_workload(root, batch=1)
    with pytest.raises(CompileFailed, match="magic tag"):
        TensorRt().load_artifact(tmp_path, workload, GPU, {})


def test_errors_of_cuda_are_told(tmp_path: Path) -> None:
    program = _compiled(tmp_path)
    fake_tensorrt.MEMORY.clear()
    with pytest.raises(RunFailed, match="cudaMemcpyAsync"):
        program.load(observe.open_workload(tmp_path, batch=1).input_arrays("a"))


def test_an_engine_runs_as_it_is(tmp_path: Path) -> None:
    file = saved(TensorRt(), tmp_path, "conv", device=GPU)
    engine = file.rename(file.with_suffix(".engine"))
    check_prebuilt(TensorRt(), engine, tmp_path, "conv", device=GPU)
