from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_fixture import HOSTILE, Run, full_run, model

from benchmarks.report import write_run
from ngraphbench.report import html
from ngraphbench.report.html import write_overview, write_page
from ngraphbench.report.overview import Overview, count_table, overview, spread_chart
from ngraphbench.store.schema import load_schema


def summed(run: Run) -> Overview:
    return overview([*run.records, *run.sessions])


def test_outcomes_count_every_cell_once() -> None:
    found = summed(full_run())
    counts = {label: {n: c for n, c, _ in parts} for label, parts in found.outcomes()}
    assert counts["inductor"] == {"faster": 1, "no result": 3}
    assert counts["eager"] == {"baseline": 4}
    assert sum(sum(by.values()) for by in counts.values()) == len(full_run().records)


def test_who_leads_is_told_from_recorded_intervals() -> None:
    leaders, places = summed(full_run()).leaders()
    assert places == 5
    assert leaders == {"openvino": 3, "onnxruntime": 2}


def test_a_cell_that_was_retried_counts_as_it_ended() -> None:
    run = Run()
    for name, status in (("a", "crashed"), ("b", "ok")):
        session = run.session(name)
        run.cell(session, model("m"), "eager", 1, ms=4.0)
        run.cell(session, model("m"), "openvino", 1, ms=2.0 if status == "ok" else None,
                 status=status)  # fmt: skip
    found = summed(run.summarise())
    assert [e.status for e in found.entries if e.compiler == "openvino"] == ["ok"]


def test_medians_over_models_are_of_recorded_speedups() -> None:
    run = full_run()
    chart = spread_chart(summed(run))
    assert chart is not None
    ratios = [
        r["summary"]["vs_baseline"]["estimate"]
        for r in run.records
        if r["label"] == "openvino" and r["case"]["batch"] == 8
    ]
    (mark,) = (m for m in chart.panels[0].marks if m.tip.startswith("openvino, batch 8"))
    assert mark.x == pytest.approx(sum(ratios) / 2)
    labels, rows = count_table(summed(run))
    (row,) = (values for title, _, values in rows if title == "efficientnet_b0")
    assert row[labels.index("inductor")].startswith("1/2 · ")


def test_the_page_is_chosen_by_the_number_of_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = full_run()
    path = tmp_path / "report.html"
    everything = [*run.sessions, *run.records]
    write_page(path, everything, run.read, title="t")
    assert "one by one" not in path.read_text(encoding="utf-8")
    monkeypatch.setattr(html, "ONE_BY_ONE", len(run.records) - 1)
    write_page(path, everything, run.read, title="t")
    assert "too many to show one by one" in path.read_text(encoding="utf-8")


def test_hostile_names_are_text_in_the_summed_page_too(tmp_path: Path) -> None:
    run = full_run()
    path = tmp_path / "report.html"
    write_overview(path, [*run.records, *run.sessions], title=HOSTILE)
    text = path.read_text(encoding="utf-8")
    assert "<img" not in text
    assert "&lt;img src=x" in text
    assert text.count("<script") == 1
    assert "\x1b" not in text


def test_the_constructed_runs_are_as_the_schema_says(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    write_run(tmp_path / "run", 25, launches=0)
    lines = (tmp_path / "run" / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 26
    for line in lines[:-1]:
        jsonschema.validate(json.loads(line), load_schema())
