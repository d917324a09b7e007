"""What a run leaves: records that meet their schema, and figures anyone can work out again."""

from __future__ import annotations

import csv
import html
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import ngb, records, write_model
from steady import as_steady

from ngraphbench.api import Run
from ngraphbench.report.wording import figure
from ngraphbench.store.rundir import RunDir
from ngraphbench.store.schema import load_schema
from ngraphbench.types import Json

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
BATCHES = (1, 2)
LABELS = ("onnxruntime:level=none", "onnxruntime", "onnxruntime #2", "openvino")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records")
    write_model(path / "small.onnx", size=64)
    write_model(path / "large.onnx", size=256)
    return path


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """Return a run of two models, one compiler twice, in two launches."""
    out = folder / "run"
    compilers = ("-c", "onnxruntime", "-c", "onnxruntime", "-c", "openvino")
    arguments = ("bench", "small.onnx", "large.onnx", *compilers, "-b", "1,2", "--seed", "7")
    done = ngb(*arguments, "-o", out, "--json", cwd=folder, short=True, check=0)
    assert len(records(done)) == 2 * len(BATCHES) * len(LABELS)
    assert records(ngb("show", out, "--json", cwd=folder)) == records(done)
    return out


def stored(run: Path) -> list[Json]:
    return RunDir.open(run).records()


def cells(run: Path) -> list[Json]:
    return [as_steady(record) for record in stored(run) if record["kind"] == "case"]


def recomputed(run: Path, tables: Path) -> list[tuple[Json, dict[str, float]]]:
    """Return each measured cell's record with what the script makes of the exported tables."""
    scope: dict[str, Any] = {"__name__": "recompute"}
    exec((DOCS / "recompute.py").read_text(), scope)
    rows = [list(csv.DictReader(path.open())) for path in Run.open(run).export(tables)]
    by_id = {cell["case_id"]: cell for cell in cells(run)}
    return [(by_id[row["case_id"]], found) for row, found in scope["recompute"](*rows)]


def test_records_meet_their_schema(run: Path) -> None:
    validator = jsonschema.Draft202012Validator(load_schema())
    for record in stored(run):
        validator.validate(record)
    (session,) = Run.open(run).sessions()
    assert session["status"] == "done" and session["epochs_done"] == 2
    assert session["sentinel"] and session["canaries"] and session["launch_sd"] is not None
    assert sorted(session["cases"]) == sorted(cell["case_id"] for cell in cells(run))
    # A machine may have no sensor at all, but it was asked.
    assert set(session["thermal"]) >= {"frequency_khz", "temperature_c", "sensors"}
    for cell in cells(run):
        assert cell["environment"]["binding"]["cpus"] == cell["case"]["device"]["cpus"]
        assert len(cell["case"]["device"]["cpus"]) == cell["case"]["device"]["threads"]


def test_every_cell_has_its_evidence(run: Path) -> None:
    found = {(c["case"]["model"]["label"], c["case"]["batch"], c["label"]) for c in cells(run)}
    wanted = {(m, b, c) for m in ("small", "large") for b in BATCHES for c in LABELS}
    assert found == wanted
    for cell in cells(run):
        assert cell["status"] == "ok" and cell["message"] == "" and cell["stage"] == "measure"
        check = cell["verification"]
        assert check["verdict"] == "ok" and check["checks"] == ["a", "b", "after"]
        assert check["rel_l2"] <= check["tolerance"] and check["outputs"][0]["name"] == "y"
        costs = ("export_s", "import_s", "compile_cold_s", "load_s", "first_run_s")
        assert all(cell["costs"][name] > 0 for name in costs)
        assert cell["costs"]["peak_rss_bytes"] > 2**20
        assert cell["environment"]["compiler_version"] and cell["environment"]["packages"]
        assert cell["weights"] == "file" and cell["seed"] == 7
        assert (run / cell["log"]).exists()
        samples = Run.open(run).samples(cell["measurement"]["samples"])
        rounds = set(zip(samples["epoch"], samples["round"], strict=True))
        assert len(rounds) == cell["measurement"]["rounds"] <= len(samples["call_ns"])
        assert sum(samples["calls"]) == cell["measurement"]["calls"]
        assert cell["measurement"]["epochs"] == 2


def test_estimates_can_be_worked_out_again(run: Path, tmp_path: Path) -> None:
    found = recomputed(run, tmp_path)
    assert len(found) == len(cells(run))
    compared = 0
    for cell, estimates in found:
        summary = cell["summary"]
        for name, value in estimates.items():
            assert summary[name]["estimate"] == pytest.approx(value, rel=1e-9), name
            assert summary[name]["low"] <= value <= summary[name]["high"]
        assert ("vs_baseline" in estimates) == (cell["label"] != LABELS[0])
        compared += "vs_baseline" in estimates
    assert compared == 2 * len(BATCHES) * 3


def test_the_script_needs_nothing_of_ngraphbench(run: Path, tmp_path: Path) -> None:
    text = (DOCS / "recompute.py").read_text()
    assert "ngraphbench" not in text
    code = [line for line in text.splitlines()[1:] if line and "import " not in line]
    assert len(code) <= 30
    Run.open(run).export(tmp_path)
    command = [sys.executable, DOCS / "recompute.py", tmp_path]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == len(cells(run))


def test_figures_of_the_page_are_those_of_the_records(run: Path, folder: Path) -> None:
    ngb("report", run, cwd=folder, check=0)
    page = html.unescape(re.sub(r"<[^>]+>", " ", (run / "report.html").read_text()))
    for cell in cells(run):
        assert f" {figure(cell['summary']['throughput_per_s']['estimate'])} " in page
        assert cell["command"] in page


def test_show_needs_the_records_alone(run: Path, folder: Path, tmp_path: Path) -> None:
    before = ngb("show", run, cwd=folder, check=0).stdout
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "report.html").unlink(missing_ok=True)
    for name in ("workloads", "logs"):
        shutil.rmtree(copy / name)
    (copy / "plan.json").unlink()
    assert ngb("show", copy, cwd=folder, check=0).stdout == before
    ngb("report", copy, cwd=folder, check=0)


def test_the_command_of_a_record_measures_its_cell_again(run: Path, folder: Path) -> None:
    cell = next(c for c in cells(run) if c["label"] == "openvino" and c["case"]["batch"] == 2)
    program, *arguments = shlex.split(cell["command"])
    assert program == "ngb" and "--seed" in arguments
    done = ngb(*arguments, "--json", "-o", "again", cwd=folder, short=True, check=0)
    again = {record["label"]: record for record in records(done)}
    assert again["openvino"]["case_id"] == cell["case_id"]
