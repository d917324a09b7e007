"""A program that steps, has two speeds or is slowed by its neighbour is seen; nobody else."""

from __future__ import annotations

import io
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from rich.console import Console
from run_fixture import Run, model

from ngraphbench.analysis.verdict import headline, verdicts
from ngraphbench.case import Case, CompilerRef, Limits, ModelRef, Session
from ngraphbench.profiles import PROFILES
from ngraphbench.report.html import write_report
from ngraphbench.report.terminal import print_run
from ngraphbench.session.modes import fit_modes
from ngraphbench.session.recording import make_records
from ngraphbench.session.residuals import residuals_of
from ngraphbench.session.state import CaseState, SessionState
from ngraphbench.session.steadiness import is_suspect, steadiness_flags
from ngraphbench.store.schema import load_schema
from ngraphbench.summary import Samples
from ngraphbench.types import Array, Device, Json

EPOCHS, ROUNDS = 3, 60
NAMES = ("base", "one", "two", "three")


def machine(seed: int = 0, names: tuple[str, ...] = NAMES) -> dict[str, Array]:
    """Return log times by name, one row per epoch: noise of 1.5 % on a machine that drifts."""
    rng = np.random.default_rng(seed)
    drift = np.cumsum(rng.normal(0, 0.01, (EPOCHS, ROUNDS)), axis=1)
    return {name: drift + rng.normal(0, 0.015, (EPOCHS, ROUNDS)) for name in names}


def samples_of(logs: dict[str, Array], orders: Array | None = None) -> dict[str, Samples]:
    """Return samples of those log times; ``orders`` has the place of each name in a round."""
    found: dict[str, Samples] = {}
    for index, (name, log) in enumerate(logs.items()):
        call_ns = 1e7 * np.exp(log).ravel()
        places = np.full(call_ns.shape, index) if orders is None else orders[:, index]
        found[name] = {
            "epoch": np.repeat(np.arange(EPOCHS), ROUNDS),
            "round": np.tile(np.arange(ROUNDS), EPOCHS),
            "position": places,
            "calls": np.full(len(call_ns), 5),
            "slot_ns": 5 * call_ns,
            "call_ns": call_ns,
            "first_ns": call_ns,
            "cpu_ns": 5 * call_ns,
            "nivcsw": np.zeros(len(call_ns)),
        }
    return found


def names_of(flags: dict[str, list[Json]]) -> dict[str, list[str]]:
    return {key: [flag["flag"] for flag in found] for key, found in flags.items()}


@pytest.mark.parametrize("seed", range(5))
def test_a_machine_that_drifts_is_no_unsteady_program(seed: int) -> None:
    assert steadiness_flags(samples_of(machine(seed))) == {}


def test_a_step_within_a_launch_is_the_fault_of_one_alone() -> None:
    logs = machine()
    logs["two"][1, 25:] += 0.08
    logs["two"][2] += 0.08
    flags = steadiness_flags(samples_of(logs))
    assert names_of(flags) == {"two": ["not-steady"]}
    size = float(flags["two"][0]["detail"].split()[4].rstrip("%"))
    assert 7.0 < size < 9.0


def test_a_step_between_launches_cannot_be_told_from_a_launch_effect() -> None:
    logs = machine()
    logs["two"][1:] += 0.08
    assert steadiness_flags(samples_of(logs)) == {}


@pytest.mark.parametrize("names", [NAMES[:1], NAMES[:2]])
def test_with_one_other_nobody_can_be_blamed(names: tuple[str, ...]) -> None:
    logs = machine(names=names)
    logs["base"][1, 25:] += 0.3
    samples = samples_of(logs)
    assert residuals_of(samples) == {}
    assert steadiness_flags(samples) == {} and not is_suspect(samples)


def test_what_most_do_the_machine_did() -> None:
    logs = machine()
    for name, start in (("one", 20), ("two", 40)):
        logs[name][1, start:] += 0.10
    assert steadiness_flags(samples_of(logs)) == {}


def test_a_handful_of_slots_has_any_shape() -> None:
    rng = np.random.default_rng(0)
    logs = {name: rng.choice([0.0, 0.5], (EPOCHS, ROUNDS)) for name in NAMES}
    few = {
        name: {key: values[:11] for key, values in found.items()}
        for name, found in samples_of(logs).items()
    }
    said = {name for flags in names_of(steadiness_flags(few)).values() for name in flags}
    assert not said & {"bimodal", "not-steady"}


def test_of_three_the_one_that_stepped_is_blamed() -> None:
    logs = machine(names=NAMES[:3])
    logs["one"][0, 30:] += 0.10
    assert names_of(steadiness_flags(samples_of(logs))) == {"one": ["not-steady"]}


def two_speeds(seed: int = 0) -> dict[str, Array]:
    logs = machine(seed)
    slow = np.random.default_rng(seed + 100).random((EPOCHS, ROUNDS)) < 0.5
    logs["one"] = logs["one"] + 0.08 * slow
    return logs


def test_two_speeds_are_both_named() -> None:
    samples = samples_of(two_speeds())
    assert is_suspect(samples) and not is_suspect(samples_of(machine()))
    flags = steadiness_flags(samples)
    assert names_of(flags) == {"one": ["bimodal"]}
    assert "two speeds, 8" in flags["one"][0]["detail"]


def test_a_wide_spread_is_not_two_speeds() -> None:
    logs = machine()
    logs["one"] = logs["one"] + np.random.default_rng(9).normal(0, 0.03, (EPOCHS, ROUNDS))
    samples = samples_of(logs)
    assert is_suspect(samples)
    assert steadiness_flags(samples) == {}


def test_modes_are_measured() -> None:
    rng = np.random.default_rng(3)
    found = fit_modes(np.concatenate([rng.normal(0, 0.01, 300), rng.normal(0.05, 0.01, 100)]))
    assert found.apart == pytest.approx(0.05, abs=0.004)
    assert found.share == pytest.approx(0.25, abs=0.05)
    assert found.sd == pytest.approx(0.01, abs=0.002)
    assert found.evidence > 10
    assert fit_modes(rng.normal(0, 0.01, 400)).evidence < 5


def test_what_slows_its_successors_is_named() -> None:
    rng = np.random.default_rng(1)
    orders = np.argsort(rng.random((EPOCHS * ROUNDS, len(NAMES))), axis=1)
    logs = machine()
    culprit = orders[:, 3]
    for index, name in enumerate(NAMES[:3]):
        after = np.where(
            orders[:, index] > 0,
            orders[:, index] == culprit + 1,
            np.roll(culprit == len(NAMES) - 1, 1),
        )
        logs[name] = logs[name] + 0.02 * after.reshape(EPOCHS, ROUNDS)
    flags = steadiness_flags(samples_of(logs, orders), {"three": "openvino"})
    assert names_of(flags) == {name: ["carry-over"] for name in NAMES[:3]}
    assert flags["base"][0]["detail"].endswith("slower right after openvino")


def recorded(*, disturbed: bool = False) -> list[Json]:
    """Return the records of a session in which the second program has two speeds."""
    found = ModelRef("m.onnx", "m", "onnx", "c")
    compilers = [CompilerRef(name, "m:X") for name in NAMES]
    cases = tuple(Case(found, one, Device(threads=1), 1, label=one.name) for one in compilers)
    states = {case.case_id: CaseState(status="ok", call_ns=1e7) for case in cases}
    samples = dict(zip(states, samples_of(two_speeds()).values(), strict=True))
    if disturbed:
        cpu_ns = samples[cases[1].case_id]["cpu_ns"]
        cpu_ns[: len(cpu_ns) // 2] *= 0.8
    session = Session(cases, "base", PROFILES["default"], Limits())
    state = SessionState(cases=states, epochs_done=EPOCHS)
    return make_records(session, state, read=samples.get, host={})


def test_what_two_speeds_have_no_single_status_verdict_or_figure_for() -> None:
    records = {r["label"]: r for r in recorded() if r["kind"] == "case"}
    for record in records.values():
        jsonschema.validate(record, load_schema())
    unstable = records["one"]
    assert (unstable["status"], unstable["reason"]) == ("unstable", "bimodal")
    assert "two speeds" in unstable["message"]
    assert unstable["summary"]["vs_baseline"]["verdict"] == "unstable(bimodal)"
    assert {records[name]["status"] for name in ("base", "two", "three")} == {"ok"}


def test_whom_something_else_took_the_cpu_from_is_not_blamed() -> None:
    records = {r["label"]: r for r in recorded(disturbed=True) if r["kind"] == "case"}
    assert records["one"]["status"] == "ok"
    assert "interference" in {flag["flag"] for flag in records["one"]["flags"]}


@pytest.mark.parametrize("which", ["eager", "openvino"])
def test_no_figure_is_shown_and_no_rank_given_of_two_speeds(which: str, tmp_path: Path) -> None:
    run = Run(PROFILES["default"])
    session = run.session()
    for text, ms in {"eager": 20.0, "onnxruntime": 15.0, "openvino": 10.0}.items():
        run.cell(session, model("m"), text, 8, ms=ms)
    run.summarise()
    for record in run.records:
        if which in (record["label"], "eager") and record["summary"]["vs_baseline"]:
            record["summary"]["vs_baseline"]["verdict"] = "unstable(bimodal)"
        if record["label"] == which:
            record["status"], record["reason"] = "unstable", "bimodal"
            record["message"] = "Not steady: two speeds, 8.0% apart."
            record["flags"].append({"flag": "bimodal", "detail": "two speeds, 8.0% apart"})
            hidden = record["summary"]["throughput_per_s"]["estimate"]
    answers = verdicts(*run.parts)
    assert all(which not in answer.top for answer in answers)
    assert f"{which} not ranked: unstable (bimodal)" in headline(answers, [])
    shown = io.StringIO()
    print_run(Console(file=shown, width=120, _environ={}), *run.parts)
    write_report(tmp_path / "r.html", *run.parts, title="t", root=tmp_path)
    for text in (shown.getvalue(), (tmp_path / "r.html").read_text()):
        assert f"{hidden:.0f} " not in text and "two speeds, 8.0% apart" in text
