"""One record whose every text is hostile, in all that is written or printed of a run."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console
from run_fixture import ESCAPES, HOSTILE, Run, model

from ngraphbench.analysis.metrics import metrics
from ngraphbench.analysis.pairing import Side
from ngraphbench.analysis.regressions import RunComparison
from ngraphbench.analysis.tables import Cell, Evidence
from ngraphbench.cli.printing import print_lines, print_table
from ngraphbench.comparing import compare_sides
from ngraphbench.report.comparison import markdown, print_comparison
from ngraphbench.report.figures import chart_csv, chart_svg
from ngraphbench.report.gallery import charts
from ngraphbench.report.html import write_overview, write_report
from ngraphbench.report.metrics import print_metrics
from ngraphbench.report.notebook import run_html
from ngraphbench.report.scene import Scene
from ngraphbench.report.terminal import print_run
from ngraphbench.runs import Run as Stored
from ngraphbench.spec import load_experiment
from ngraphbench.studies.delivery import deliver
from ngraphbench.studies.refinement import Wanted, refine, write_refinement

FORMULA = "=cmd|' /C calc'!A0"
EVIL = f"{ESCAPES}\x9b2J\r\n{HOSTILE}|`x` @all #1 ![x](http://x) \u2028{{{{7*7}}}} {FORMULA}"
ACTS = {"\x1b", "\x07", "\x9b", "\u202e", "\u2028", "\r"}
"""What would act on a screen, or break a line of a file."""


@pytest.fixture(scope="module")
def run() -> Run:
    """A run in which whatever a device, a file or a vendor may name is hostile."""
    run = Run(rounds=6)
    session = run.session(flags=[{"flag": "interference", "detail": EVIL}])
    run.sessions[0]["host"] = {**run.sessions[0]["host"], "cpu_model": EVIL, EVIL: EVIL}
    for name, size in ((EVIL, 4.0), (FORMULA, 5.0)):
        for batch in (1, 8):
            for text, factor in (("eager", 1.0), (f"bad:{EVIL}=1", 0.5)):
                run.cell(session, model(name), text, batch, ms=size * batch**0.8 * factor,
                         shapes={EVIL: ["batch", 3]})  # fmt: skip
    run.cell(session, model(EVIL), "openvino", 8, status="failed", stage=EVIL, reason=EVIL,
             message=EVIL, detail={"hint": EVIL})  # fmt: skip
    for record in run.records:
        record |= {"command": f"ngb bench x; touch PWNED; echo '{EVIL}'", "log": "javascript:x()"}
        record["flags"] = [{"flag": "interference", "detail": EVIL}]
        record["coverage"] = {EVIL: {EVIL: 3}}
        record["environment"] = {"python": EVIL, "compiler_version": EVIL, "lock": EVIL,
                                 "packages": {EVIL: EVIL}, "variables": {EVIL: EVIL}}  # fmt: skip
        if record["verification"]:
            record["verification"] = {**record["verification"], "notes": [EVIL], "reference": EVIL}
    return run.summarise()


def _screen(tell: Callable[[Console], None]) -> str:
    console = Console(file=io.StringIO(), width=300, _environ={})
    tell(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().replace("\n", "")


def _compared(run: Run) -> RunComparison:
    sides = Side(Evidence(*run.parts)), Side(Evidence(*run.parts))
    return compare_sides(*sides, threshold=0.03)


def _page(run: Run, folder: Path) -> str:
    write_report(folder / "page.html", *run.parts, title=EVIL)
    return (folder / "page.html").read_text(encoding="utf-8")


def _summed(run: Run, folder: Path) -> str:
    write_overview(folder / "page.html", [*run.records, *run.sessions], title=EVIL)
    return (folder / "page.html").read_text(encoding="utf-8")


def _tables(run: Run, folder: Path) -> str:
    lines = [json.dumps(record) for record in [*run.records, *run.sessions]]
    (folder / "journal.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    cells, _ = Stored.open(folder).export(folder / "tables")
    return cells.read_bytes().decode("utf-8").replace("\r\n", "\n")


def _svg(run: Run, _: Path) -> str:
    return "".join(chart_svg(chart) for chart in charts(Scene(*run.parts)).values())


def _values(run: Run, _: Path) -> str:
    return "".join(chart_csv(chart) for chart in charts(Scene(*run.parts)).values())


OUTPUTS: dict[str, Callable[[Run, Path], str]] = {
    "page": _page,
    "summed page": _summed,
    "notebook": lambda run, _: run_html(Scene(*run.parts), title=EVIL),
    "figures": _svg,
    "figures' values": _values,
    "tables": _tables,
    "terminal": lambda run, _: _screen(lambda console: print_run(console, *run.parts)),
    "metrics": lambda run, _: _screen(lambda c: print_metrics(c, metrics(*run.parts))),
    "comparison": lambda run, _: _screen(lambda c: print_comparison(c, _compared(run), [EVIL])),
    "markdown": lambda run, _: markdown(_compared(run)),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_nothing_acts(run: Run, tmp_path: Path, name: str) -> None:
    text = OUTPUTS[name](run, tmp_path)
    assert not ACTS & set(text)
    assert "evil␛[31m" in text or "evil␛&#91;31m" in text
    if name in ("page", "summed page", "notebook", "figures", "markdown"):
        assert "<img src=x" not in text
    if name in ("tables", "figures' values"):
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "@", "\t", "\r"))]
        assert f"'{FORMULA}" in {cell.partition(" [")[0] for cell in cells}
    if name == "markdown":
        assert not [act for act in ("@all", " #1", "![x]", "`x`") if act in text]


def test_each_figure_is_xml(run: Run) -> None:
    for chart in charts(Scene(*run.parts)).values():
        root = ElementTree.fromstring(chart_svg(chart))
        names = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert names <= {"svg", "title", "style", "defs", "path", "rect", "text", "g", "use"}


def test_the_next_experiment_can_be_read(run: Run, tmp_path: Path) -> None:
    cells = tuple(Cell(record) for record in run.records if record["label"] == "eager")
    sessions = {session["session_id"]: session for session in run.sessions}
    found = refine([Wanted(cells, EVIL)], sessions, name="next")
    path = write_refinement(tmp_path, found)
    assert path is not None
    assert not ACTS & set(path.read_text(encoding="utf-8"))
    assert [entry.label for entry in load_experiment(path).models] == [EVIL, FORMULA]


def test_the_script_runs_one_command_of_ours(run: Run, tmp_path: Path) -> None:
    record = run.records[0]
    script = deliver(tmp_path, record, base=str(tmp_path), baseline=EVIL).script
    assert script is not None
    head = script.read_text(encoding="utf-8").partition("cd ")[0]
    assert not ACTS & set(head)
    (tmp_path / "ngb").write_text('#!/bin/sh\nprintf "%s\\0" "$@" > told\n')
    (tmp_path / "ngb").chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin"}
    subprocess.run([script], env=path, check=True)
    told = (tmp_path / "told").read_bytes().decode().split("\0")[:-1]
    assert told[:4] == ["bench", "x;", "touch", "PWNED;"]
    assert told[-2:] == ["--baseline", EVIL]
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("command", ["rm -rf x", "", "ngb bench 'x", "sh -c x"])
def test_a_command_that_is_not_ours_is_no_script(run: Run, tmp_path: Path, command: str) -> None:
    found = deliver(tmp_path, {**run.records[0], "command": command}, base="/", baseline="eager")
    assert found.script is None
    assert "no `ngb bench`" in found.lack
    assert list(tmp_path.iterdir()) == []


def test_what_studies_print_is_inert(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines([EVIL])
    print_table(("a",), [(EVIL,)])
    told = capsys.readouterr().out
    assert not ACTS & set(told)
    assert told.count("evil␛[31m") == 2
