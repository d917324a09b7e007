"""What a launch is: of one artefact that the first one saved, or built anew each time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import ngb
from fake_runs import campaign, compiler, fake_plan, small_profile
from steady import as_steady

from ngraphbench.plan import Plan
from ngraphbench.session.launches import ONCE, Learned, learn, learned, state_file
from ngraphbench.stats import Launch
from ngraphbench.store.rundir import RunDir
from ngraphbench.store.schema import load_schema
from ngraphbench.types import Json

pytestmark = pytest.mark.usefixtures("own_lock")


def measure(folder: Path, claim: str, *, epochs: int = 3, **options: Any) -> tuple[Json, Json]:
    """Return the record of one cell beside a plain one, and its session's."""
    refs = [compiler(work_us=200), compiler(work_us=100, compile_ms=30, **options)]
    plan = fake_plan(folder, refs, profile=small_profile(epochs=epochs))
    (session,) = plan.sessions
    method = replace(session.method, claim=claim)
    plan = Plan(plan.name, (replace(session, method=method),))
    campaign(folder / "run", plan).run()
    directory = RunDir.open(folder / "run")
    records = {record["label"]: as_steady(record) for record in directory.latest()}
    record, (about,) = records[refs[1].text], directory.sessions()
    for found in (record, about):
        jsonschema.Draft202012Validator(load_schema()).validate(found)
    assert record["status"] == "ok", record["message"]
    return record, about


def claims(record: Json) -> set[str]:
    summary = record["summary"]
    return {summary[key]["claim"] for key in ("latency_ms", "throughput_per_s", "vs_baseline")}


def test_later_launches_load_what_the_first_one_saved(tmp_path: Path) -> None:
    record, about = measure(tmp_path, "artefact")
    costs = record["costs"]
    assert claims(record) == {"artefact"}
    assert about["conditions"] == {}
    assert costs["artifact_bytes"] > 0
    # Loading does not take the time that compiling does.
    assert costs["artifact_load_s"] < 0.03 <= costs["compile_cold_s"]
    assert len(costs["compile_cold_samples_s"]) == 3
    assert costs["compile_cold_s"] == sorted(costs["compile_cold_samples_s"])[1]
    assert costs["compile_warm_s"] >= 0.03
    assert isinstance(costs["leak_bytes_per_1000_calls"], float)
    assert record["flags"] == [] or "recompiled" not in {f["flag"] for f in record["flags"]}


def test_a_single_launch_compiles_once(tmp_path: Path) -> None:
    record, _ = measure(tmp_path, "artefact", epochs=1)
    assert len(record["costs"]["compile_cold_samples_s"]) == 1
    assert record["costs"]["compile_warm_s"] is None
    assert record["costs"]["artifact_bytes"] is None


def test_an_artefact_that_cannot_be_loaded_is_compiled_anew_and_said(tmp_path: Path) -> None:
    record, _ = measure(tmp_path, "artefact", fault="bad-artifact", epochs=2)
    assert "recompiled" in {flag["flag"] for flag in record["flags"]}
    assert "artifact_load_s" not in record["costs"]
    assert record["costs"]["compile_warm_s"] >= 0.03
    assert record["measurement"]["epochs"] == 2


def test_a_claim_about_a_compiler_builds_each_launch_anew(tmp_path: Path) -> None:
    record, about = measure(tmp_path, "compiler")
    costs = record["costs"]
    assert claims(record) == {"compiler"}
    assert about["conditions"] == {"claim": "compiler"}
    assert len(costs["compile_cold_samples_s"]) == 3
    assert min(costs["compile_cold_samples_s"]) >= 0.03
    assert costs["compile_warm_s"] is None
    assert "artifact_load_s" not in costs
    assert record["command"].count("--claim compiler") == 1


def test_a_session_believes_what_this_host_has_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = state_file()
    assert path is not None
    learn(Launch(0.003, 6.0))
    before = path.read_text()
    _, about = measure(tmp_path, "artefact", epochs=2)
    known = learned()
    assert about["launch_prior"] == {"sd": known.sd, "degrees": known.degrees}
    # The fake compiler is none that users have: its launches teach nothing of theirs.
    assert path.read_text() == before


def test_a_session_of_one_launch_believes_less_and_learns_from_its_control(
    tmp_path: Path, site: Mapping[str, str]
) -> None:
    env = {**site, "XDG_STATE_HOME": str(tmp_path / "state")}
    command = ("bench", "double.onnx", "-c", "fake:work_us=200", "-c", "fake", "--profile", "quick")
    believed = ONCE
    for number in (1, 2):
        out = f"run{number}"
        ngb(*command, "-o", out, "--json", cwd=tmp_path, short=True, env=env, check=0)
        (about,) = RunDir.open(tmp_path / out).sessions()
        assert about["launch_prior"] == {"sd": believed.sd, "degrees": believed.degrees}
        (path,) = (tmp_path / "state" / "ngraphbench").iterdir()
        believed = learned(path=path, once=True)
        assert believed.sessions == number
        assert learned(path=path) == Learned()
