from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console
from run_fixture import HOSTILE, Run, full_run, model
from study_fixture import Table, study_run

from ngraphbench.profiles import PROFILES
from ngraphbench.report.opening import opening
from ngraphbench.report.progress import RunProgress
from ngraphbench.report.scene import Scene
from ngraphbench.report.terminal import clean, print_run, result_table
from ngraphbench.report.wording import figure


def screen(width: int = 80, *, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=terminal, _environ={})


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def run() -> Run:
    return full_run("quick")


@pytest.mark.parametrize("width", [36, 40, 52])
def test_names_give_way_to_numbers_on_a_narrow_terminal(run: Run, width: int) -> None:
    console = screen(width)
    console.print(result_table(*run.parts))
    text = text_of(console)
    assert max(map(len, text.splitlines())) <= width
    for record in run.records:
        if record["summary"]:
            assert figure(record["summary"]["throughput_per_s"]["estimate"]) in text.split()
    assert text.count("baseline") == 4


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits(run: Run, width: int) -> None:
    console = screen(width)
    console.print(result_table(*run.parts))
    lines = text_of(console).splitlines()
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if "  " in line]
    assert sum("▲" in line for line in rows) >= 5
    assert "crash" in text_of(console)


def test_numbers_are_whole_at_60_columns(run: Run) -> None:
    console = screen(60)
    console.print(result_table(*run.parts))
    row = next(line for line in text_of(console).splitlines() if "openvino" in line)
    number, spread, versus, mark = row.split()[3:7]
    assert "…" not in number + spread + versus
    assert (spread[0], versus[-1], mark) == ("±", "x", "▲")


def test_heads_are_whole_over_short_names() -> None:
    run = Run(PROFILES["quick"])
    run.cell(run.session(), model("m"), "eager", 8, ms=1.0)
    console = screen()
    console.print(result_table(*run.summarise().parts))
    assert {"model", "batch", "compiler", "status"} <= set(text_of(console).split())


def test_wrong_cells_have_no_number(run: Run) -> None:
    console = screen(100)
    console.print(result_table(*run.parts))
    (row,) = (line for line in text_of(console).splitlines() if "wrong values" in line)
    assert row.split() == ["inductor", "–", "–", "wrong", "values"]


def test_a_run_is_told_whole(run: Run) -> None:
    console = screen()
    print_run(console, *run.parts)
    text = " ".join(text_of(console).split())
    assert text.startswith("efficientnet_b0 and deit_tiny_patch16_224 swap places under openvino")
    assert "reversed batch 8, openvino: efficientnet_b0 / deit_tiny_patch16_224" in text
    assert "signal:SIGSEGV: The worker died while it compiled the program." in text
    assert "log: logs/s000000000000000/" in text
    assert PROFILES["quick"].claim in text
    assert "Random weights can hide overflow" in text
    assert "flag interference: something else used the processor" in text
    assert "interference (PSI cpu 22 %)" in text


def test_a_headline_names_no_part_of_what_was_measured_again() -> None:
    table: Table = {
        "conv": {"eager": 10.0, "openvino": 2.0},
        "former": {"eager": 8.0, "openvino": 3.0},
    }
    again = study_run(table, session="s1", run=study_run(table))
    console = screen(100)
    print_run(console, *again.parts)
    head, rest = " ".join(text_of(console).split()).split("model batch", 1)
    assert "conv and former swap places" in head or "former and conv swap places" in head
    assert "part" not in head
    assert "part 2" in rest
    scene = Scene(*again.parts)
    assert [answer.model for answer in scene.newest.answers] == ["conv", "former"]
    flags = [{"flag": "untrusted", "detail": "A/A"}]
    doubted = Scene(*study_run(table, session="s2", flags=flags, run=again).parts)
    assert "1 of 3 failed" in {tile.value for tile in opening(doubted).tiles}
    assert len(scene.answers) == 4 and len(scene.newest.orders) == 1
    assert "in all 2 comparisons (2 models, batch 1)" in opening(scene).lead


def test_foreign_text_is_inert(run: Run) -> None:
    console = screen(terminal=True)
    print_run(console, *run.parts)
    text = text_of(console)
    assert "evil␛[31m[bold]" in text.replace("\n", "")
    assert "\x07" not in text
    assert "\u202e" not in text
    assert HOSTILE in text


def test_no_colour_without_a_terminal(run: Run) -> None:
    console = screen()
    print_run(console, *run.parts)
    assert "\x1b" not in text_of(console)


def test_clean_is_inert_in_markup() -> None:
    console = screen(terminal=True)
    console.print(f"{clean('[bold]x[/bold]' + chr(27) + '[31m')}", highlight=False)
    assert text_of(console) == "[bold]x[/bold]␛[31m\n"


def test_an_untrusted_session_is_said() -> None:
    run = Run()
    session = run.session(flags=[{"flag": "untrusted", "detail": "A/A"}])
    run.cell(session, model("m"), "eager", 1, ms=10.0)
    console = screen()
    print_run(console, *run.summarise().parts)
    assert "untrusted: its baseline differs from itself" in text_of(console)


def test_nothing_measured() -> None:
    console = screen()
    print_run(console, [], [], Run().read)
    assert text_of(console) == "Nothing was measured.\n"


EVENTS = [
    {"event": "waiting", "text": "host lock held by pid 12"},
    {"event": "session", "index": 1, "of": 2, "title": "resnet18\x1b[31m"},
    {"event": "phase", "phase": "compile", "text": "openvino b=8", "done": 3, "of": 16},
    {"event": "case", "label": "inductor b=8", "status": "crashed"},
    {
        "event": "round",
        "epoch": 0,
        "epochs": 3,
        "round": 3,
        "rounds_max": 24,
        "elapsed_s": 2.0,
        "left_s": 300.0,
    },
    {"event": "session", "index": 2, "of": 2, "title": "[bold]vit[/bold]"},
    {"event": "unknown"},
    {},
]


def test_progress_is_drawn_without_a_thread() -> None:
    console = screen(100, terminal=True)
    before = threading.active_count()
    with RunProgress(console) as progress:
        for event in EVENTS:
            progress.feed(event)
            assert threading.active_count() == before
    text = text_of(console)
    for part in ("session 1/2", "3/16 openvino b=8", "launch 1/3, round 3/24", "crashed"):
        assert part in text
    assert "at most 15 min left" in text
    assert "host lock held by pid 12" in text
    assert "resnet18␛[31m" in text
    assert "[bold]vit[/bold]" in text


def test_progress_moves_only_when_fed() -> None:
    console = screen(100, terminal=True)
    progress = RunProgress(console)
    progress.feed(EVENTS[1])
    drawn = text_of(console)
    assert text_of(console) == drawn
    progress.close()
    progress.close()


def test_without_a_terminal_only_waits_and_notes_are_told() -> None:
    console = screen()
    with RunProgress(console) as progress:
        for event in EVENTS:
            progress.feed(event)
    (line,) = text_of(console).splitlines()
    assert "host lock held by pid 12" in line


def test_a_shared_failure_is_told_once_with_its_hint(run: Run) -> None:
    group = [r for r in run.records if r["case"]["batch"] == 8][:2]
    group = [r for r in group if r["case"]["model"] == group[0]["case"]["model"]]
    for record in group:
        record |= {"status": "unsupported", "reason": "batch-fixed", "message": "Fixed to 1."}
        record["stage"], record["detail"] = "export", {"hint": "Use -b 1."}
        record["summary"] = record["measurement"] = None
    console = screen(80)
    print_run(console, *run.parts)
    text = text_of(console)
    assert len(group) == 2 and text.count("batch-fixed: Fixed to 1.") == 1
    assert text.count("Use -b 1.") == 1
    assert ", ".join(record["label"] for record in group) in " ".join(text.split())


def test_each_of_several_devices_has_a_line_of_its_own() -> None:
    console = screen(100, terminal=True)
    with RunProgress(console) as progress:
        for device in ("orin-1", "pi-2"):
            place = {"device": device}
            progress.feed({"event": "session", "index": 2, "of": 8, "title": "vit", **place})
            progress.feed({"event": "round", "round": 3, "rounds_max": 24, **place})
            progress.feed({"event": "note", "text": f"news of {device}", **place})
    text = text_of(console)
    for device in ("orin-1", "pi-2"):
        assert device in text
        assert f"news of {device}" in text
    assert "session 2/8, measure: round 3/24" in text
