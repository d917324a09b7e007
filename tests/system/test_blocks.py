"""Solo blocks and a co-runner through the whole arrow: what goes wrong there stays there."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from command_line import ngb, records, write_model
from fake_runs import FAKE, campaign, compiler, fake_plan, small_profile
from lane_faults import TARGET
from late_faults import TARGET as LATE
from steady import as_steady

from ngraphbench.api import Run
from ngraphbench.case import Case, Method
from ngraphbench.plan import Plan
from ngraphbench.store.samples import BLOCK_COLUMNS, read_samples
from ngraphbench.store.schema import load_schema
from ngraphbench.types import Device, Json

HERE = str(Path(__file__).parent)


def measured(plan: Plan, folder: Path, method: Method) -> tuple[dict[str, Json], Json]:
    """Return the case records by label, and the session record, all valid."""
    (session,) = plan.sessions
    running = campaign(folder, Plan(plan.name, (replace(session, method=method),)))
    running.run()
    found = running.directory.records()
    for record in found:
        jsonschema.Draft202012Validator(load_schema()).validate(record)
    cases = {record["label"]: as_steady(record) for record in found if record["kind"] == "case"}
    return cases, found[-1]


def test_every_block_by_command_line(tmp_path: Path) -> None:
    write_model(tmp_path / "m.onnx")
    write_model(tmp_path / "other.onnx", size=64)
    asked = "--profile quick --rate 300 --in-flight 1,2 --beside other.onnx --tails 1s --json"
    done = ngb(
        *("bench", "m.onnx", "-c", "onnxruntime:level=none", "-b", "1", "--threads", "1"),
        *asked.split(),
        *("--out", "out"),
        cwd=tmp_path,
        check=0,
    )
    (record,) = map(as_steady, records(done))
    assert record["status"] == "ok"
    blocks = {(b["kind"], b["in_flight"]): b for b in record["blocks"]}
    assert set(blocks) == {("tails", None), ("paced", None), ("concurrent", 1), ("concurrent", 2)}
    assert {b["status"] for b in blocks.values()} == {"ok"}
    paced = blocks["paced", None]
    assert (paced["rate_per_s"], paced["requests"]) == (300.0, 680)
    assert set(paced["response_ms"]) == {"p50", "p90", "p99"}
    assert 0 <= paced["missed"] <= 680
    assert set(record["summary"]["percentiles_ms"]) == {"p50", "p90", "p99"}
    for number in (1, 2):
        rate = blocks["concurrent", number]["throughput_per_s"]
        assert 0 < rate["low"] <= rate["estimate"] <= rate["high"]

    samples = tmp_path / "out" / record["measurement"]["samples"]
    rows = read_samples(samples.with_name(f"{samples.stem}-blocks.csv"))
    assert tuple(rows) == BLOCK_COLUMNS
    found = Counter(zip(rows["kind"].tolist(), rows["in_flight"].tolist(), strict=True))
    assert found["paced", 0] == 680
    assert found["concurrent", 2] == blocks["concurrent", 2]["requests"]
    assert np.all(rows["start_ns"] >= rows["due_ns"]) and np.all(rows["end_ns"] >= rows["start_ns"])

    (session,) = Run.open(tmp_path / "out").sessions()
    assert session["beside"]["calls_per_s"] > 0
    assert not session["beside"]["launches"][0]["lost"]
    assert session["conditions"]["rate_per_s"] == 300.0
    assert {flag["flag"] for flag in record["flags"]}.isdisjoint({"co-runner-lost"})

    shown = ngb("show", "out", cwd=tmp_path, check=0).stdout
    assert "Requests at 300/s, alone: response ms" in shown
    assert "Requests in flight, alone: items/s" in shown
    assert "beside other" in shown
    ngb("report", "out", cwd=tmp_path, check=0)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Requests at 300/s, alone: response ms" in page


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch, own_lock: Path) -> None:
    """Let workers import the plugins beside this file."""
    path = os.pathsep.join(filter(None, (HERE, os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)


@pytest.mark.slow
@pytest.mark.usefixtures("plugins")
def test_what_goes_wrong_in_flight_leaves_the_cell(tmp_path: Path) -> None:
    expected = {
        "none": ("ok", ""),
        "crash": ("crashed", "signal:SIGSEGV"),
        "hang": ("timeout", "deadline"),
        "raise": ("failed", "lane"),
        "wrong": ("wrong", "values"),
        "mixed": ("wrong", "values"),
        "few": ("unsupported", "concurrent"),
    }
    refs = [compiler(FAKE), *(compiler(TARGET, kind=kind) for kind in expected)]
    plan = fake_plan(tmp_path, refs, limits={"first_call_s": 5.0})
    method = Method(tails_s=0.2, in_flight=(2, 3))
    cases, session = measured(plan, tmp_path / "run", method)
    assert {record["status"] for record in cases.values()} == {"ok"}
    assert all(record["summary"] for record in cases.values())
    assert all("after" in record["verification"]["checks"] for record in cases.values())
    for kind, wanted in expected.items():
        tails, *flights = cases[f"laned:kind={kind}"]["blocks"]
        assert tails["status"] == "ok" and tails["requests"] > 0
        assert (flights[0]["status"], flights[0]["reason"]) == wanted, kind
        # A program that is gone has no second chance in this launch, one that is not has.
        later = ("skipped", "gone") if kind in ("crash", "hang") else wanted
        assert (flights[1]["status"], flights[1]["reason"]) == later, kind
        assert bool(flights[0]["throughput_per_s"]) == (kind == "none")
    assert session["beside"] is None


@pytest.mark.slow
@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize("kind", ["crash", "raise", "none"])
def test_a_lost_co_runner_is_said_of_all_it_ran_beside(tmp_path: Path, kind: str) -> None:
    plan = fake_plan(tmp_path, [compiler(FAKE)], profile=small_profile(epochs=2, slot_ms=20))
    (case,) = plan.cases()
    beside = Case(case.model, compiler(LATE, kind=kind), Device(threads=1), 1, label="beside late")
    cases, session = measured(plan, tmp_path / "run", Method(beside=beside))
    (record,) = cases.values()
    assert record["status"] == "ok"
    launches = session["beside"]["launches"]
    assert [launch["epoch"] for launch in launches] == [0, 1]
    flags = [{flag["flag"] for flag in found["flags"]} for found in (record, session)]
    if kind == "none":
        assert all(launch["calls"] > 0 and not launch["lost"] for launch in launches)
        assert all("co-runner-lost" not in found for found in flags)
        assert session["beside"]["calls_per_s"] > 0
    else:
        assert all(launch["lost"] for launch in launches)
        assert all("co-runner-lost" in found for found in flags)
        assert session["beside"]["calls_per_s"] is None
        assert json.dumps(launches).count("late was asked") == (2 if kind == "raise" else 0)
