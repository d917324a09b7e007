"""What was measured alone, as the terminal and the page show it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from run_fixture import Run, model

from ngraphbench.analysis.tables import Evidence
from ngraphbench.profiles import PROFILES
from ngraphbench.report.alone import block_tables
from ngraphbench.report.html import write_report
from ngraphbench.report.terminal import print_run
from ngraphbench.types import Json


def interval(estimate: float, half: float = 0.1) -> Json:
    low, high = estimate * (1 - half), estimate * (1 + half)
    return {
        "estimate": estimate,
        "low": low,
        "high": high,
        "confidence": 0.9,
        "claim": "launch",
    }


def block(kind: str, **changes: object) -> Json:
    base: Json = {
        "kind": kind,
        "rate_per_s": None,
        "in_flight": None,
        "status": "ok",
        "reason": "",
        "message": "",
        "note": "",
        "launches": 1,
        "requests": 680,
        "seconds": 22.0,
        "response_ms": None,
        "service_ms": None,
        "deadline_ms": None,
        "missed": None,
        "missed_share": None,
        "throughput_per_s": None,
        "sustained": None,
    }
    return {**base, **changes}


PERCENTILES = {"p50": interval(10.0), "p90": interval(12.5), "p99": interval(31.4, 0.2)}


def run_with(*blocks: Json, label: str = "onnxruntime") -> Run:
    run = Run(PROFILES["quick"])
    session = run.session()
    run.cell(session, model("m"), "eager", 1, ms=10.0, blocks=[])
    run.cell(session, model("m"), label, 1, ms=5.0, blocks=list(blocks))
    return run.summarise()


def text_of(run: Run, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, _environ={})
    print_run(console, *run.parts)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


PACED = block(
    "paced",
    rate_per_s=30.0,
    response_ms=PERCENTILES,
    missed=7,
    missed_share=interval(7 / 680),
    deadline_ms=33.3,
)


@pytest.mark.parametrize("width", [80, 120])
def test_paced_requests_have_their_table(width: int) -> None:
    text = text_of(run_with(PACED), width)
    assert "Requests at 30/s, alone: response ms" in text
    (row,) = (line for line in text.splitlines() if "31.4" in line)
    assert row.split()[-8:] == [
        "onnxruntime",
        "10.0",
        "12.5",
        "31.4",
        "±20%",
        "7",
        "(1.03%)",
        "680",
    ]
    assert max(map(len, text.splitlines())) <= width


def test_a_percentile_that_may_not_be_told_is_explained() -> None:
    few = {"p50": interval(10.0), "p90": interval(12.5)}
    text = text_of(run_with(block("tails", service_ms=few, requests=300)))
    (row,) = (line for line in text.splitlines() if "12.5" in line)
    assert row.split()[-2:] == ["–", "300"]
    assert "p99 needs 662 calls." in text


def test_an_overloaded_program_has_no_response_times() -> None:
    overloaded = block(
        "paced", rate_per_s=30.0, status="overloaded", missed=90, missed_share=interval(0.9)
    )
    text = text_of(run_with(overloaded))
    assert "–  overloaded" in text
    assert "cannot keep up" in text


def test_each_number_in_flight_has_a_column() -> None:
    blocks = [
        block("concurrent", in_flight=n, throughput_per_s=interval(100.0 * n)) for n in (4, 1)
    ]
    bad = block(
        "concurrent",
        in_flight=2,
        status="unsupported",
        reason="concurrent",
        message="This program holds one request at a time.",
        launches=0,
    )
    (table,) = block_tables(_evidence(run_with(*blocks, bad)))
    assert table.heads == ("1", "2", "4")
    assert table.rows[0].values == ("100 ±10%", "unsupported", "400 ±10%")
    assert table.notes == ("unsupported: This program holds one request at a time.",)


def _evidence(run: Run) -> Evidence:
    return Evidence(*run.parts)


def test_sustained_tells_when_it_slowed_down() -> None:
    sustained = {
        "start_ms": 10.0,
        "equilibrium_ms": interval(12.0),
        "slowdown": 1.2,
        "throttled_after_s": 93.2,
        "slots": 300,
        "start_celsius": None,
    }
    (table,) = block_tables(
        _evidence(run_with(block("sustained", sustained=sustained, seconds=300.0)))
    )
    assert table.title == "Sustained for 300 s, alone: ms"
    assert table.rows[0].values == ("10.0", "12.0 ±10%", "after 93 s", "–")


def test_the_page_holds_the_same(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, *run_with(PACED).parts, title="t")
    page = path.read_text()
    assert "Requests at 30/s, alone: response ms" in page
    assert "31.4 ±20%" in page and "7 (1.03%)" in page


def test_records_without_blocks_show_nothing(tmp_path: Path) -> None:
    run = Run(PROFILES["quick"])
    run.cell(run.session(), model("m"), "eager", 1, ms=10.0)
    assert block_tables(_evidence(run.summarise())) == []
    write_report(tmp_path / "report.html", *run.parts, title="t")
    assert "Measured alone" not in (tmp_path / "report.html").read_text()
