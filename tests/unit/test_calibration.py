"""int8 and the set it is calibrated by: what is asked for together, and what a compiler gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from plan_fixture import COMPILERS, FACTS, Fake, Runtime, labels, refused, write_models

from ngraphbench.compilers.checks import check_precision, check_request
from ngraphbench.errors import SpecError, Unsupported
from ngraphbench.models.calibration import write_calibration
from ngraphbench.models.feeds import Feed
from ngraphbench.plan import Plan, make_plan
from ngraphbench.session.commandline import reproduce_command
from ngraphbench.session.flags import quantised_flag
from ngraphbench.spec import build_experiment
from ngraphbench.types import INT8, Device, TensorSpec
from ngraphbench.workload import CALIBRATION, Workload

X = TensorSpec("x", "float32", (2, 3))
SCALE = TensorSpec("scale", "float32", ())


class Quantiser(Fake):
    name: ClassVar[str] = "onnxruntime"
    quantises: ClassVar[bool] = True
    options: ClassVar = Runtime.options


@pytest.fixture
def base(tmp_path: Path) -> Path:
    np.savez(tmp_path / "x.npz", x=np.ones((4, 1), np.float32))
    np.savez(tmp_path / "other.npz", x=np.zeros((4, 1), np.float32))
    return write_models(tmp_path)


def plan_of(base: Path, model: dict[str, Any], *, precision: str = INT8) -> Plan:
    data = {
        "name": "t",
        "models": [model],
        "compilers": ["onnxruntime", "tuner"],
        "batch_sizes": [1],
        "precision": precision,
    }
    compilers = {**COMPILERS, "onnxruntime": f"{__name__}:Quantiser"}
    return make_plan(build_experiment(data), base=base, compilers=compilers, facts=FACTS)


def test_int8_is_for_those_that_quantise_and_has_a_baseline_of_its_own(base: Path) -> None:
    for model in ("a.onnx", "nets.py:one"):
        plan = plan_of(base, {"model": model, "calib": "x.npz"})
        assert labels(plan.sessions[0]) == ["onnxruntime:level=none", "onnxruntime"]
        (skipped,) = plan.skipped
        assert (skipped.case.label, skipped.status, skipped.reason) == (
            "tuner",
            "unsupported",
            "precision",
        )
        first = plan.sessions[0].cases[1]
        baseline = plan.sessions[0].baseline_case(first)
        assert baseline is not None and baseline.label == "onnxruntime:level=none"
        assert f"--calib {base}/x.npz" in reproduce_command(first, plan.sessions[0])


def test_the_set_is_part_of_what_is_measured_in_int8_alone(base: Path) -> None:
    def case_id(calib: str, precision: Any) -> str:
        plan = plan_of(base, {"model": "a.onnx", "calib": calib}, precision=precision)
        return plan.sessions[0].cases[-1].case_id

    assert case_id("x.npz", INT8) != case_id("other.npz", INT8)
    both = ["fp32", INT8]
    # The session in fp32 comes first.
    plain = plan_of(base, {"model": "a.onnx"}, precision="fp32").sessions[0].cases[-1].case_id
    assert case_id("x.npz", both) == case_id("other.npz", both) == plain


def test_a_set_and_int8_come_together(base: Path) -> None:
    error = refused(base, ["a.onnx"], ["onnxruntime"], precision=INT8)
    assert error.reason == "calibration" and "--calib" in str(error)
    error = refused(base, [{"model": "a.onnx", "calib": "x.npz"}], ["onnxruntime"])
    assert "int8 was not asked for" in str(error)
    error = refused(
        base, [{"model": "a.onnx", "calib": "none.npz"}], ["onnxruntime"], precision=INT8
    )
    assert "no calibration set" in str(error)


def test_a_quantised_file_needs_no_set(base: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"]),
    ]
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 1]) for n in ("x", "y")]
    scale = onnx.numpy_helper.from_array(np.array(0.1, np.float32), "s")
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], [scale])
    onnx.save(helper.make_model(graph), base / "q.onnx")
    plan = plan_of(base, {"model": "q.onnx"})
    assert labels(plan.sessions[0]) == ["onnxruntime:level=none", "onnxruntime", "tuner"]
    error = refused(base, [{"model": "q.onnx", "calib": "x.npz"}], ["tuner"], precision=INT8)
    assert "quantised already" in str(error)


@pytest.mark.parametrize("quantised", [True, False])
def test_what_a_file_quantises_itself_is_no_wish_of_the_plugin(quantised: bool) -> None:
    workload = Workload(Path(), 2, INT8, ("onnx",), (X,), (X,), quantised=quantised)
    if quantised:
        check_request(Fake(), workload, Device())
    else:
        with pytest.raises(Unsupported, match="int8"):
            check_request(Fake(), workload, Device())


def test_tf32_is_refused_with_its_reason() -> None:
    with pytest.raises(Unsupported, match="GPUs by NVIDIA") as caught:
        check_precision("tf32", name="fake")
    assert "local/cuda" in caught.value.hint


@pytest.mark.parametrize("axes", [{"x": 0, "scale": None}, {"x": None, "scale": None}])
def test_items_come_in_whole_batches_of_what_the_user_gave(tmp_path: Path, axes: Any) -> None:
    items = np.arange(15, dtype=np.float64).reshape(5, 3)
    np.savez(tmp_path / "items.npz", x=items, scale=np.float32(2))
    # A model that is fixed to a batch of two has no batch axis.
    feed = Feed((X, SCALE), {}, {}, axes)
    (tmp_path / "b2").mkdir()
    write_calibration(tmp_path / "items.npz", feed, batch=2, target=tmp_path / "b2" / CALIBRATION)
    workload = Workload(tmp_path, 2, INT8, ("onnx",), (X, SCALE), (X,), axes=feed.axes)
    batches = list(workload.calibration_batches())
    assert [batch["x"].tolist() for batch in batches] == [
        items[:2].tolist(),
        items[2:4].tolist(),
        [*items[4:].tolist(), *items[:1].tolist()],
    ]
    assert all(batch["scale"] == 2 and batch["x"].dtype == np.float32 for batch in batches)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": np.ones((2, 3))}, "no array for input 'x'"),
        ({"x": np.ones((2, 4))}, "is 2x4; the model takes itemsx3"),
        ({"x": np.ones((0, 3))}, "as many items"),
    ],
)
def test_items_that_do_not_fit_are_named(tmp_path: Path, arrays: Any, words: str) -> None:
    np.savez(tmp_path / "items.npz", **arrays)
    with pytest.raises((SpecError, Unsupported), match=words):
        write_calibration(
            tmp_path / "items.npz", Feed((X,), {}, {}, {"x": 0}), batch=2, target=tmp_path / "c"
        )


def test_what_did_not_run_in_int8_is_flagged() -> None:
    assert quantised_flag({"share": 1.0}) is None
    assert quantised_flag({"products": {"int8": 3, "wider": 0}}) is None
    found = quantised_flag({"products": {"int8": 10, "wider": 11}})
    assert found is not None and found["flag"] == "partly-quantised"
    assert found["detail"] == "10 of 21 products and convolutions ran in int8"
