"""From experiment to candidates: options, baselines, who is left out, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plan_fixture import COMPILERS, FACTS, labels, plan_of, refused, write_models

from ngraphbench.errors import SpecError
from ngraphbench.plan import make_plan
from ngraphbench.spec import build_experiment, load_experiment
from ngraphbench.types import Json


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_models(tmp_path)


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


@pytest.mark.parametrize(
    ("compiler", "reason", "words"),
    [
        ("tuner@2", "version", "tuner 2 was asked for; Tuner_Core 3 is installed"),
        ("tuner@./env", "path", "must be absolute"),
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
