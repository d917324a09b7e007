from __future__ import annotations

import csv
import html
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from run_fixture import full_run

from ngraphbench.api import Run
from ngraphbench.cli.app import run
from ngraphbench.errors import Unavailable
from ngraphbench.store import export
from ngraphbench.store.export import CELL_COLUMNS, SLOT_COLUMNS
from ngraphbench.store.samples import append_samples

DOCS = Path(__file__).parents[2] / "docs" / "data.md"


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A run directory with a few cells and their samples."""
    run = full_run("quick")
    lines = [json.dumps(record) for record in [*run.records, *run.sessions]]
    (tmp_path / "journal.jsonl").write_text("\n".join(lines) + "\n")
    for path, samples in run.samples.items():
        rows = [
            {
                **{name: column[i] for name, column in samples.items()},
                "mode": "sync",
                "sub_ns": [1.0, 2.5],
            }
            for i in range(len(samples["call_ns"]))
        ]
        append_samples(tmp_path / path, rows)
    return tmp_path


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_cells_and_slots_as_csv(stored: Path, tmp_path: Path) -> None:
    cells, slots = Run.open(stored).export(tmp_path / "out")
    rows, records = table(cells), full_run("quick").records
    assert len(rows) == len(records)
    assert [tuple(row) for row in rows] == [CELL_COLUMNS] * len(rows)
    first, record = rows[0], records[0]
    assert first["case_id"] == record["case_id"]
    assert float(first["latency_ms"]) == record["summary"]["latency_ms"]["estimate"]
    assert float(first["compile_cold_s"]) == 4.2
    crashed = next(row for row in rows if row["status"] == "crashed")
    assert crashed["latency_ms"] == crashed["compile_cold_s"] == crashed["samples"] == ""
    found = table(slots)
    assert tuple(found[0]) == SLOT_COLUMNS
    measured = [record for record in records if record["measurement"]]
    assert len(found) == 12 * len(measured)
    assert {row["case_id"] for row in found} == {record["case_id"] for record in measured}
    assert (found[0]["mode"], found[0]["sub_ns"]) == ("sync", "1.0;2.5")


def test_lost_and_torn_samples_are_left_out(stored: Path, tmp_path: Path) -> None:
    files = sorted((stored / "samples").rglob("*.csv"))
    files[0].unlink()
    with files[1].open("a") as file:
        file.write("0,99,0,sy")
    with files[2].open("a") as file:
        file.write("0,99,0," + "x" * 200_000 + "\n0,99\r,0,sy\n")
    _, slots = Run.open(stored).export(tmp_path / "out")
    assert len(table(slots)) == 12 * (len(files) - 1)


def test_hostile_text_is_inert_in_csv_and_as_it_is_in_parquet(tmp_path: Path) -> None:
    record = full_run("quick").records[0]
    record["case"]["model"]["label"] = "=1+1\x1b[31m"
    record["label"] = "@sum(a1)"
    (tmp_path / "journal.jsonl").write_text(json.dumps(record) + "\n")
    (row,) = table(Run.open(tmp_path).export(tmp_path / "out")[0])
    assert (row["model"], row["compiler"]) == ("'=1+1␛[31m", "'@sum(a1)")
    polars = pytest.importorskip("polars")
    cells, _ = Run.open(tmp_path).export(tmp_path / "out", form="parquet")
    assert polars.read_parquet(cells)["model"].to_list() == ["=1+1\x1b[31m"]


def test_parquet_has_types(stored: Path, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    cells, slots = Run.open(stored).export(tmp_path / "out", form="parquet")
    frame = polars.read_parquet(cells)
    assert tuple(frame.columns) == CELL_COLUMNS
    assert frame["batch"].dtype == polars.Int64
    assert frame["latency_ms"].dtype == polars.Float64
    assert frame.filter(polars.col("status") == "crashed")["latency_ms"].to_list() == [None]
    times = polars.read_parquet(slots)["call_ns"].to_numpy()
    assert np.all(times > 0)
    assert [path.suffix for path in (tmp_path / "out").iterdir()] == [".parquet"] * 2


@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_cells_as_a_table_in_python(stored: Path, kind: str) -> None:
    pytest.importorskip(kind)
    found = Run.open(stored)
    frame = getattr(found, f"to_{kind}")()
    assert tuple(frame.columns) == CELL_COLUMNS
    assert list(frame["compiler"]) == [record["label"] for record in found.records()]
    known = [r["summary"]["latency_ms"]["estimate"] for r in found.records() if r["summary"]]
    column = frame["latency_ms"]
    kept = column.drop_nulls() if kind == "polars" else column.dropna()
    assert list(kept) == known


def test_a_notebook_shows_a_run_and_its_charts(stored: Path) -> None:
    found = Run.open(stored)
    shown = html.unescape(found._repr_html_())
    assert "openvino leads in 3 of 5 comparisons" in shown
    assert "swap places under openvino at batch 8" in shown
    charts = found.charts()
    assert set(charts) >= {"speedup", "throughput", "order"}
    assert all("data:image/svg+xml;base64," in chart._repr_html_() for chart in charts.values())


def test_without_polars_it_says_what_to_do(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(Unavailable, match="tables"):
        Run.open(stored).export(tmp_path / "out", form="parquet")
    assert not (tmp_path / "out").exists()


def test_every_column_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    named = set(re.findall(r"\w+", " ".join(re.findall(r"^\| ([\w, ]+) \|", text, re.M))))
    ends = {column for column in CELL_COLUMNS if column.endswith(("_low", "_high"))}
    missing = [column for column in (*CELL_COLUMNS, *SLOT_COLUMNS) if column not in named | ends]
    assert missing == []


def test_every_column_has_a_type() -> None:
    polars = pytest.importorskip("polars")
    text = {c for c in CELL_COLUMNS if export._type(polars, c) == polars.String}
    assert "model" in text
    assert "latency_ms" not in text


def test_on_the_command_line(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(["show", str(stored), "--csv", str(out)]) == 1  # a cell crashed
    assert capsys.readouterr().out.split() == [str(out / "cells.csv"), str(out / "slots.csv")]
    for name in ("csv", "parquet"):
        assert run(["show", str(stored), f"--{name}", str(tmp_path / f"cells.{name}")]) == 2
        assert f"Give a folder: --{name} {tmp_path / 'cells'}." in capsys.readouterr().err
        assert not (tmp_path / f"cells.{name}").exists()
    run(["show", str(stored), "--metrics", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {one["label"] for one in found["scaling"]} >= {"eager", "openvino", "inductor"}
    run(["show", str(stored), "--metrics"])
    assert "Never rank on them without T" in " ".join(capsys.readouterr().out.split())
    run(["reversals", str(stored), "--json"])
    orders = json.loads(capsys.readouterr().out)
    assert {one["order"]["verdict"] for one in orders} >= {"reversed"}
    run(["reversals", str(stored)])
    assert "swap places" in " ".join(capsys.readouterr().out.split())
