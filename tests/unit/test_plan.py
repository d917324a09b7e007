"""From experiment to sessions: grouping, devices, the method, models and their inputs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plan_fixture import COMPILERS, FACTS, plan_of, refused, write_models

from ngraphbench.case import Session
from ngraphbench.errors import SpecError
from ngraphbench.plan import Plan, estimate_s, make_plan
from ngraphbench.spec import build_experiment
from ngraphbench.types import Device, Json


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_models(tmp_path)


def test_sessions_by_interleaved_axes(base: Path) -> None:
    def count(*interleave: str) -> int:
        plan = plan_of(
            base,
            ["nets.py:one", "nets.py:two"],
            ["eager", "tuner"],
            batch_sizes=[1, 2, 4],
            precision=["fp32", "bf16"],
            devices=["local", "pi"],
            shapes={"x": [["batch", 3], ["batch", 5]]},
            interleave=list(interleave),
        )
        assert len(plan.cases()) == 96
        assert len({case.case_id for case in plan.cases()}) == 96
        assert len({session.session_id for session in plan.sessions}) == len(plan.sessions)
        return len(plan.sessions)

    assert count("compiler") == 48
    assert count("compiler", "batch") == 16
    assert count("compiler", "model") == 24
    assert count("compiler", "batch", "model") == 8
    assert count("compiler", "batch", "model", "precision") == 4


def test_devices_and_threads(base: Path) -> None:
    plan = plan_of(base, ["nets.py:one"], ["eager"], devices=["local/cuda", "pi"])
    assert [session.device for session in plan.sessions] == [
        Device("local", "cuda", threads=2),
        Device("pi", "cpu", threads=4, cpus=(0, 1)),
    ]
    plan = plan_of(base, ["nets.py:one"], ["eager"], measure={"threads": 1})
    assert plan.sessions[0].device.threads == 1


def test_a_board_is_named_by_its_address_and_its_power_mode_is_a_condition(base: Path) -> None:
    name = "ssh://me@orin-1:22"
    facts: Json = {name: {"threads": 4, "host": "abc", "packages": {}, "cpus": [2, 3, 4, 5]}}
    text = f"{name}/cuda?python=/opt/bin/python"
    data = {"name": "t", "models": ["a.onnx"], "compilers": ["tuner"], "devices": [text]}

    def session_in(mode: str | None) -> Session:
        known = {name: {**facts[name], "power_mode": mode}}
        made = make_plan(build_experiment(data), base=base, compilers=COMPILERS, facts=known)
        return made.sessions[0]

    plain, full, low = session_in(None), session_in("MAXN"), session_in("15W")
    assert plain.device == Device(name, "cuda", threads=4, cpus=(2, 3, 4, 5))
    assert "power_mode" not in plain.fingerprint
    assert low.fingerprint["power_mode"] == "15W"
    assert len({plain.session_id, full.session_id, low.session_id}) == 3


def test_the_method_reaches_every_session_and_its_identity(base: Path) -> None:
    measure = {"rate": 30, "in_flight": [1, 4], "sustained": "5min", "beside": "a.onnx"}
    (plain,) = plan_of(base, ["timm:resnet18"], ["eager"]).sessions
    (session,) = plan_of(base, ["timm:resnet18"], ["eager"], measure=measure).sessions
    method = session.method
    assert (method.rate_per_s, method.in_flight, method.sustained_s) == (30.0, (1, 4), 300.0)
    assert method.beside is not None
    assert (method.beside.compiler.name, method.beside.batch) == ("onnxruntime", 1)
    assert Session.from_json(session.to_json()) == session
    assert session.session_id != plain.session_id
    assert plain.method.conditions == {}
    error = refused(base, ["timm:resnet18"], ["eager"], measure={"beside": "none.onnx"})
    assert error.key == "measure.beside"


def test_the_cpu_set_grows_with_the_threads(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FACTS["local"], "cpus", [4, 6, 5, 0, 1])

    def device(**measure: int | str) -> Device:
        plan = plan_of(base, ["nets.py:one"], ["eager"], measure=measure)
        (session,) = plan.sessions
        assert session.fingerprint["cpus"] == list(session.device.cpus)
        return session.device

    assert device() == Device(threads=2, cpus=(4, 6))
    assert device(threads=3) == Device(threads=3, cpus=(4, 5, 6))
    assert device(threads=9) == Device(threads=9, cpus=(0, 1, 4, 5, 6))
    assert device(threads="vendor-default") == Device(threads=0, cpus=(4, 6))


def test_the_cpu_set_is_not_in_the_case_id(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def case_id(**measure: str) -> str:
        (case,) = plan_of(base, ["nets.py:one"], ["eager"], measure=measure).cases()
        return case.case_id

    before = case_id()
    assert case_id(threads="vendor-default") != before
    monkeypatch.setitem(FACTS["local"], "cpus", [7, 8])
    assert case_id() == before


def test_fingerprint_holds_what_its_candidates_need(base: Path) -> None:
    (session,) = plan_of(base, ["nets.py:one"], ["tuner"]).sessions
    assert session.fingerprint["packages"] == {"torch": "2.14.1+cpu", "Tuner_Core": "3"}
    assert session.fingerprint["host"] == "abc"
    assert session.fingerprint["python"]


def test_models_with_one_label_are_told_apart(base: Path) -> None:
    (base / "sub").mkdir()
    (base / "sub" / "a.onnx").write_bytes((base / "b.onnx").read_bytes())
    models = ["a.onnx", "sub/a.onnx", {"model": "nets.py:one"}, {"model": "nets.py:one", "seed": 1}]
    plan = plan_of(base, models, ["tuner"])
    found = dict.fromkeys(case.model.label for case in plan.cases())
    assert list(found) == ["a.onnx", "sub/a.onnx", "nets.py:one", "nets.py:one #2"]


def test_inputs_and_shapes_reach_the_case(base: Path) -> None:
    models = [{"model": "a.onnx", "inputs": {"x": {"generator": "int:0:4", "shape": ["batch", 1]}}}]
    plan = plan_of(base, models, ["tuner"], shapes={"x": [2, 1]})
    case = plan.cases()[0]
    assert case.model.inputs == {"x": {"generator": "int:0:4", "shape": ["batch", 1]}}
    assert case.shapes == {"x": [2, 1]}


@pytest.mark.parametrize(
    ("inputs", "shapes", "words"),
    [
        ({"z": {"shape": ["batch", 1]}}, {}, "'z' was given; the model has x"),
        ({"x": {"dtype": "int8"}}, {}, "given as int8; the model takes float32"),
        ({}, {"x": ["batch", 2]}, "the model is fixed to"),
        ({}, {"z": ["batch", 2]}, "the model has x"),
    ],
)
def test_inputs_that_the_one_model_does_not_have_are_refused(
    base: Path, inputs: dict[str, Any], shapes: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        plan_of(base, [{"model": "a.onnx", "inputs": inputs}], ["tuner"], shapes=shapes)


def test_plan_round_trips(base: Path) -> None:
    plan = plan_of(base, ["a.onnx", "nets.py:one"], ["eager", "tuner"])
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert plan.to_json()["sessions"][0]["session_id"] == again.sessions[0].session_id


def test_estimate_grows_with_work(base: Path) -> None:
    small = estimate_s(plan_of(base, ["nets.py:one"], ["eager"], measure={"profile": "quick"}))
    more = estimate_s(plan_of(base, ["nets.py:one"], ["tuner"], measure={"profile": "quick"}))
    long = estimate_s(plan_of(base, ["nets.py:one"], ["tuner"], measure={"profile": "thorough"}))
    assert 0 < small < more < long


def test_no_vendor_is_imported() -> None:
    code = (
        "import sys, ngraphbench.plan; from ngraphbench.plugin import discover, load_compiler\n"
        "print([v for v in ('torch', 'timm', 'onnxruntime', 'openvino') if v in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_narrowed_plan_keeps_the_baseline_of_each_case(base: Path) -> None:
    plan = plan_of(base, ["nets.py:one"], ["onnxruntime", "tuner"], batch_sizes=[1, 2, 4])
    assert [len(session.cases) for session in plan.sessions] == [9]
    wanted = [
        case.case_id for case in plan.cases() if (case.compiler.name, case.batch) == ("tuner", 2)
    ]
    (narrowed,) = plan.narrowed(wanted).sessions
    assert {(case.label, case.batch) for case in narrowed.cases} == {("eager", 2), ("tuner", 2)}
    assert plan.narrowed([]).sessions == ()


def test_what_a_session_keeps_does_not_make_it_another(base: Path) -> None:
    (session,) = plan_of(base, ["nets.py:one"], ["eager"]).sessions
    keeps = replace(session, keep_artifacts=True)
    assert keeps.session_id == session.session_id
    assert Session.from_json(keeps.to_json()) == keeps
    old = session.to_json()
    del old["keep_artifacts"]
    assert Session.from_json(old) == session
