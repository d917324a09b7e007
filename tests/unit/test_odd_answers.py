"""What is read of others, a worker's answers, samples, plans, records: odd ones are told of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from run_fixture import full_run
from stored_runs import stored

from ngraphbench.case import Case, CompilerRef, Limits, ModelRef
from ngraphbench.cli.app import run as command
from ngraphbench.errors import SpecError, StoreError, WorkerFailed
from ngraphbench.models.sources import check_inputs
from ngraphbench.session.replies import check_reply, checked_rows
from ngraphbench.session.resident import Resident, Stopped
from ngraphbench.session.state import CaseState
from ngraphbench.session.verify import Reference
from ngraphbench.spec import load_experiment
from ngraphbench.store.checking import problem_of
from ngraphbench.store.rundir import RunDir
from ngraphbench.store.samples import COLUMNS, read_samples
from ngraphbench.testing.workloads import write_onnx
from ngraphbench.types import Device, Json, TensorSpec
from ngraphbench.worker.failures import error_told
from ngraphbench.worker.protocol import ProtocolError, take_message

SLOT: Json = {"calls": 5, "slot_ns": 5000, "call_ns": 1000.0, "first_ns": 1, "cpu_ns": 5000}
SLOT |= {"nivcsw": 0, "sub_ns": [1000.0] * 5, "rss_bytes": 10**6}


def test_what_is_right_passes() -> None:
    check_reply("slot", SLOT)
    check_reply("compile", {"seconds": -1e-9, "coverage": None})
    check_reply("compile", {"seconds": 1, "coverage": {"share": 0.5, "products": {"int8": 3}}})
    check_reply("an-op-of-its-own", {})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("calls", 0), ("calls", 2.5), ("calls", True), ("call_ns", 0), ("call_ns", "1")),
        *(("call_ns", float("nan")), ("call_ns", float("inf")), ("slot_ns", -1), ("sub_ns", [])),
        *(("sub_ns", [None]), ("sub_ns", {}), ("rss_bytes", None), ("nivcsw", 2**80)),
    ],
)
def test_an_answer_of_no_use_names_the_key(key: str, value: Any) -> None:
    with pytest.raises(WorkerFailed, match=f"for '{key}'") as caught:
        check_reply("slot", {**SLOT, key: value})
    assert (caught.value.status, caught.value.reason) == ("failed", "protocol")
    with pytest.raises(WorkerFailed, match=f"lacks '{key}'"):
        check_reply("slot", {k: v for k, v in SLOT.items() if k != key})


@pytest.mark.parametrize(
    "coverage", [1, {"share": "x"}, {"products": [1]}, {"products": {"a": []}}]
)
def test_coverage_of_no_use(coverage: Any) -> None:
    with pytest.raises(WorkerFailed, match="coverage"):
        check_reply("compile", {"seconds": 1, "coverage": coverage})


def test_a_saved_artefact_has_a_size_or_is_none() -> None:
    check_reply("save_artifact", {"bytes": None})
    for odd in ({}, {"bytes": "many"}):
        with pytest.raises(WorkerFailed, match="bytes"):
            check_reply("save_artifact", odd)


def test_rows_of_a_block_are_columns_of_one_length() -> None:
    right = {name: np.ones(2) for name in ("calls", "due_ns", "start_ns", "end_ns")}
    assert checked_rows(right) is right
    for odd in (np.ones(3), np.ones((2, 1)), np.array(["a", "b"]), np.array(1.0)):
        with pytest.raises(WorkerFailed, match="columns"):
            checked_rows({**right, "end_ns": odd})
    with pytest.raises(WorkerFailed, match="columns"):
        checked_rows({"calls": np.ones(2)})


@pytest.mark.parametrize("told", ["text", None, [], {"message": 1, "type": [], "status": "x"}])
def test_an_error_that_is_none_is_told_all_the_same(told: Any) -> None:
    error = error_told({"ok": False, "error": told}, "run")
    assert isinstance(error, WorkerFailed)
    assert (error.status, error.message) == ("failed", "run failed and did not say why.")


def test_a_message_that_is_nested_without_end_is_none() -> None:
    body = b"[" * 200_000
    with pytest.raises(ProtocolError, match="not JSON"):
        take_message(bytearray(len(body).to_bytes(4, "big") + body))


@pytest.mark.parametrize("left", [None, b"", b"PK\3\4 and no more"])
def test_outputs_that_are_not_there_stop_the_cell_alone(tmp_path: Path, left: bytes | None) -> None:
    class Silent:
        peak_rss_bytes = 0
        origin: ClassVar[Json] = {}
        log_truncated = False

        def request(self, op: str, *, deadline_s: float, **fields: object) -> Json:
            if op == "outputs" and left is not None:
                Path(str(fields["path"])).write_bytes(left)
            about = {"python": "3", "version": "1", "packages": {}, "variables": {}}
            return {**about, "seconds": 0.1, "ns": [1_000_000_000]}

        def suspend(self) -> None: ...

        def resume(self) -> None: ...

        def close(self) -> None: ...

        def kill(self) -> None: ...

    case = Case(ModelRef("m", "m", "onnx", "c"), CompilerRef("x", "m:X"), Device(), 1)
    reference = Reference("r", {"y": np.ones(2)}, (TensorSpec("y", "float32", (2,)),))
    references = {"a": reference, "b": reference}
    resident = Resident(case, CaseState(), Limits(), Silent, tmp_path, tmp_path, references)
    with pytest.raises(Stopped) as caught:
        resident.prepare()
    assert (caught.value.stage, caught.value.error.reason) == ("verify", "protocol")


HEADER = ",".join(COLUMNS)
ROW = "0,0,0,sync,5,5000,1000.0,1,5000,0,1000.0;1000.0"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{HEADER}\n{ROW.replace('5000', '9' * 30)}\n", r"a\.csv:2: slot_ns"),
        (f"{HEADER}\n{ROW.replace('1000.0,1', 'nan,1')}\n", r"a\.csv:2: call_ns"),
        (f"{HEADER}\n{ROW.replace('1000.0;', 'inf;')}\n", r"a\.csv:2: sub_ns"),
        (f"{HEADER.replace('call_ns', 'call')}\n{ROW}\n", r"a\.csv:1: there is no column call_ns"),
        (f'{HEADER}\n"{"x" * 200_000}\n', r"a\.csv:2: field larger"),
    ],
)
def test_odd_samples_name_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(StoreError, match=words):
        read_samples(tmp_path / "a.csv")


def test_samples_of_no_text_are_exported_all_the_same(tmp_path: Path) -> None:
    run = stored(full_run(), tmp_path / "run")
    path = next(run.glob("samples/*/*.csv"))
    path.write_bytes(b"\xff\xff" + path.read_bytes())
    assert command(["show", str(run), "--csv", str(tmp_path / "tables")]) in (0, 1)
    assert (tmp_path / "tables" / "slots.csv").exists()


def test_a_plan_of_another_form(tmp_path: Path) -> None:
    directory = RunDir.open(tmp_path / "run", create=True)
    directory.write_plan({"sessions": [{"cases": [{"model": 1}]}]})
    with pytest.raises(StoreError, match="does not hold a plan"):
        directory.unrecorded()


@pytest.mark.parametrize(("inputs", "outputs"), [([], []), (["w1", "w2"], ["z"])])
def test_inputs_of_a_broken_graph_are_planned_all_the_same(
    tmp_path: Path, inputs: list[str], outputs: list[str]
) -> None:
    path = write_onnx(tmp_path / "m.onnx", "mlp")
    model = onnx.load(path)
    # Tables that cannot be added, and a node of nothing.
    model.graph.node.add(op_type="Add", input=inputs, output=outputs)
    onnx.save(model, path)
    check_inputs(path, {"x": {"shape": ["batch", 8]}})


@pytest.mark.parametrize("text", ["a: &a [*a]\n", "name: " + "[" * 400 + "]" * 400])
def test_an_experiment_that_holds_itself(tmp_path: Path, text: str) -> None:
    path = tmp_path / "exp.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_experiment(path)
    assert caught.value.file == str(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r.pop("costs"), "the record lacks costs"),
        (lambda r: r["case"].update(batch="x"), "case.batch is 'x', not integer"),
        (lambda r: r["flags"].append(1), r"flags\[\d\] is 1, not object"),
        (lambda r: r.update(status="fine"), "status is 'fine', not ok or"),
        (lambda r: r["summary"]["latency_ms"].pop("low"), "summary.latency_ms lacks low"),
    ],
)
def test_a_broken_record_is_named_by_its_key(change: Any, words: str) -> None:
    record = json.loads(json.dumps(full_run().records[0]))
    assert problem_of(record) == ""
    change(record)
    assert re.match(words, problem_of(record))


@pytest.mark.parametrize("look", [("show",), ("show", "--metrics"), ("report",)])
def test_a_broken_record_is_no_fault_of_the_tool(
    tmp_path: Path, look: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    run = stored(full_run(), tmp_path / "run")
    lines = (run / "journal.jsonl").read_text().splitlines()
    record = json.loads(lines[2])
    record["case"]["model"] = "a model"
    lines[2] = json.dumps(record)
    (run / "journal.jsonl").write_text("\n".join(lines) + "\n")
    assert command([*look, str(run)]) == 2
    told = capsys.readouterr().err
    assert "journal.jsonl:3: case.model is 'a model', not object." in told.replace("\n", "")
    assert "Traceback" not in told
