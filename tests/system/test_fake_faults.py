"""Faults of a compiler: each becomes the record of its cell, and the others are measured."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import late_faults
import pytest
from fake_runs import campaign, compiler, fake_plan
from processes import processes_of, wait_until
from steady import as_steady

from ngraphbench.records import FAILURES
from ngraphbench.store.rundir import RunDir
from ngraphbench.store.schema import load_schema

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_lock")]

LIMITS = {"first_call_s": 4.0, "compile_s": 15.0, "cell_s": 60.0, "memory_bytes": 512 * 1024**2}

FAULTS = {
    "compile-error": ("failed", "compile", "compile"),
    "compile-hang": ("timeout", "deadline", "compile"),
    "compile-crash": ("crashed", "signal:SIGSEGV", "compile"),
    "unsupported": ("unsupported", "operator", "compile"),
    "crash": ("crashed", "signal:SIGSEGV", "verify"),
    "exit": ("crashed", "exit:3", "verify"),
    "hang": ("timeout", "deadline", "verify"),
    "oom": ("oom", "memory", "verify"),
    "orphan": ("crashed", "exit:3", "verify"),
    "run-error": ("failed", "run", "verify"),
    "wrong": ("wrong", "values", "verify"),
    "nan": ("wrong", "nan", "verify"),
    "constant": ("wrong", "values", "verify"),
    "drop-output": ("wrong", "outputs", "verify"),
    "flood": ("ok", "", "measure"),
    "sleep": ("ok", "", "measure"),
    "fallback": ("ok", "", "measure"),
}

LATE = {
    "crash": ("crashed", "signal:SIGSEGV", "measure"),
    "exit": ("crashed", "exit:3", "measure"),
    "hang": ("timeout", "deadline", "measure"),
    "raise": ("failed", "late", "measure"),
    "leave": ("failed", "SystemExit", "measure"),
    "spec-error": ("failed", "late", "measure"),
    "memory": ("oom", "memory", "measure"),
    "drift": ("wrong", "drifted", "verify"),
    "text": ("wrong", "dtype", "verify"),
    "object": ("failed", "outputs", "verify"),
    "import": ("failed", "SystemExit", "compile"),
    "child": ("ok", "", "measure"),
}


def measured(folder: Path, candidates: list[Any]) -> dict[str, dict[str, Any]]:
    """Return the records by label, after checking what must hold for any run."""
    run = folder / "run"
    plan = fake_plan(folder, candidates, limits=LIMITS)
    campaign(run, plan).run()
    directory = RunDir.open(run)
    validator = jsonschema.Draft202012Validator(load_schema())
    for record in directory.records():
        validator.validate(record)
    (session,) = directory.sessions()
    cases = [as_steady(record) for record in directory.latest()]
    assert sorted(session["cases"]) == sorted(record["case_id"] for record in cases)
    assert len(cases) == len(candidates)
    for record in cases:
        assert (record["summary"] is not None) == (record["status"] == "ok")
        assert record["message"] or record["status"] == "ok"
        assert (run / record["log"]).exists()
    assert not (run / "spool" / session["session_id"]).exists()
    assert wait_until(lambda: not processes_of(folder)), processes_of(folder)
    return {record["label"]: record for record in cases}


def outcome(record: dict[str, Any]) -> tuple[str, str, str]:
    return record["status"], record["reason"], record["stage"]


def test_faults_of_a_compiler(tmp_path: Path) -> None:
    healthy = [compiler(work_us=50), compiler(work_us=100)]
    faulty = [compiler(fault=fault, work_us=50) for fault in FAULTS]
    found = measured(tmp_path, [healthy[0], *faulty, healthy[1]])
    for name, expected in FAULTS.items():
        assert outcome(found[f"fake:fault={name},work_us=50"]) == expected, name
    assert [outcome(found[ref.text]) for ref in healthy] == [("ok", "", "measure")] * 2
    counts = Counter(record["status"] for record in found.values())
    assert counts == Counter([status for status, _, _ in FAULTS.values()] + ["ok"] * 2)
    assert sum(counts[status] for status in FAILURES) == 13

    flood = found["fake:fault=flood,work_us=50"]
    assert "output-flood" in {flag["flag"] for flag in flood["flags"]}
    partly = {
        flag["flag"]: flag["detail"] for flag in found["fake:fault=fallback,work_us=50"]["flags"]
    }
    assert partly["partly-compiled"] == "60% of its nodes ran outside what was compiled"
    oom = found["fake:fault=oom,work_us=50"]
    assert oom["detail"]["limit_bytes"] == LIMITS["memory_bytes"]
    slower = found["fake:work_us=100"]["summary"]["vs_baseline"]
    assert slower["baseline"] == "fake:work_us=50"
    assert slower["estimate"] < 1


def test_faults_that_come_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    late = [compiler(late_faults.TARGET, kind=kind) for kind in LATE]
    found = measured(tmp_path, [compiler(work_us=20), *late, compiler(late_faults.TARGET)])
    for name, expected in LATE.items():
        assert outcome(found[f"late:kind={name}"]) == expected, name
    assert outcome(found["fake:work_us=20"]) == ("ok", "", "measure")
    assert outcome(found["late"]) == ("ok", "", "measure")
    cause = found["late:kind=raise"]["detail"]["cause"]
    assert re.search(r"late_faults\.py.*in _fail", cause)


def test_where_memory_ends_is_found_and_smaller_batches_are_kept(tmp_path: Path) -> None:
    heavy = compiler(row_mib=24)
    plan = fake_plan(tmp_path, [compiler(), heavy], limits=LIMITS, batches=(1, 64))
    campaign(tmp_path / "run", plan).run()
    cells = map(as_steady, RunDir.open(tmp_path / "run").latest())
    found = {(r["label"], r["case"]["batch"]): r for r in cells}
    light = found[compiler().text, 64]
    assert (light["status"], found[heavy.text, 1]["status"]) == ("ok", "ok")
    told = found[heavy.text, 64]
    assert outcome(told) == ("oom", "memory", "compile")
    fits, exceeds = told["detail"]["largest_batch"], told["detail"]["smallest_batch_oom"]
    # 512 MiB, of which the interpreter takes less than 100.
    assert 24 * fits < 512 and 24 * exceeds > 512 - 100
    assert exceeds <= max(1.25 * fits, fits + 1)
    assert f"Batch {fits} fits, batch {exceeds} does not." in told["message"]
    assert wait_until(lambda: not processes_of(tmp_path)), processes_of(tmp_path)
