"""Torch modules on CUDA, which is the CPU here, and Torch-TensorRT over a fake of its API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fake_torch_tensorrt as fake
import pytest

from ngraphbench.compilers.pytorch import Eager
from ngraphbench.compilers.torch_tensorrt import TorchTensorRt
from ngraphbench.compilers.torchprogram import check_build
from ngraphbench.errors import Unavailable, Unsupported
from ngraphbench.plugin import resolve_options
from ngraphbench.testing import CompilerContract, observe
from ngraphbench.testing.workloads import reference_arrays, write_workload
from ngraphbench.types import Device, Json

CUDA = Device(accelerator="cuda", threads=1)
IN_A_PROCESS = "the fake lives in this process"


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    found = pytest.importorskip("torch")
    kept = found.get_float32_matmul_precision(), found.backends.cudnn.allow_tf32
    fake.stand_in(monkeypatch)
    yield found
    found.set_float32_matmul_precision(kept[0])
    found.backends.cudnn.allow_tf32 = kept[1]


class TestTorchTensorRt(CompilerContract):
    compiler = TorchTensorRt()
    accelerator = "cuda"
    options: ClassVar = {"preset": "shipped"}
    models = ("mlp", "pair")
    known_gaps: ClassVar = {}

    @pytest.fixture(autouse=True)
    def _vendor(self, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        fake.install(monkeypatch)

    @pytest.fixture(autouse=True)
    def _apply_known_gaps(self, _vendor: None, request: pytest.FixtureRequest) -> None:
        if request.node.originalname == "test_threads_asked_for_are_used":
            pytest.skip(IN_A_PROCESS)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
@pytest.mark.parametrize("compiler", [Eager(), TorchTensorRt()], ids=lambda one: one.name)
def test_tf32_is_on_where_it_was_asked_for_alone(
    tmp_path: Path, torch: Any, monkeypatch: pytest.MonkeyPatch, compiler: Any, precision: str
) -> None:
    fake.install(monkeypatch)
    root = write_workload(tmp_path / "mlp", "mlp", batches=(2,))
    workload = observe.open_workload(root, batch=2, precision=precision)
    program = compiler.compile(workload, CUDA, resolve_options(compiler, {}))
    wanted = precision == "tf32"
    assert torch.backends.cuda.matmul.allow_tf32 is wanted
    assert torch.backends.cudnn.allow_tf32 is wanted
    if compiler.name == "torch_tensorrt":
        assert fake.SETTINGS[-1]["disable_tf32"] is not wanted
        assert fake.SETTINGS[-1]["use_explicit_typing"] is True
    assert program.device_memory_bytes() == 4096
    program.close()


def test_tf32_is_refused_on_a_cpu(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    root = write_workload(tmp_path / "mlp", "mlp", batches=(2,))
    workload = observe.open_workload(root, batch=2, precision="tf32")
    with pytest.raises(Unsupported, match="GPUs by NVIDIA"):
        Eager().compile(workload, Device(), {})


def test_a_run_on_cuda_is_over_when_it_is_synchronised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = fake.stand_in(monkeypatch)
    root = write_workload(tmp_path / "mlp", "mlp", batches=(2,))
    workload = observe.open_workload(root, batch=2)
    program = Eager().compile(workload, CUDA, {})
    program.load(workload.input_arrays("a"))
    synced.clear()
    program.run()
    assert not synced
    program.sync()
    assert synced == ["cuda"]
    found = program.outputs()
    for name, wanted in reference_arrays(root, batch=2).items():
        assert observe.relative_error(found[name], wanted) < 1e-5
    program.close()


@pytest.mark.parametrize(
    ("built", "words"), [(False, "a build for the CPU alone"), (True, "finds no CUDA device")]
)
def test_a_torch_that_cannot_is_told_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, built: bool, words: str
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for compiler in (Eager(), TorchTensorRt()):
        support = compiler.probe(CUDA)
        assert not support.ok and words in support.hint
    with pytest.raises(Unavailable) as caught:
        check_build(CUDA)
    assert caught.value.hint
    assert Eager().probe(Device()).ok


@pytest.mark.parametrize(
    ("takes", "share", "parts"),
    [
        ("all", 1.0, {"TensorRT": 1, "torch": 0}),
        ("half", 0.0, {"TensorRT": 1, "torch": 1}),
        ("nothing", 0.0, {"TensorRT": 0, "torch": 1}),
    ],
)
def test_what_torch_still_runs_is_told(
    tmp_path: Path,
    torch: Any,
    monkeypatch: pytest.MonkeyPatch,
    takes: str,
    share: float,
    parts: Json,
) -> None:
    fake.install(monkeypatch, takes=takes)
    root = write_workload(tmp_path / "mlp", "mlp", batches=(2,))
    workload = observe.open_workload(root, batch=2)
    program = TorchTensorRt().compile(workload, CUDA, {})
    told = program.coverage()
    assert (told["share"], told["parts"]) == (share, parts)
    assert bool(told["notes"]) == (takes == "nothing")
    program.close()
    if takes != "all":
        with pytest.raises(Unsupported):
            TorchTensorRt().compile(workload, CUDA, {"require_full_compilation": True})
