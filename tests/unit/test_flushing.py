"""What denormal weights cost is measured against a copy of the model without them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from in_this_process import InThisProcess
from onnx import TensorProto, helper, numpy_helper
from silent_plugins import TARGET

from ngraphbench.case import Case, CompilerRef, Limits
from ngraphbench.errors import CompileFailed
from ngraphbench.models.exporter import Exporter
from ngraphbench.models.sources import resolve_model
from ngraphbench.session.export import load_references
from ngraphbench.session.flushing import TURNS, tell_flush_factors
from ngraphbench.session.resident import Resident
from ngraphbench.session.state import CaseState
from ngraphbench.types import Device, Json
from ngraphbench.workload import Workload, flushed_root

BATCH = 2


class Slow(InThisProcess):
    """Takes ten times as long on the model as it is as on its copy."""

    def __init__(self) -> None:
        super().__init__()
        self._flushed = False

    def request(self, op: str, *, deadline_s: float, **fields: object) -> Json:
        if op == "compile":
            self._flushed = str(fields["root"]).endswith("flushed")
        reply = super().request(op, deadline_s=deadline_s, **fields)
        return {"ns": [100 if self._flushed else 1000] * len(reply["ns"])} if op == "run" else reply


class Refuses(Slow):
    """Cannot compile the copy."""

    def request(self, op: str, *, deadline_s: float, **fields: object) -> Json:
        if op == "compile" and str(fields["root"]).endswith("flushed"):
            raise CompileFailed("no zeros, please")
        return super().request(op, deadline_s=deadline_s, **fields)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    weights = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    weights[0] = 1e-40
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(weights, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    exporter = Exporter()
    model = resolve_model("m.onnx", base=tmp_path).to_json()
    exporter.open({"model": model, "root": str(tmp_path / "w"), "seed": 0})
    exporter.batch({"batch": BATCH})
    return tmp_path


def resident(folder: Path, worker: type[InThisProcess]) -> Resident:
    case = Case(
        model=resolve_model("m.onnx", base=folder),
        compiler=CompilerRef("silent", TARGET),
        device=Device(),
        batch=BATCH,
    )
    root = folder / "w"
    references = load_references(root, BATCH)
    return Resident(case, CaseState(), Limits(), worker, root, folder, references)


def told(folder: Path, worker: type[InThisProcess], *, flagged: bool = True) -> str:
    own = resident(folder, worker)
    if flagged:
        own.state.flag("denormals", "4 of 32 weights are denormal numbers")
    own.prepare()
    tell_flush_factors({"a": own}, lambda _: resident(folder, worker))
    return own.state.flags[0]["detail"] if own.state.flags else ""


def test_the_copy_differs_in_nothing_but_denormals(folder: Path) -> None:
    root = folder / "w"
    plain = Workload.open(root, batch=BATCH)
    copy = Workload.open(flushed_root(root), batch=BATCH)
    assert (plain.inputs, plain.outputs, plain.forms) == (copy.inputs, copy.outputs, copy.forms)
    before, after = (
        numpy_helper.to_array(onnx.load(str(one.onnx_path)).graph.initializer[0])
        for one in (plain, copy)
    )
    assert not after[0].any() and before[0].all()
    assert np.array_equal(before[1:], after[1:])
    assert np.array_equal(plain.input_arrays()["x"], copy.input_arrays()["x"])


def test_the_flag_tells_the_measured_factor(folder: Path) -> None:
    expected = f"with them set to 0 it runs 10x as fast (10x to 10x in {TURNS} turns, alone)"
    assert told(folder, Slow) == f"4 of 32 weights are denormal numbers; {expected}"


def test_a_copy_that_cannot_be_built_is_told(folder: Path) -> None:
    assert told(folder, Refuses).endswith("what they cost could not be measured: no zeros, please")


def test_models_without_denormals_have_no_copy(folder: Path) -> None:
    assert told(folder, Slow, flagged=False) == ""
    model = onnx.load(str(folder / "m.onnx"))
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((8, 4), np.float32), "w"))
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    exporter, root = Exporter(), folder / "plain"
    found = resolve_model("m.onnx", base=folder).to_json()
    exporter.open({"model": found, "root": str(root), "seed": 0})
    exporter.batch({"batch": BATCH})
    assert not flushed_root(root).exists()
    assert json.loads((root / "b2" / "batch.json").read_text())["axes"] == {"x": 0}


def test_a_copy_that_cannot_be_made_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = Exporter()
    model = resolve_model("m.onnx", base=folder).to_json()
    exporter.open({"model": model, "root": str(folder / "w"), "seed": 0})

    def broken(root: Path, batch: int) -> bool:
        raise OSError("no room")

    for write, why in ((lambda root, batch: False, "too large"), (broken, "OSError: no room")):
        monkeypatch.setattr("ngraphbench.models.exporter.write_flushed", write)
        told = exporter.batch({"batch": BATCH})["denormals"]
        assert told.startswith("4 of 32 weights are denormal numbers; what they cost was not")
        assert why in told
