"""The conformance suite on ONNX Runtime."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from int8 import ROUNDED, calibrated, error_and_coverage

from ngraphbench.compilers.onnxruntime import OnnxRuntime
from ngraphbench.compilers.providers import CPU, CUDA
from ngraphbench.compilers.qdq import quantised_file
from ngraphbench.errors import CompileFailed, Unsupported
from ngraphbench.testing import CompilerContract, observe
from ngraphbench.testing.workloads import write_workload
from ngraphbench.types import INT8, Device

TENSORRT = "TensorrtExecutionProvider"


class TestOnnxRuntime(CompilerContract):
    compiler = OnnxRuntime()


class TestOnnxRuntimeUnoptimised(CompilerContract):
    compiler = OnnxRuntime()
    options: ClassVar = {"level": "none", "spin": False}
    models = ("mlp",)


@pytest.mark.parametrize(("level", "int8"), [("all", 1), ("none", 0)])
def test_int8_is_calibrated_and_counted(tmp_path: Path, level: str, int8: int) -> None:
    pytest.importorskip("onnx")
    root = calibrated(tmp_path, "conv")
    error, coverage = error_and_coverage(OnnxRuntime(), root, level=level)
    assert ROUNDED[0] < error < ROUNDED[1]
    # Without its optimiser the runtime takes Q/DQ nodes at their word, and computes in float32.
    assert coverage["products"] == {"int8": int8, "wider": 1 - int8}


def test_int8_without_a_calibration_set_is_unsupported(tmp_path: Path) -> None:
    root = write_workload(tmp_path / "conv", "conv", batches=(2,))
    with pytest.raises(Unsupported, match="--calib"):
        error_and_coverage(OnnxRuntime(), root)


def test_a_quantised_file_runs_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    root = calibrated(tmp_path, "conv")
    workload = observe.open_workload(root, batch=2, precision=INT8)
    (root / "b2" / "model.onnx").write_bytes(quantised_file(workload, per_channel=True))
    (root / "b2" / "calibration.npz").unlink()
    about = json.loads((root / "b2" / "batch.json").read_text())
    (root / "b2" / "batch.json").write_text(json.dumps(about | {"quantised": True}))
    error, coverage = error_and_coverage(OnnxRuntime(), root)
    assert ROUNDED[0] < error < ROUNDED[1]
    assert coverage["products"] == {"int8": 1, "wider": 0}


def test_an_artefact_in_int8_still_says_so(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    workload = observe.open_workload(calibrated(tmp_path, "conv"), batch=2, precision=INT8)
    program = OnnxRuntime().compile(workload, Device(), {})
    program.save(tmp_path)
    loaded = OnnxRuntime().load_artifact(tmp_path, workload, Device(), {})
    assert loaded.coverage()["products"] == program.coverage()["products"]
    assert loaded.coverage()["products"]["int8"] == 1


class FakeSession:
    """A CPU's session that says it runs elsewhere, but for two nodes, and keeps its settings."""

    asked: ClassVar[list[Any]] = []
    moved: ClassVar[int] = 0
    real: ClassVar[Any] = None

    def __init__(self, model: Any, sess_options: Any, providers: list[Any]) -> None:
        FakeSession.asked = providers
        self._real = FakeSession.real(model, sess_options, providers=["CPUExecutionProvider"])

    def get_providers(self) -> list[str]:
        return [name if isinstance(name, str) else name[0] for name in self.asked][self.moved :]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        first, *rest = self.get_providers()
        counts = {first: 6, **dict.fromkeys(rest, 2)}
        return [
            SimpleNamespace(ep_name=name, get_nodes=lambda count=count: [None] * count)
            for name, count in counts.items()
        ]

    def io_binding(self) -> Any:
        return FakeBinding(self._real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


QUIETLY = """
import sys
from pathlib import Path
from ngraphbench.compilers.onnxruntime import OnnxRuntime
from ngraphbench.testing import observe
from ngraphbench.types import Device

workload = observe.open_workload(Path(sys.argv[1]), batch=2)
OnnxRuntime().compile(workload, Device(), {}).close()
"""


def test_its_makers_are_told_nothing(tmp_path: Path) -> None:
    """Else an identifier of this machine and a queue of reports lie below the cache folder."""
    pytest.importorskip("onnxruntime")
    root = write_workload(tmp_path / "mlp", "mlp", batches=(2,))
    home = tmp_path / "home"
    home.mkdir()
    # In what looks like somebody's CI it would say nothing anyway.
    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run(
        [sys.executable, "-c", QUIETLY, str(root)],
        env={**kept, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")},
        check=True,
    )
    assert list(home.rglob("*")) == []


class FakeBinding:
    """A binding whose device is the CPU's memory."""

    def __init__(self, session: Any) -> None:
        self._session, self._binding = session, session.io_binding()

    def bind_output(self, name: str, place: str) -> None:
        assert place == "cuda"
        self._binding.bind_output(name, "cpu")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._binding, name)


@pytest.fixture
def onnxruntime_gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """ONNX Runtime as if it had CUDA; what is on the device is on the CPU."""
    found = pytest.importorskip("onnxruntime")
    real_value = found.OrtValue.ortvalue_from_numpy
    FakeSession.real = found.InferenceSession
    monkeypatch.setattr(FakeSession, "moved", 0)
    monkeypatch.setattr(found, "InferenceSession", FakeSession)
    monkeypatch.setattr(found, "get_available_providers", lambda: [CUDA, TENSORRT, CPU])
    monkeypatch.setattr(
        found.OrtValue, "ortvalue_from_numpy", lambda array, place, number: real_value(array)
    )
    return found


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_cuda_is_its_provider_and_tf32_a_wish(
    tmp_path: Path, onnxruntime_gpu: Any, precision: str
) -> None:
    root = write_workload(tmp_path / "mlp", "mlp", batches=(2,))
    workload = observe.open_workload(root, batch=2, precision=precision)
    program = OnnxRuntime().compile(workload, Device(accelerator="cuda"), {})
    name, settings = FakeSession.asked[0]
    assert (name, settings["use_tf32"]) == (CUDA, "1" if precision == "tf32" else "0")
    assert FakeSession.asked[1:] == [CPU]
    program.close()


@pytest.mark.parametrize("provider", [CUDA, TENSORRT])
def test_nodes_that_fell_back_to_the_cpu_are_told(
    tmp_path: Path, onnxruntime_gpu: Any, provider: str
) -> None:
    root = write_workload(tmp_path / "mlp", "mlp", batches=(2,))
    workload = observe.open_workload(root, batch=2)
    program = OnnxRuntime().compile(workload, Device(accelerator="cuda"), {"provider": provider})
    told = program.coverage()
    assert told["parts"] == {provider: 6, CPU: 2}
    assert told["share"] == 0.75
    program.close()


def test_a_provider_that_did_not_start_fails_the_cell(
    tmp_path: Path, onnxruntime_gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeSession, "moved", 1)
    root = write_workload(tmp_path / "mlp", "mlp", batches=(2,))
    workload = observe.open_workload(root, batch=2)
    with pytest.raises(CompileFailed, match="could not start CUDAExecutionProvider"):
        OnnxRuntime().compile(workload, Device(accelerator="cuda"), {})


def test_a_build_without_cuda_does_not_work_on_it() -> None:
    vendor = pytest.importorskip("onnxruntime")
    if CUDA in vendor.get_available_providers():
        pytest.skip("this build has CUDA")
    support = OnnxRuntime().probe(Device(accelerator="cuda"))
    assert not support.ok and "onnxruntime-gpu" in support.hint


def test_a_provider_that_is_not_in_this_build_is_unsupported(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    root = write_workload(tmp_path / "mlp", "mlp", batches=(2,))
    workload = observe.open_workload(root, batch=2)
    with pytest.raises(Unsupported, match="has no QNNExecutionProvider") as caught:
        OnnxRuntime().compile(workload, Device(), {"provider": "QNNExecutionProvider"})
    assert "onnxruntime-gpu" in caught.value.hint
