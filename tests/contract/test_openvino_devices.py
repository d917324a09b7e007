"""OpenVINO on GPUs and NPUs, over a fake of its devices that computes on the CPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import fake_openvino as fake
import pytest

from ngraphbench.compilers.openvino import OpenVino
from ngraphbench.compilers.openvino_devices import check_shapes
from ngraphbench.errors import Unavailable, Unsupported
from ngraphbench.plugin import Program, resolve_options
from ngraphbench.session.flags import coverage_flag
from ngraphbench.testing import CompilerContract, observe
from ngraphbench.testing.workloads import write_workload
from ngraphbench.types import Device, Json

GPU = Device(accelerator="intel-gpu", threads=1)
NPU = Device(accelerator="npu", threads=1)


class TestOpenVinoOnAGpu(CompilerContract):
    compiler = OpenVino()
    accelerator = "intel-gpu"
    models = ("mlp",)
    known_gaps: ClassVar = {}

    @pytest.fixture(autouse=True)
    def _vendor(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fake.install(monkeypatch)

    @pytest.fixture(autouse=True)
    def _apply_known_gaps(self, _vendor: None, request: pytest.FixtureRequest) -> None:
        if request.node.originalname == "test_threads_asked_for_are_used":
            pytest.skip("the fake lives in this process")


def compiled(folder: Path, device: Device, *, precision: str = "fp32", **options: Any) -> Program:
    root = write_workload(folder / "conv", "conv", batches=(2,))
    workload = observe.open_workload(root, batch=2, precision=precision)
    return OpenVino().compile(workload, device, resolve_options(OpenVino(), options))


def coverage(folder: Path, device: Device, **asked: Any) -> Json:
    program = compiled(folder, device, **asked)
    told: Json = program.coverage()
    program.close()
    return told


@pytest.mark.parametrize(("precision", "hint"), [("fp32", "f32"), ("fp16", "f16")])
def test_a_gpu_computes_in_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str, hint: str
) -> None:
    machine = fake.install(monkeypatch)
    told = coverage(tmp_path, GPU, precision=precision, hint="throughput")
    ((target, settings),) = machine.asked
    assert (target, settings["INFERENCE_PRECISION_HINT"]) == ("GPU", hint)
    assert settings["ALLOW_AUTO_BATCHING"] is False, "batches are the user's alone"
    assert (told["share"], told["devices"], told["precision_hint"]) == (1.0, ["GPU.0"], hint)
    assert set(told["precisions"]) == {hint}
    assert told["device_name"] == "A GPU (fake)"


def test_an_npu_runs_in_fp16_and_refuses_fp32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = fake.install(monkeypatch, there=["NPU"])
    with pytest.raises(Unsupported, match="fp16") as caught:
        compiled(tmp_path, NPU)
    assert caught.value.reason == "precision" and not machine.asked
    told = coverage(tmp_path, NPU, precision="fp16")
    assert machine.asked == [
        ("NPU", {"INFERENCE_PRECISION_HINT": "f16", "PERFORMANCE_HINT": "LATENCY"})
    ]
    assert (told["devices"], told["precision_hint"]) == (["NPU"], "f16")
    assert told["notes"] and "precisions" not in told


def test_an_npu_takes_fixed_shapes_alone() -> None:
    by_input = SimpleNamespace(is_dynamic=lambda: True)
    with pytest.raises(Unsupported) as caught:
        check_shapes(by_input, ("NPU",))
    assert caught.value.reason == "dynamic-shape"
    check_shapes(by_input, ("GPU",))
    check_shapes(SimpleNamespace(is_dynamic=lambda: False), ("NPU", "CPU"))


@pytest.mark.parametrize(("device", "words"), [(GPU, "compute runtime"), (NPU, "NPU driver")])
def test_a_device_that_is_not_there_is_told_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Device, words: str
) -> None:
    fake.install(monkeypatch, there=())
    support = OpenVino().probe(device)
    assert not support.ok and words in support.hint
    assert "libOpenCL.so.1: cannot open" in support.hint and "/there" not in support.hint
    with pytest.raises(Unavailable) as caught:
        compiled(tmp_path, device)
    assert caught.value.reason == "no-device"
    assert OpenVino().probe(Device()).ok


def test_of_several_gpus_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake.install(monkeypatch, there=["GPU.0", "GPU.1"])
    monkeypatch.setitem(fake.RUNS_ON, "GPU", ["GPU.1"])
    assert coverage(tmp_path, GPU, device_id=1)["devices"] == ["GPU.1"]
    assert machine.asked[0][0] == "GPU.1"
    with pytest.raises(Unavailable, match=r"GPU\.2"):
        compiled(tmp_path, GPU, device_id=2)


@pytest.mark.parametrize("fallback", [True, False])
@pytest.mark.parametrize("admits", [True, False])
def test_another_precision_than_asked_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, admits: bool, fallback: bool
) -> None:
    fake.install(monkeypatch, computes="f16", admits=admits)
    with pytest.raises(Unsupported, match="computes in f16, where f32") as caught:
        compiled(tmp_path, GPU, fallback=fallback)
    assert caught.value.reason == "precision"


def test_another_device_than_asked_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.install(monkeypatch, goes_to="CPU")
    with pytest.raises(Unsupported, match="on CPU, not on GPU") as caught:
        compiled(tmp_path, GPU)
    assert caught.value.reason == "device"


def test_what_the_cpu_runs_in_its_place_is_asked_for_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = fake.install(monkeypatch, leaves=["Relu"])
    with pytest.raises(Unsupported, match="Relu") as caught:
        compiled(tmp_path, GPU)
    assert caught.value.reason == "operator"
    told = coverage(tmp_path, GPU, fallback=True)
    target, settings = machine.asked[-1]
    assert target == "HETERO:GPU,CPU"
    hints = {k: v["INFERENCE_PRECISION_HINT"] for k, v in settings["DEVICE_PROPERTIES"].items()}
    assert hints == {"GPU": "f32", "CPU": "f32"}
    assert (told["devices"], told["precision_hint"]) == (["GPU.0", "CPU"], "f32")
    assert set(told["parts"]) == {"GPU", "CPU"} and told["parts"]["CPU"] == 1
    assert 0 < told["share"] < 0.95
    with pytest.raises(Unsupported, match="batches"):
        compiled(tmp_path, GPU, fallback=True, hint="throughput")
    flag = coverage_flag(told)
    assert flag is not None and flag["flag"] == "partly-compiled"


def test_the_cpu_itself_falls_back_on_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = fake.install(monkeypatch)
    drivers = property(lambda core: pytest.fail("this would load the drivers of all devices"))
    monkeypatch.setattr(fake.Core, "available_devices", drivers)
    told = coverage(tmp_path, Device(threads=1), fallback=True)
    assert not machine.asked
    assert (told["devices"], told["share"], told["threads"]) == (["CPU"], 1.0, 1)
