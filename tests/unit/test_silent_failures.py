"""No cell is ok whose outputs are wrong, whatever a compiler does without an error.

The whole path but the processes: exporter, worker, resident program, verdict.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from in_this_process import InThisProcess
from onnx import TensorProto, helper, numpy_helper
from silent_plugins import FAULTS, TARGET

from ngraphbench.case import Case, CompilerRef, Limits
from ngraphbench.models.exporter import Exporter
from ngraphbench.models.sources import resolve_model
from ngraphbench.session.export import load_references
from ngraphbench.session.resident import Resident, Stopped
from ngraphbench.session.state import CaseState
from ngraphbench.types import Device

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
BATCH = 4

EXPECTED = {
    "uninitialised": "values",
    "empty": "shape",
    "empty-rows": "shape",
    "folded-shape": "shape",
    "folded-values": "values",
    "first-row": "values",
    "one-row": "values",
    "rows-swapped": "values",
    "transposed": "values",
    "zeros": "values",
    "hole": "nan",
    "half": "dtype",
    "half-inside": "values",
    "batch-one-only": "shape",
    "extra-axis": "shape",
    "bf16": "values",
    "stale": "values",
    "reused-buffer": "values",
    "swapped-outputs": "values",
    "late": "drifted",
    "first-input": "values",
    "resized-garbage": "values",
    "resized-empty": "shape",
}
"""What each fault is called where the outputs are floats."""

INTEGERS = {"narrowed": "values", "empty": "shape", "stale": "values", "zeros": "values"}
KINDS = {
    "a reshape that returns garbage": ("resized-garbage", "uninitialised"),
    "an empty output": ("resized-empty", "empty", "empty-rows"),
    "a folded batch": ("folded-shape", "folded-values", "batch-one-only", "first-row"),
    "bf16 chosen silently": ("bf16", "half", "half-inside"),
    "reused output buffers": ("reused-buffer", "stale"),
}
"""What real compilers were seen to do, and the faults that stand for it."""

CELLS = [
    *(("floats", fault, reason) for fault, reason in EXPECTED.items()),
    *(("integers", fault, reason) for fault, reason in INTEGERS.items()),
]


def write_floats(path: Path) -> None:
    random = np.random.default_rng(0)
    weights = [random.standard_normal((8, 4)).astype(np.float32) for _ in range(2)]
    names = ("y", "z")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", f"w{i}"], [name]) for i, name in enumerate(names)],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, ["N", 8])],
        [helper.make_tensor_value_info(name, FLOAT, ["N", 4]) for name in names],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )
    write(path, graph)


def write_integers(path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "k"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", INT64, ["N", 4])],
        [helper.make_tensor_value_info("y", INT64, ["N", 4])],
        [numpy_helper.from_array(np.array(2**40 + 1, np.int64), "k")],
    )
    write(path, graph)


def write(path: Path, graph: object) -> None:
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(made.SerializeToString())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return folders with a model and its workload, by what flows through the model."""
    folders = {}
    for name, write_model in (("floats", write_floats), ("integers", write_integers)):
        folders[name] = folder = tmp_path_factory.mktemp(name)
        write_model(folder / "m.onnx")
        exporter = Exporter()
        found = resolve_model("m.onnx", base=folder).to_json()
        exporter.open({"model": found, "root": str(folder / "w"), "seed": 0})
        for batch in (1, BATCH):
            exporter.batch({"batch": batch})
    return folders


def outcome(folder: Path, fault: str, *, batch: int = BATCH) -> tuple[str, str]:
    """Return status and reason of a cell measured with this fault."""
    root = folder / "w"
    case = Case(
        model=resolve_model("m.onnx", base=folder),
        compiler=CompilerRef("silent", TARGET, {"fault": fault}, {"fault": fault}),
        device=Device(),
        batch=batch,
    )
    state = CaseState()
    references = load_references(root, batch)
    resident = Resident(case, state, Limits(), InThisProcess, root, folder, references)
    try:
        resident.prepare()
        resident.check_after()
    except Stopped as stopped:
        state.fail(stopped.error, stopped.stage)
    return state.status or "ok", state.reason


@pytest.mark.parametrize("name", ["floats", "integers"])
def test_right_outputs_are_ok(models: dict[str, Path], name: str) -> None:
    assert outcome(models[name], "none") == ("ok", "")


@pytest.mark.parametrize(("name", "fault", "reason"), CELLS)
def test_a_silent_failure_is_wrong(
    models: dict[str, Path], name: str, fault: str, reason: str
) -> None:
    assert outcome(models[name], fault) == ("wrong", reason)


@pytest.mark.parametrize("fault", ["resized-garbage", "resized-empty"])
def test_what_a_reshape_breaks_is_right_at_batch_one(models: dict[str, Path], fault: str) -> None:
    assert outcome(models["floats"], fault, batch=1) == ("ok", "")


def test_each_kind_that_was_seen_is_planted() -> None:
    for kind, faults in KINDS.items():
        assert set(faults) <= set(EXPECTED), kind


def test_every_fault_is_planted_somewhere() -> None:
    assert {fault for _, fault, _ in CELLS} == set(FAULTS) - {"none"}
