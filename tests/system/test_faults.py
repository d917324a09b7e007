"""Faults of a model: each becomes the record of its cells, and the run goes on."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from benching import TORCH_CASES, bench
from case_expectations import MODULES
from processes import processes_of, wait_until

from ngraphbench.store.rundir import RunDir
from ngraphbench.types import Json

sys.path.insert(0, str(Path(__file__).parents[2]))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="models need torch"),
    pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="a second compiler"),
]

TIMEOUT_S = 30

OK = ("ok", "", "measure")
EXPECTED = {
    ("no_tensor_out", 1): ("failed", "no-tensor-output", "export"),
    ("no_tensor_out", 4): ("failed", "no-tensor-output", "export"),
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
WORDS = {
    "no_tensor_out": "no tensor",
    "hangs_on_large": f"{TIMEOUT_S} s",
    "exits": "exit code 3",
    "segfaults": "SIGSEGV",
    "allocates_without_end": "2048 MiB",
}
COMPILERS = ("eager", "onnxruntime")

Records = dict[tuple[str, int, str], Json]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def found(folder: Path) -> Records:
    """Return the records of one command over all of them."""
    shutil.copy(TORCH_CASES, folder / "torch_cases.py")
    models = [f"torch_cases.py:{name}" for name in dict.fromkeys(name for name, _ in EXPECTED)]
    chosen = [word for name in COMPILERS for word in ("-c", name)]
    options = (*chosen, "-b", "1,4", "--timeout", f"{TIMEOUT_S}s")
    listed = list(bench(models, folder=folder, out="run", options=options))
    return {(r["case"]["model"]["label"], r["case"]["batch"], r["label"]): r for r in listed}


def test_every_torch_case_is_tried() -> None:
    torch_cases = pytest.importorskip("tests.cases.torch_cases")
    assert {*MODULES, *WORDS} == set(torch_cases.MODULES)
    assert set(WORDS) == {name for (name, _), outcome in EXPECTED.items() if outcome != OK}


def test_faults_of_models_are_records_and_the_run_goes_on(found: Records, folder: Path) -> None:
    expected = {(*cell, name): value for cell, value in EXPECTED.items() for name in COMPILERS}
    assert {cell: outcome(record) for cell, record in found.items()} == expected
    assert wait_until(lambda: not processes_of(folder)), processes_of(folder)
    kept = RunDir.open(folder / "run").latest()
    assert [record["case_id"] for record in kept] == [r["case_id"] for r in found.values()]
    assert not list((folder / "run" / "spool").iterdir())


def test_a_fault_says_how_and_the_others_are_whole(found: Records, folder: Path) -> None:
    for (name, _, _), record in found.items():
        measured = record["status"] == "ok"
        assert (record["summary"] is not None) == measured
        assert measured or WORDS[name] in record["message"]
        assert (folder / "run" / record["log"]).stat().st_size < 8 * 1024**2
        if measured:
            assert (folder / "run" / record["measurement"]["samples"]).exists()
            assert record["verification"]["verdict"] == "ok"


def test_what_is_told_of_a_flood_a_limit_and_a_crash(found: Records) -> None:
    flood = found[("prints_a_lot", 4, "eager")]
    assert "output-flood" in {flag["flag"] for flag in flood["flags"]}
    limit = found[("allocates_without_end", 1, "eager")]["detail"]["limit_bytes"]
    assert limit == 2 * 1024**3
    trace = found[("segfaults", 1, "eager")]["detail"]["log_tail"]
    assert "torch_cases.py" in trace


def outcome(record: dict[str, Any]) -> tuple[str, str, str]:
    return record["status"], record["reason"], record["stage"]
