"""The tables of docs/studies are those of the measured cells beside them, to the digit."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from ngraphbench.analysis.tables import Interval

STUDIES = Path(__file__).parents[2] / "docs" / "studies"
COMPILERS = ("onnxruntime", "openvino", "inductor", "iree:preset=recommended")
SIGNS = {"faster": "", "slower": "", "tie": " =", "unresolved": " ?"}

Row = dict[str, str]


def rows(name: str) -> list[Row]:
    with (STUDIES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def interval(row: Row, column: str) -> Interval:
    ends = (float(row[name]) for name in (column, f"{column}_low", f"{column}_high"))
    return Interval(*ends, 0.9)


def speedup(row: Row) -> str:
    """Return a cell's speed-up as the page has it; a word where it has none."""
    if row["verdict"].startswith("unstable"):
        return "unstable"
    if not row["vs_baseline"]:
        return row["status"]
    found = interval(row, "vs_baseline")
    return f"{found.times} ({found.range}){SIGNS[row['verdict']]}"


def design_lines() -> list[str]:
    """Return the table of the design study: a line for each model and batch size."""
    newest = {(row["model"], int(row["batch"]), row["compiler"]): row for row in rows("design")}
    places = dict.fromkeys((model, batch) for model, batch, _ in newest)
    lines = []
    for model, batch in sorted(places, key=lambda place: [m for m, _ in places].index(place[0])):
        base = newest[model, batch, "eager"]
        steady = base["status"] == "ok"
        rate = f"{float(base['throughput_per_s']):.3g}" if steady else base["status"]
        told = [speedup(newest[model, batch, label]) for label in COMPILERS]
        lines.append(f"| {' | '.join([model, str(batch), rate, *told])} |")
    return lines


def develop_lines() -> list[str]:
    """Return the table of the development study: speed-ups at the least and greatest depth."""
    newest: dict[tuple[str, int, str], Row] = {}
    for row in rows("develop"):
        family, _, query = row["model"].partition("?")
        newest[family, int(query.partition("&")[0].removeprefix("depth=")), row["compiler"]] = row
    lines = []
    for family in dict.fromkeys(name for name, _, _ in newest):
        depths = sorted({depth for name, depth, _ in newest if name == family})
        told = [
            " → ".join(speedup(newest[family, depth, label]) for depth in (depths[0], depths[-1]))
            for label in COMPILERS
        ]
        lines.append(f"| {family} | {' | '.join(told)} |")
    return lines


def deploy_lines() -> list[str]:
    """Return the table of the deployment study: who was also measured alone at the rate."""
    alone = [row for row in rows("deploy") if row["p99_at_30_ms"]]
    newest = {row["compiler"]: row for row in alone}
    lines = []
    for label, row in sorted(newest.items(), key=lambda one: float(one[1]["p99_at_30_ms"])):
        p99, call = interval(row, "p99_at_30_ms"), interval(row, "latency_ms")
        told = [f"{found.estimate:.1f} ({found.low:.1f}-{found.high:.1f})" for found in (call, p99)]
        lines.append(f"| {label} | {' | '.join(told)} |")
    return lines


TABLES = {"design": design_lines, "develop": develop_lines, "deploy": deploy_lines}


@pytest.mark.parametrize("make", TABLES.values(), ids=list(TABLES))
def test_the_pages_tables_are_of_the_measured_cells(make: Callable[[], list[str]]) -> None:
    page = (STUDIES / "two-core-xeon.md").read_text(encoding="utf-8")
    lines = make()
    assert len(lines) > 1
    missing = [line for line in lines if line not in page]
    assert not missing, "\n".join(missing)


if __name__ == "__main__":
    for make in TABLES.values():
        print("\n".join(make()))
