"""Bars on the terminal, what the display tells meanwhile, and that foreign text does nothing."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from run_fixture import ESCAPES, HOSTILE, Run, full_run, model

from ngraphbench.analysis.metrics import metrics
from ngraphbench.analysis.tables import Evidence
from ngraphbench.cli.app import run as ngb
from ngraphbench.report.bars import bar
from ngraphbench.report.metrics import print_metrics
from ngraphbench.report.pace import Pace, session_left_s
from ngraphbench.report.progress import RunProgress
from ngraphbench.report.rates import RATES_MOST, rate_lines


@pytest.fixture(scope="module")
def run() -> Run:
    return full_run("quick")


def screen(width: int = 100) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True, _environ={})


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_bars_fit(run: Run, width: int) -> None:
    lines = [line.plain for line in rate_lines(Evidence(*run.parts), width=width, indent=2)]
    assert max(map(len, lines)) <= width - 2
    bars = [line for line in lines if "┃" in line]
    ranked = [cell for cell in Evidence(*run.parts).cells if cell.ranked]
    assert len(bars) == len(ranked) > 4


def test_longer_bars_are_faster(run: Run) -> None:
    evidence = Evidence(*run.parts)
    lines = [line.plain for line in rate_lines(evidence, width=80, indent=2)]
    group = evidence.groups[0]
    cells = [cell for cell in group.cells if cell.ranked]
    places = [line.index("┃") for line in lines[1 : 1 + len(cells)]]
    assert places == sorted(places, reverse=True)
    assert places[0] > places[-1]


def test_a_wrong_cell_has_no_bar(run: Run) -> None:
    lines = [line.plain for line in rate_lines(Evidence(*run.parts), width=80, indent=2)]
    at = next(i for i, line in enumerate(lines) if line.startswith("deit") and "batch 1" in line)
    assert not any("inductor" in line for line in lines[at : at + 4])


def test_too_many_bars_are_none() -> None:
    run = Run()
    session = run.session()
    for i in range(RATES_MOST + 1):
        run.cell(session, model("m"), f"c{i}", 1)
        run.records[-1]["summary"] = {
            "throughput_per_s": {"estimate": 1.0, "low": 1.0, "high": 1.0, "confidence": 0.9},
            "vs_baseline": None,
        }
    assert rate_lines(Evidence(*run.parts), width=80, indent=2) == []


@pytest.mark.parametrize(
    ("ends", "shown"),
    [((0.0, 1.0, 9.0), "▒┃▒▒▒▒▒›"), ((8.0, 8.0, 8.0), "███████┃"), ((0.0, 0.0, 0.0), "        ")],
)
def test_a_bar_stays_in_its_place(ends: tuple[float, float, float], shown: str) -> None:
    assert bar(*ends, most=8.0, width=8) == shown


def test_what_is_left_counts_all_launches() -> None:
    event = {"epoch": 0, "epochs": 3, "elapsed_s": 2.0, "left_s": 8.0}
    assert session_left_s(event) == 8.0 + 2 * 10.0
    assert session_left_s({**event, "epoch": 2}) == 8.0
    assert session_left_s({}) is None


def test_pace_is_of_the_sessions_that_were_watched() -> None:
    pace = Pace()
    # A resumed run begins in the middle.
    assert pace.session(4, 10, now_s=100.0) is None
    assert pace.session(6, 10, now_s=160.0) == 30.0 * 5


def test_the_display_tells_who_leads_and_what_is_left(run: Run) -> None:
    console = screen()
    now = iter([0.0, 60.0])
    with RunProgress(console, now_s=lambda: next(now)) as progress:
        progress.feed({"event": "session", "index": 1, "of": 3, "title": "deit"})
        for record in run.records:
            progress.feed({"event": "record", "record": record})
        progress.feed({"event": "session", "index": 2, "of": 3, "title": "vit"})
    text = text_of(console)
    assert "best so far" in text
    assert "efficientnet_b0 b=8: " in text
    # It is wrong, however fast it is.
    assert "deit_tiny_patch16_224 b=1: inductor" not in text
    assert "session 2/3" in text
    assert "about 2 min left" in text


def test_the_display_is_inert(run: Run) -> None:
    console = screen()
    record = {**run.records[0], "label": ESCAPES}
    with RunProgress(console) as progress:
        for word in ("session", "phase", "waiting", "case", "dropped", "note", "stopping"):
            event = {"event": word, "title": ESCAPES, "text": ESCAPES, "label": ESCAPES}
            event |= {"phase": ESCAPES, "status": ESCAPES}
            progress.feed(event)
            progress.feed({**event, "device": ESCAPES})
            progress.feed({"event": "record", "record": record})
        progress.feed({"event": "round", "racing": [ESCAPES], "starters": 1})
        progress.feed({"event": "session"})
    text = text_of(console)
    assert "evil\x1b" not in text
    assert "␛[31m[bold]" in text
    assert not {"\x07", "\u202e"} & set(text)


def test_metrics_are_inert() -> None:
    run = Run()
    session = run.session()
    for text in ("eager", f"bad:{ESCAPES}=1"):
        for batch, ms in ((1, 1.0), (8, 4.0)):
            run.cell(session, model(HOSTILE + ESCAPES), text, batch, ms=ms)
    console = screen(200)
    print_metrics(console, metrics(*run.summarise().parts))
    text = text_of(console)
    assert "evil␛[31m" in text
    assert "evil\x1b" not in text
    assert not {"\x07", "\u202e"} & set(text)


def test_a_table_of_figures_is_inert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.csv"
    path.write_text(f"model,batch,baseline,compiled\n{ESCAPES},1,10,20\nb,1,20,10\n")
    assert ngb(["reversals", str(path)]) == 0
    told = capsys.readouterr().out
    assert "evil␛[31m[bold]" in " ".join(told.split())
    assert not {"\x1b", "\x07", "\u202e"} & set(told)


def test_an_error_message_is_inert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ngb(["show", str(tmp_path / ESCAPES)]) == 2
    assert not {"\x1b", "\x07", "\u202e"} & set(capsys.readouterr().err)
