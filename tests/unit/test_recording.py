"""Records: the command asks for the very cell, and the control compares like with like."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngraphbench.api import bench_experiment
from ngraphbench.case import BENCH_LIMITS, Case, CompilerRef, Limits, ModelRef, Session
from ngraphbench.cli.options import bench_settings, model_entries
from ngraphbench.models.sources import resolve_model
from ngraphbench.profiles import PROFILES
from ngraphbench.records import now_utc
from ngraphbench.session.commandline import reproduce_command
from ngraphbench.session.entrants import SENTINEL
from ngraphbench.session.recording import make_records
from ngraphbench.session.state import CaseState, SessionState
from ngraphbench.spec import build_experiment
from ngraphbench.summary import Samples
from ngraphbench.types import Device


def words_of(model: ModelRef) -> list[str]:
    case = Case(model, CompilerRef("x", "m:X"), Device(threads=2), 4)
    session = Session((case,), "x", PROFILES["quick"], Limits())
    return shlex.split(reproduce_command(case, session))


def test_the_command_says_who_chose_the_threads() -> None:
    model = ModelRef("m.onnx", "m", "onnx", "c")
    for threads, text in ((2, "2"), (0, "vendor-default")):
        case = Case(model, CompilerRef("x", "m:X"), Device(threads=threads), 4)
        session = Session((case,), "x", PROFILES["quick"], Limits())
        words = shlex.split(reproduce_command(case, session))
        assert words[words.index("--threads") + 1] == text


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("timm:resnet18", {}),
        ("timm:resnet18?num_classes=10", {}),
        ("timm:resnet18?num_classes=10", {"act_layer": "relu", "img_size": [64, 48]}),
        ("nets.py:one?name=a%26b", {"deep": True, "rate": 0.5, "text": "1"}),
    ],
)
def test_arguments_of_a_model_are_in_the_command(
    tmp_path: Path, text: str, args: dict[str, Any]
) -> None:
    (tmp_path / "nets.py").write_text("def one(**args): ...\n")
    model = resolve_model(text, base=tmp_path, args=args)
    again = resolve_model(words_of(model)[2], base=tmp_path)
    assert (again.args, again.content) == (model.args, model.content)


@pytest.mark.parametrize(
    "given",
    [
        "x=batchx3x8:float32:0..1",
        "x=scalar:int64",
        "x=normal",
        "a=b:c=batchx4:-1.5..2",
        "x=batch:0..1",
        "x=batchx2:float32:const(-0.5)",
    ],
)
def test_inputs_are_in_the_command(given: str) -> None:
    def inputs_of(option: str) -> dict[str, Any]:
        entries = model_entries(["m.onnx"], [option], None)
        found = build_experiment({"name": "t", "models": entries, "compilers": ["x"]}).models[0]
        return {name: one.model_dump(exclude_none=True) for name, one in found.inputs.items()}

    model = ModelRef("m.onnx", "m", "onnx", "c", inputs=inputs_of(given))
    words = words_of(model)
    assert inputs_of(words[words.index("--input") + 1]) == model.inputs


def test_weights_are_in_the_command() -> None:
    model = ModelRef("timm:x", "x", "timm", "c", weights="pretrained")
    assert "--pretrained" in words_of(model)
    words = words_of(ModelRef("timm:x", "x", "timm", "c", checkpoint="w.pt"))
    assert words[words.index("--checkpoint") + 1] == "w.pt"


@pytest.mark.parametrize("limits", [BENCH_LIMITS, Limits(), Limits(1.5, 2.0, 3600.0, 123456789)])
def test_limits_are_in_the_command(limits: Limits) -> None:
    case = Case(ModelRef("m.onnx", "m", "onnx", "c"), CompilerRef("x", "m:X"), Device(), 4)
    words = shlex.split(reproduce_command(case, Session((case,), "x", PROFILES["quick"], limits)))
    given = [words[i + 1] for i, word in enumerate(words) if word == "--limit"]
    settings = bench_settings(
        shapes=[],
        precision="fp32",
        threads=None,
        timeout=None,
        memory=None,
        method={},
        seed=0,
        limits=given,
    )
    found = bench_experiment(["m.onnx"], compilers=["x"], settings=settings)
    assert found.limits == limits
    assert bool(given) == (limits != BENCH_LIMITS)


def samples(ms: float, epochs: int) -> Samples:
    rounds = 8
    noise = np.random.default_rng(0).normal(0, 1e-3, epochs * rounds)
    call_ns = ms * 1e6 * np.exp(noise)
    return {
        "epoch": np.repeat(np.arange(epochs), rounds),
        "round": np.tile(np.arange(rounds), epochs),
        "position": np.zeros(epochs * rounds, dtype=int),
        "calls": np.full(len(call_ns), 10),
        "slot_ns": call_ns * 10,
        "call_ns": call_ns,
        "first_ns": call_ns,
        "cpu_ns": call_ns * 10,
        "nivcsw": np.zeros(len(call_ns)),
    }


@pytest.mark.parametrize(("status", "controlled"), [("ok", True), ("crashed", False)])
def test_a_control_whose_twin_left_says_nothing(status: str, controlled: bool) -> None:
    model = ModelRef("m.onnx", "m", "onnx", "c")
    cases = tuple(Case(model, CompilerRef("x", "m:X"), Device(), batch) for batch in (1, 8))
    state = SessionState(
        cases={
            cases[0].case_id: CaseState(status=status, call_ns=1e6),
            cases[1].case_id: CaseState(status="ok", call_ns=8e6),
        },
        epochs_done=2,
        sentinel=cases[0].case_id,
    )
    found = {
        cases[0].case_id: samples(1.0, 2 if controlled else 1),
        cases[1].case_id: samples(8.0, 2),
        SENTINEL: samples(1.0, 2),
    }
    session = Session(cases, "x", PROFILES["quick"], Limits())
    *_, record = make_records(session, state, read=found.get, host={})
    assert (record["sentinel"] is not None) == controlled
    assert not {"untrusted", "parted"} & {flag["flag"] for flag in record["flags"]}


def test_a_session_says_what_memory_did_not_hold() -> None:
    model = ModelRef("m.onnx", "m", "onnx", "c")
    cases = tuple(Case(model, CompilerRef("x", "m:X"), Device(), batch) for batch in (1, 8, 64))
    state = SessionState(
        cases={case.case_id: CaseState(status="failed") for case in cases},
        deferred=[cases[2].case_id],
    )
    session = Session(cases, "x", PROFILES["quick"], Limits())
    *records, about = make_records(session, state, read={}.get, host={})
    assert [record["case_id"] for record in records] == about["cases"]
    assert cases[2].case_id not in about["cases"]
    assert {"flag": "parted", "detail": "1 of 3 programs did not fit into memory"} in about["flags"]


def test_when_it_is_is_told_to_the_millisecond() -> None:
    told = [now_utc() for _ in range(2)]
    assert told == sorted(told)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each) for each in told)
