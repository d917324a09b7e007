from __future__ import annotations

import io
import json

from curve_fixture import batch_run, depth_run
from rich.console import Console
from run_fixture import Run, full_run, model

from ngraphbench.analysis.metrics import Metrics, metrics
from ngraphbench.analysis.scaling import TRAP
from ngraphbench.report.metrics import print_metrics


def printed(run: Run, width: int = 120) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    print_metrics(console, found(run))
    return " ".join(console.export_text().split())


def found(run: Run) -> Metrics:
    return metrics(*run.parts)


def test_the_trap_stands_beside_the_three() -> None:
    text = printed(batch_run({"eager": {1: 9.0, 8: 20.0}, "openvino": {1: 2.0, 8: 9.0}}))
    assert TRAP in text
    assert "published, second-hand" in text
    assert "this project's reading" in text
    assert "b/L /s" in text


def test_a_whole_run_at_any_width() -> None:
    run = full_run()
    for width in (40, 80, 200):
        text = printed(run, width)
        assert "\x1b" not in text
    assert "Kendall tau_b" in text
    assert "crashed" in text
    assert "1 of 2 batch sizes" in text
    # One of the two is reversed at batch 8; there is no control.
    assert "reversed; there is no control" in text


def test_everything_is_json() -> None:
    run = full_run()
    text = json.dumps(found(run).to_json(), allow_nan=False)
    data = json.loads(text)
    assert data["about"]["trap"] == TRAP
    scaling = next(one for one in data["scaling"] if one["label"] == "openvino")
    assert set(scaling["rows"][1]["ase"]) == {"estimate", "low", "high", "confidence"}
    assert {one["start"] for one in data["break_even"]} == {"cold", "warm"}


def test_depth_is_shown_with_its_mechanism() -> None:
    times = {
        "eager": {1: 6.0, 2: 10.0, 4: 18.0},
        "openvino": {1: 3.0, 2: 4.0, 4: 6.0},
    }
    text = printed(depth_run(times))
    assert "block:vit?resolution=56&width=64" in text
    assert "3 of 3 depths" in text
    assert "an overhead spread over more blocks" in text


def test_what_is_open_says_what_would_settle_it() -> None:
    run = Run(noise=0.08)
    session = run.session()
    for name, base, mine in (("A", 127.0, 60.0), ("B", 90.0, 61.5)):
        run.cell(session, model(name), "eager", 8, ms=base)
        run.cell(session, model(name), "openvino", 8, ms=mine)
    text = printed(run.summarise())
    assert "would settle it" in text


def test_an_untrusted_session_is_said_first() -> None:
    run = full_run()
    run.sessions[0]["flags"] = [{"flag": "untrusted", "detail": ""}]
    assert printed(run).startswith("A session failed its A/A control")


def test_nothing_measured_prints_nothing_wrong() -> None:
    run = Run()
    run.cell(run.session(), model("net"), "eager", 1, status="crashed")
    assert "1 of 1" not in printed(run)
    assert found(Run()).scaling == ()
