"""From experiment to sessions: candidates, baselines, grouping, what is left out."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ngraphbench.case import Session
from ngraphbench.errors import SpecError
from ngraphbench.plan import Plan, estimate_s, make_plan
from ngraphbench.plugin import PRESET, Compiler, Program
from ngraphbench.spec import build_experiment, load_experiment
from ngraphbench.types import Device, Json, Option, OptionValue, Support
from ngraphbench.workload import Workload


class Fake(Compiler):
    name = "fake"
    accepts = ("onnx",)

    def probe(self, device: Device) -> Support:
        return Support(True)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        raise NotImplementedError


class Eager(Fake):
    name = "eager"
    accepts = ("torch",)
    packages = ("torch",)


class Runtime(Fake):
    name = "onnxruntime"
    packages = ("onnxruntime-gpu", "onnxruntime")
    options: ClassVar[tuple[Option, ...]] = (
        Option("level", "str", "all", "level", choices=("none", "all")),
    )


class Tuner(Fake):
    name = "tuner"
    packages = ("Tuner_Core",)
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option("streams", "int", 1, "streams", minimum=1, presets={"recommended": 2}),
        Option("fast", "bool", False, "fast"),
    )


COMPILERS = {
    "broken": "no_such_module:X",
    "eager": "fake_plugins:Eager",
    "onnxruntime": "fake_plugins:Runtime",
    "tuner": "fake_plugins:Tuner",
}
FACTS: Json = {
    "local": {
        "threads": 2,
        "host": "abc",
        "packages": {"torch": "2.14.1+cpu", "onnxruntime": "1.32.0", "tuner-core": "3"},
    },
    "pi": {"threads": 4, "host": "def", "packages": {}, "cpus": [0, 1]},
}


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fake plugins, two ONNX files and two torch factories."""
    module = types.ModuleType("fake_plugins")
    for plugin in (Eager, Runtime, Tuner):
        setattr(module, plugin.__name__, plugin)
    monkeypatch.setitem(sys.modules, "fake_plugins", module)
    for name, value in (("a", 1.0), ("b", 2.0)):
        weight = onnx.numpy_helper.from_array(np.array([value], np.float32), "w")
        graph = helper.make_graph(
            [helper.make_node("Mul", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])],
            [weight],
        )
        onnx.save(helper.make_model(graph), tmp_path / f"{name}.onnx")
    (tmp_path / "nets.py").write_text("def one(): ...\ndef two(): ...\n")
    return tmp_path


def plan_of(base: Path, models: list[Any], compilers: list[Any], **more: Any) -> Plan:
    data = {"name": "t", "models": models, "compilers": compilers, "batch_sizes": [1], **more}
    return make_plan(build_experiment(data), base=base, compilers=COMPILERS, facts=FACTS)


def labels(session: Session) -> list[str]:
    return [case.label for case in session.cases]


def refused(base: Path, *args: Any, **more: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        plan_of(base, *args, **more)
    return caught.value


def test_baseline_is_added_first_unless_listed(base: Path) -> None:
    (session,) = plan_of(base, ["nets.py:one"], ["tuner"]).sessions
    assert labels(session) == ["eager", "tuner"]
    assert session.baseline == "eager"
    (session,) = plan_of(base, ["nets.py:one"], ["tuner", "eager"]).sessions
    assert labels(session) == ["tuner", "eager"]


def test_options_are_filled_in_and_given_ones_kept(base: Path) -> None:
    plan = plan_of(base, ["nets.py:one"], ["tuner:fast=yes", {"tuner": {"preset": "shipped"}}])
    first, second = (case.compiler for case in plan.cases() if case.compiler.name == "tuner")
    assert first.options == {"preset": "recommended", "streams": 2, "fast": True}
    assert first.given == {"fast": True}
    assert first.text == "tuner:fast=true"
    assert second.options == {"preset": "shipped", "streams": 1, "fast": False}


def test_same_candidate_twice_is_a_replica(base: Path) -> None:
    listed = ["eager", "onnxruntime", "onnxruntime:level=all", "eager"]
    (session,) = plan_of(base, ["nets.py:one"], listed).sessions
    assert labels(session) == ["eager", "onnxruntime", "onnxruntime:level=all #2", "eager #2"]
    assert [case.replica for case in session.cases] == [0, 0, 1, 1]
    assert len({case.case_id for case in session.cases}) == 4


def test_sweep_is_a_product(base: Path) -> None:
    (session,) = plan_of(
        base,
        ["nets.py:one"],
        ["eager", "tuner:preset=shipped"],
        sweep={"tuner": {"streams": [1, 2], "fast": [True, False]}},
    ).sessions
    assert labels(session)[1:] == [
        f"tuner:fast={fast},preset=shipped,streams={streams}"
        for streams in (1, 2)
        for fast in ("true", "false")
    ]


def test_onnx_models_get_their_own_baseline(base: Path) -> None:
    plan = plan_of(base, ["a.onnx"], ["eager", "tuner"])
    (session,) = plan.sessions
    assert labels(session) == ["onnxruntime:level=none", "tuner"]
    (left_out,) = plan.skipped
    assert left_out.case.label == "eager"
    assert left_out[1:3] == ("unsupported", "form")
    assert "a.onnx" in left_out.message
    baseline = session.baseline_case(session.cases[1])
    assert baseline is session.cases[0]
    assert session.baseline_case(session.cases[0]) is session.cases[0]


def test_unlisted_baseline_is_not_reported_as_skipped(base: Path) -> None:
    assert plan_of(base, ["a.onnx"], ["tuner"]).skipped == ()


def test_baselines_of_mixed_sessions(base: Path) -> None:
    (session,) = plan_of(
        base,
        ["a.onnx", "nets.py:one"],
        ["tuner"],
        batch_sizes=[1, 2],
        interleave=["compiler", "batch", "model"],
    ).sessions
    assert len(session.cases) == 8
    for case in session.cases:
        baseline = session.baseline_case(case)
        assert baseline is not None
        assert (baseline.model, baseline.batch) == (case.model, case.batch)
        wanted = "onnxruntime:level=none" if case.model.kind == "onnx" else "eager"
        assert baseline.label == wanted


def test_listed_baseline_under_another_name(base: Path) -> None:
    listed = ["onnxruntime:level=all", "tuner"]
    (session,) = plan_of(base, ["a.onnx"], listed, baseline="onnxruntime").sessions
    assert labels(session) == listed
    assert session.baseline == "onnxruntime:level=all"


def test_any_compiler_can_be_the_baseline(base: Path) -> None:
    (session,) = plan_of(base, ["a.onnx"], ["onnxruntime"], baseline="tuner:streams=3").sessions
    assert labels(session) == ["tuner:streams=3", "onnxruntime"]
    found = session.baseline_case(session.cases[1])
    assert found is session.cases[0]


@pytest.mark.parametrize(
    ("models", "baseline"),
    [(["a.onnx"], "onnxruntime:level=none"), (["a.onnx", "nets.py:one"], "eager")],
)
def test_default_baseline(base: Path, models: list[str], baseline: str) -> None:
    plan = plan_of(base, models, ["tuner"], baseline=None)
    assert {session.baseline for session in plan.sessions} == {baseline}


def test_implicit_baseline_needs_its_package(base: Path) -> None:
    facts = {"local": {**FACTS["local"], "packages": {"tuner-core": "3"}}}
    experiment = build_experiment({"name": "t", "models": ["a.onnx"], "compilers": ["tuner"]})
    plan = make_plan(experiment, base=base, compilers=COMPILERS, facts=facts)
    assert {case.label for case in plan.cases()} == {"tuner"}
    assert plan.skipped == ()
    assert plan.sessions[0].baseline_case(plan.cases()[0]) is None


def test_control_adds_the_unoptimised_graph(base: Path) -> None:
    (session,) = plan_of(base, ["nets.py:one"], ["tuner"], control="same-graph").sessions
    assert labels(session) == ["eager", "tuner", "onnxruntime:level=none"]
    (session,) = plan_of(base, ["a.onnx"], ["tuner"], control="same-graph").sessions
    assert labels(session) == ["onnxruntime:level=none", "tuner"]


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


def test_devices_and_threads(base: Path) -> None:
    plan = plan_of(base, ["nets.py:one"], ["eager"], devices=["local/cuda", "pi"])
    assert [session.device for session in plan.sessions] == [
        Device("local", "cuda", threads=2),
        Device("pi", "cpu", threads=4, cpus=(0, 1)),
    ]
    plan = plan_of(base, ["nets.py:one"], ["eager"], measure={"threads": 1})
    assert plan.sessions[0].device.threads == 1


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


@pytest.mark.parametrize(
    ("compiler", "reason", "words"),
    [
        ("onnxruntime@1.31.1", "version", "onnxruntime 1.32.0 is installed"),
        ("onnxruntime@/opt/env", "version", "environments"),
        ("broken:x=1", "plugin-import", "cannot be imported"),
    ],
)
def test_unavailable_candidates_are_left_out(
    base: Path, compiler: str, reason: str, words: str
) -> None:
    plan = plan_of(base, ["nets.py:one"], ["tuner", compiler])
    (left_out,) = plan.skipped
    assert (left_out.status, left_out.reason, left_out.case.label) == (
        "unavailable",
        reason,
        compiler,
    )
    assert words in left_out.message
    assert labels(plan.sessions[0]) == ["eager", "tuner"]


@pytest.mark.parametrize("version", ["2.14.1", "2.14.1+cpu"])
def test_installed_version_is_fine(base: Path, version: str) -> None:
    plan = plan_of(base, ["nets.py:one"], [f"eager@{version}"], baseline="tuner")
    assert labels(plan.sessions[0]) == ["tuner", f"eager@{version}"]


def test_nothing_asked_for_no_session(base: Path) -> None:
    plan = plan_of(base, ["a.onnx"], ["eager"])
    assert plan.sessions == ()
    assert len(plan.skipped) == 1


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


@pytest.mark.parametrize(
    ("models", "compilers", "more", "key", "words"),
    [
        (["a.onnx"], ["tunr"], {}, "compilers[0]", "Did you mean 'tuner'? `ngb list compilers`"),
        (["a.onnx"], ["tuner:stream=2"], {}, "compilers[0]", "'streams'"),
        (["a.onnx"], [{"tuner": {"streams": 0}}], {}, "compilers[0].tuner.streams", "at least 1"),
        (
            ["a.onnx"],
            ["tuner"],
            {"sweep": {"tuner": {"streams": [1, 0]}}},
            "sweep.tuner.streams",
            "at least 1",
        ),
        (["a.onnx"], ["tuner"], {"baseline": "eagr"}, "baseline", "'eager'"),
        (["a.onnx"], ["tuner"], {"baseline": "broken"}, "baseline", "cannot be imported"),
        (["a.onnx"], ["tuner"], {"devices": ["lokal"]}, "devices[0]", "'local'"),
        (["a.onnx"], ["tuner"], {"devices": ["pi", "pi/cpu"]}, "devices[1]", "same device"),
        (["c.onnx"], ["tuner"], {}, "models[0]", "c.onnx"),
        (["a.onnx", "./a.onnx"], ["tuner"], {}, "models[1]", "same model"),
        (["a.onnx"], ["tuner"], {"environments": "managed"}, "environments", "`environments: cur"),
    ],
)
def test_refused(
    base: Path, models: list[Any], compilers: list[Any], more: Json, key: str, words: str
) -> None:
    error = refused(base, models, compilers, **more)
    assert error.key == key
    assert words in str(error)


def test_all_faults_at_once(base: Path) -> None:
    error = refused(base, ["c.onnx", "a.onnx"], ["tunr", "onnxruntme"], devices=["x"])
    assert len(str(error).splitlines()) == 4


def test_control_needs_its_compiler(base: Path) -> None:
    experiment = build_experiment(
        {"name": "t", "models": ["nets.py:one"], "compilers": ["eager"], "control": "same-graph"}
    )
    with pytest.raises(SpecError, match="control: There is no compiler 'onnxruntime'"):
        make_plan(experiment, base=base, compilers={"eager": COMPILERS["eager"]}, facts=FACTS)


def test_faults_point_into_the_file(base: Path) -> None:
    path = base / "exp.yaml"
    path.write_text(
        "name: x\nmodels:\n  - a.onnx\n  - c.onnx\ncompilers:\n  - tuner:\n      streams: x\n"
    )
    with pytest.raises(SpecError) as caught:
        make_plan(load_experiment(path), base=base, compilers=COMPILERS, facts=FACTS)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{path}:4: models[1]: ")
    assert second.startswith(f"{path}:7: compilers[0].tuner.streams: ")


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
