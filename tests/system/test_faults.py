"""Faults of a model: each becomes the record of its cells, and the run goes on."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from processes import processes_of, wait_until

from ngraphbench.store.rundir import RunDir

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("own_lock"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="models need torch"),
    pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="a second compiler"),
]

ROOT = Path(__file__).parents[2]
CASES = "tests/cases/torch_cases.py"
TIMEOUT_S = 20
PATIENCE_S = 900

OK = ("ok", "", "measure")
EXPECTED = {
    ("exits", 1): ("crashed", "exit:3", "export"),
    ("exits", 4): ("crashed", "exit:3", "export"),
    ("segfaults", 1): ("crashed", "signal:SIGSEGV", "export"),
    ("segfaults", 4): ("crashed", "signal:SIGSEGV", "export"),
    ("hangs_on_large", 1): OK,
    ("hangs_on_large", 4): ("timeout", "deadline", "export"),
    ("allocates_without_end", 1): ("oom", "memory", "export"),
    ("allocates_without_end", 4): ("oom", "memory", "export"),
    ("prints_a_lot", 1): OK,
    ("prints_a_lot", 4): OK,
    ("changes_threads", 1): OK,
    ("changes_threads", 4): OK,
    ("dict_out", 1): OK,
    ("dict_out", 4): OK,
}
COMPILERS = ("eager", "onnxruntime")

Records = dict[tuple[str, int, str], dict[str, Any]]


def test_faults_of_models_are_records_and_the_run_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    models = [f"{CASES}:{name}" for name in dict.fromkeys(name for name, _ in EXPECTED)]
    options = ["-b", "1,4", "--profile", "quick", "--memory", "2GiB"]
    options += ["--timeout", f"{TIMEOUT_S}s", "--json", "--out", str(run)]
    for name in COMPILERS:
        options += ["-c", name]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "ngraphbench", "bench", *models, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    print(f"{time.monotonic() - began:.0f} s")
    assert wait_until(lambda: not processes_of(tmp_path)), processes_of(tmp_path)
    assert done.returncode == 1, done.stderr
    listed = json.loads(done.stdout)
    found = {(r["case"]["model"]["label"], r["case"]["batch"], r["label"]): r for r in listed}
    expected = {(*cell, name): value for cell, value in EXPECTED.items() for name in COMPILERS}
    assert {cell: outcome(record) for cell, record in found.items()} == expected
    check_details(run, found)
    assert RunDir.open(run).latest() == listed
    assert not list((run / "spool").iterdir())


def outcome(record: dict[str, Any]) -> tuple[str, str, str]:
    return record["status"], record["reason"], record["stage"]


def check_details(run: Path, found: Records) -> None:
    for record in found.values():
        measured = record["status"] == "ok"
        assert (record["summary"] is not None) == measured
        assert record["message"] or measured
        assert (run / record["log"]).stat().st_size < 8 * 1024**2
        if measured:
            assert (run / record["measurement"]["samples"]).exists()
            assert record["verification"]["verdict"] == "ok"
    flood = found[("prints_a_lot", 4, "eager")]
    assert "output-flood" in {flag["flag"] for flag in flood["flags"]}
    limit = found[("allocates_without_end", 1, "eager")]["detail"]["limit_bytes"]
    assert limit == 2 * 1024**3
    trace = found[("segfaults", 1, "eager")]["detail"]["log_tail"]
    assert "torch_cases.py" in trace
