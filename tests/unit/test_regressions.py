"""Two runs compared: what is declared, what is refused, and what each form of output says."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_fixture import ESCAPES, HOSTILE, Run, full_run, model
from stored_runs import TIMES, measured_run, slower, stored

from ngraphbench import comparing
from ngraphbench.analysis.pairing import Side
from ngraphbench.analysis.regressions import RunComparison, compare_runs
from ngraphbench.analysis.tables import Evidence
from ngraphbench.cli.app import run as ngb
from ngraphbench.errors import SpecError, StoreError
from ngraphbench.profiles import PROFILES
from ngraphbench.report.bars import span
from ngraphbench.report.comparison import markdown, print_comparison
from ngraphbench.store.snapshot import write_snapshot
from ngraphbench.types import Json


def side(run: Run) -> Side:
    return Side(Evidence(*run.parts))


def compared(before: Run, after: Run, **options: Any) -> RunComparison:
    return compare_runs(side(before), side(after), **options)


def verdicts(found: RunComparison) -> dict[str, str]:
    return {change.label: change.verdict for change in found.changes}


def test_a_slow_down_is_a_regression_and_nobody_else_is_blamed() -> None:
    found = compared(measured_run(), slower(0.08))
    assert [change.label for change in found.regressions] == ["openvino"]
    (change,) = found.regressions
    assert change.speed is not None
    assert change.speed.low < 1 / 1.08 < change.speed.high < 1
    assert verdicts(found)["eager"] == "reference"
    assert found.headline.startswith("1 regression: m b=8 openvino is ")


def test_a_slow_down_below_the_threshold_is_told_and_no_regression() -> None:
    found = compared(measured_run(), slower(0.08), threshold=0.10)
    assert verdicts(found)["openvino"] == "slower"
    assert found.regressions == []


def test_a_run_against_its_repeat_declares_nothing() -> None:
    found = compared(measured_run(), measured_run(seed=1))
    assert found.regressions == []
    assert set(verdicts(found).values()) <= {"tie", "unresolved", "reference"}


def test_what_slows_all_alike_cancels() -> None:
    after = measured_run(times={name: 1.5 * ms for name, ms in TIMES.items()}, seed=1)
    assert compared(measured_run(), after).regressions == []


def test_more_cells_need_more_evidence() -> None:
    many = {**TIMES, **{f"c{i}": 4.0 for i in range(9)}}
    times = {**many, "openvino": TIMES["openvino"] * 1.08}
    alone = compared(measured_run(), slower(0.08))
    among = compared(measured_run(times=many), measured_run(times=times, seed=1))
    levels = [
        next(c.speed.confidence for c in found.changes if c.label == "openvino" and c.speed)
        for found in (alone, among)
    ]
    assert levels[0] == pytest.approx(1 - 0.05 / 2)
    assert levels[1] == pytest.approx(1 - 0.05 / 11)


def test_the_launch_term_of_both_runs_is_in_the_interval() -> None:
    one = compared(measured_run(), slower(0.0))
    after = slower(0.0)
    # One launch says nothing of how launches differ, so the belief of 1 % stands.
    for run in (before := measured_run(), after):
        for path, samples in run.samples.items():
            first = samples["epoch"] == 0
            run.samples[path] = {name: column[first] for name, column in samples.items()}
    single = compared(before, after)
    widths = [
        next(math.log(c.speed.high / c.speed.low) for c in found.changes if c.speed)
        for found in (one, single)
    ]
    assert widths[1] > 2 * widths[0]


@pytest.mark.parametrize("status", ["wrong", "crashed", "unavailable", "timeout"])
def test_a_cell_that_stopped_working_is_a_regression(status: str) -> None:
    after = measured_run(seed=1)
    after.records[1] |= {"status": status, "summary": None, "measurement": None}
    found = compared(measured_run(), after)
    (change,) = found.regressions
    assert (change.label, change.verdict, change.reason) == ("onnxruntime", "stopped", status)
    assert f"was ok and is {status}" in found.headline


def test_only_partly_compiled_is_a_regression() -> None:
    after = measured_run(seed=1)
    after.records[1]["flags"] = [{"flag": "partly-compiled", "detail": "38 % fell back"}]
    assert [c.reason for c in compared(measured_run(), after).regressions] == ["partly compiled"]


def test_failures_before_and_after_are_no_regression() -> None:
    runs = measured_run(), measured_run(seed=1)
    for run in runs:
        run.records[1] |= {"status": "crashed", "summary": None, "measurement": None}
    assert compared(*runs).regressions == []


def test_cells_of_one_run_alone_are_told() -> None:
    fewer = {name: TIMES[name] for name in ("eager", "openvino")}
    found = compared(measured_run(), measured_run(times={**fewer, "tvm": 3.0}, seed=1))
    assert (found.gone, found.new) == (("m b=8 onnxruntime",), ("m b=8 tvm",))


def test_no_session_that_failed_its_control_is_judged() -> None:
    after = slower(0.2, flags=[{"flag": "untrusted", "detail": "A/A"}])
    found = compared(measured_run(), after)
    assert found.regressions == []
    assert verdicts(found)["openvino"] == "unresolved"


def _differing(after: Run) -> list[str]:
    return [one.what for one in compared(measured_run(), after).forbidding]


def test_what_differs_is_named() -> None:
    host = {**measured_run().sessions[0]["host"], "cpu_model": "Another"}
    assert _differing(measured_run(host=host)) == ["host cpu_model"]
    assert _differing(measured_run(mode="queued")) == ["mode"]
    assert _differing(measured_run(conditions={"best": True})) == ["method"]
    other = measured_run()
    for record in other.records:
        record["case"]["model"]["content"] = "other"
        record["case"]["device"]["threads"] = 1
    assert _differing(other) == ["model bytes", "threads"]
    options = measured_run()
    options.records[1]["case"]["compiler"]["options"] = {"level": "basic"}
    assert _differing(options) == ["compiler options"]
    shorter = Run(PROFILES["quick"])
    shorter.cell(shorter.session(), model("m"), "eager", 8, ms=1.0)
    assert _differing(shorter.summarise()) == ["profile"]


def test_another_version_is_what_is_compared_but_not_of_the_reference() -> None:
    after = measured_run(seed=1)
    after.records[1]["environment"]["compiler_version"] = "1.3.0"
    found = compared(measured_run(), after)
    assert [(one.what, one.forbids) for one in found.differences] == [("version", False)]
    after.records[0]["environment"]["compiler_version"] = "1.3.0"
    assert _differing(after) == ["version of the reference"]


def test_pinned_versions_are_the_same_cell() -> None:
    runs = measured_run(), measured_run(seed=1)
    for run, version in zip(runs, ("1.0", "1.1"), strict=True):
        run.records[1]["case"]["compiler"]["version"] = version
        run.records[1]["label"] = f"onnxruntime@{version}"
    found = compared(*runs)
    assert "onnxruntime@1.0 -> onnxruntime@1.1" in verdicts(found)
    assert not found.gone


def test_another_reference_can_be_named() -> None:
    found = compared(measured_run(), slower(0.08), reference="onnxruntime")
    assert {change.reference for change in found.changes if change.speed} == {"onnxruntime"}
    assert [change.label for change in found.regressions] == ["openvino"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("runs")
    before, after = measured_run(), slower(0.08)
    return stored(before, place / "before"), stored(after, place / "after")


def test_a_snapshot_says_what_its_run_says(folders: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = folders
    snapshot = comparing.save_snapshot(before, tmp_path / "deep" / "baseline.json")
    whole = comparing.compare(before, after).to_json()
    trimmed = comparing.compare(snapshot, after).to_json()
    assert json.dumps(_rounded(whole)) == json.dumps(_rounded(trimmed))
    assert str(before) not in snapshot.read_text()


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return round(value, 4) if isinstance(value, float) else value


def test_a_snapshot_names_no_file_of_this_machine(tmp_path: Path) -> None:
    run = measured_run(rounds=4)
    for record in run.records:
        record["case"]["model"] |= {"path": "/home/me/m.onnx", "checkpoint": "/home/me/w.pt"}
        record["command"] = "ngb bench /home/me/m.onnx"
    current = [(r["session_id"], r["case_id"]) for r in run.records]
    path = write_snapshot(tmp_path / "s.json", *run.parts, current=current)
    assert "/home/me" not in path.read_text()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "ngraphbench-snapshot", "version": 1}'])
def test_what_is_no_snapshot_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(StoreError, match=re.escape("s.json")):
        comparing.open_side(tmp_path / "s.json")


def test_a_snapshot_of_a_later_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"kind": "ngraphbench-snapshot", "version": 2}')
    with pytest.raises(StoreError, match="version 2"):
        comparing.open_side(tmp_path / "s.json")


def test_exit_codes(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before, after = map(str, folders)
    assert ngb(["compare", before, after]) == 4
    assert "regression" in capsys.readouterr().out
    assert ngb(["compare", before, after, "--threshold", "20"]) == 0
    assert ngb(["compare", before, before]) == 0
    assert ngb(["compare", before, after, "--json"]) == 4
    capsys.readouterr()
    assert ngb(["compare", before, after, "--json", "--threshold", "20"]) == 0
    assert json.loads(capsys.readouterr().out)["regression"] is False
    assert ngb(["compare", before]) == 2
    assert ngb(["compare", before, str(tmp_path / "nowhere")]) == 2
    assert ngb(["compare", before, after, "--threshold", "-1"]) == 2
    assert ngb(["compare", before, after, "--reference", "nobody"]) == 2


def test_unlike_runs_are_refused_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stored(measured_run(rounds=4), tmp_path / "a")
    host = {**measured_run(rounds=4).sessions[0]["host"], "cpu_model": "Another"}
    after = stored(measured_run(rounds=4, seed=1, host=host), tmp_path / "b")
    with pytest.raises(SpecError, match="host cpu_model: Example CPU"):
        comparing.compare(before, after)
    assert ngb(["compare", str(before), str(after)]) == 2
    capsys.readouterr()
    assert ngb(["compare", str(before), str(after), "--force"]) == 0
    told = capsys.readouterr().out
    assert "not alike" in told
    assert "Another after" in " ".join(told.split())


def test_what_disturbed_either_run_is_told() -> None:
    flags = [
        {"flag": "interference", "detail": f"tasks waited {HOSTILE}"},
        {"flag": "parted", "detail": "into two"},
    ]
    found = compared(measured_run(), slower(0.08, flags=flags))
    assert found.disturbed == (f"after: interference (tasks waited {HOSTILE})",)
    assert found.to_json()["disturbed"] == list(found.disturbed)
    told = " ".join(_screen(found, 80).split())
    assert "Disturbed after: interference (tasks waited" in told
    assert "measure both runs again on a quiet machine" in told
    assert "**Disturbed**" in (text := markdown(found))
    assert HOSTILE not in text
    quiet = compared(measured_run(), slower(0.08))
    assert quiet.disturbed == ()
    assert "Disturbed" not in _screen(quiet, 80) + markdown(quiet)


def test_where_there_is_neither_a_run_nor_a_stored_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="neither a run directory nor a stored run"):
        comparing.open_side(tmp_path / "baseline.json")


def test_both_versions_are_offered_side_by_side() -> None:
    runs = measured_run(), measured_run(seed=1)
    for run, version in zip(runs, ("1.31.1", "1.32.0"), strict=True):
        environment = run.records[1]["environment"]
        environment |= {
            "compiler_version": version,
            "packages": {"onnxruntime": version, "numpy": "2.1.0"},
        }
    (command,) = comparing.paired_commands(*map(side, runs))
    assert command == (
        "ngb bench timm:m -c onnxruntime@1.31.1 -c onnxruntime@1.32.0 -b 8 --profile default"
    )


def _screen(found: RunComparison, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, _environ={})
    print_comparison(console, found, ["ngb bench x -c a@1 -c a@2"])
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_fits_the_terminal(width: int) -> None:
    text = _screen(compared(measured_run(), slower(0.08)), width)
    assert max(map(len, text.splitlines())) <= width
    assert "●" in text
    assert "regression" in text


def _hostile() -> RunComparison:
    runs = full_run("default"), full_run("default")
    for record in runs[1].records:
        if record["status"] == "failed":
            record["status"] = "crashed"
    other: Json = {**runs[1].sessions[0]["host"], "cpu_model": f"{HOSTILE}|{ESCAPES} @someone #1"}
    runs[1].sessions[0]["host"] = other
    return compared(*runs)


def test_foreign_text_is_inert_on_a_terminal() -> None:
    text = _screen(_hostile(), 200)
    assert "␛[31m[bold]" in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)


def test_foreign_text_is_inert_in_markdown() -> None:
    text = markdown(_hostile(), ["ngb bench `x` </details>"])
    assert "<img" not in text
    assert "@someone" not in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {9}
    # The command is shown in a code span that its own backquotes do not close.
    assert "- `` ngb bench `x` </details> ``" in text


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        ((0.5, 0.7, 1.0), "──●─│    "),
        ((0.9, 1.0, 1.1), "   ─●─   "),
        ((0.1, 0.3, 9.0), "●───┼───›"),
        ((1.5, 9.0, 9.0), "    │ ──●"),
    ],
)
def test_intervals_stay_in_their_place(ends: tuple[float, float, float], shown: str) -> None:
    low, estimate, high = ends
    assert span(low, estimate, high, reach=2.0, width=9) == shown
