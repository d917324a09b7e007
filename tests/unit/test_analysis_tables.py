from __future__ import annotations

from typing import Any

import pytest
from run_fixture import Run, full_run, model

from ngraphbench.analysis.tables import Evidence, Interval, join
from ngraphbench.errors import StoreError
from ngraphbench.profiles import PROFILES
from ngraphbench.report.wording import cautions


def test_names_are_listed_as_people_do() -> None:
    assert [join(list(names)) for names in ("", "a", "ab", "abc")] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((2.1, 1.9, 2.3), "2.1x 1.9-2.3"),
        ((1.0367, 1.0350, 1.0384), "1.037x 1.035-1.038"),
        ((250.0, 190.0, 300.0), "250x 190-300"),
        ((0.9, 0.9, 0.9), "0.90x 0.90-0.90"),
        ((1.0, float("-inf"), float("inf")), "1.00x -inf-inf"),
    ],
)
def test_decimals_follow_the_interval(values: tuple[float, float, float], shown: str) -> None:
    interval = Interval(*values, confidence=0.95)
    assert f"{interval.times} {interval.range}" == shown


def test_groups_hold_one_model_and_batch_fastest_first() -> None:
    groups = Evidence(*full_run().parts).groups
    assert [(group.title[:4], group.batch) for group in groups] == [
        ("effi", 1),
        ("effi", 8),
        ("deit", 1),
        ("deit", 8),
        ("<img", 1),
    ]
    assert [cell.label for cell in groups[2].cells] == [
        "onnxruntime",
        "eager",
        "openvino",
        "inductor",
    ]
    assert [cell.label for cell in groups[2].failures] == ["inductor"]


def test_wrong_cells_show_no_number() -> None:
    cells = Evidence(*full_run().parts).cells
    (wrong,) = (cell for cell in cells if cell.status == "wrong")
    assert wrong.throughput is None
    assert wrong.speedup is None
    assert wrong.mark == ""


def test_titles_tell_apart_what_differs() -> None:
    run = Run()
    session = run.session()
    run.cell(session, model("m"), "eager", 1, ms=10.0)
    half = run.cell(session, model("m"), "openvino", 1, ms=10.0)
    half["case"]["precision"] = "fp16"
    other = run.cell(session, model("m"), "inductor", 1, ms=10.0)
    other["case"]["model"]["content"] = "abcd-other"
    titles = [group.title for group in Evidence(*run.parts).groups]
    assert len(set(titles)) == 3
    assert "m~abcd [fp32]" in titles


def test_samples_are_read_once() -> None:
    run = full_run()
    paths: list[str] = []

    def read(path: str) -> Any:
        paths.append(path)
        return run.read(path)

    evidence = Evidence(run.records, run.sessions, read)
    group = evidence.groups[0]
    for cell in group.cells:
        evidence.compare(group.cells[0], cell)
        evidence.compare(cell, group.cells[0])
    assert len(paths) == len(set(paths))


def test_unreadable_samples_compare_to_nothing() -> None:
    run = full_run()

    def read(path: str) -> Any:
        raise StoreError(f"{path} is torn")

    evidence = Evidence(run.records, run.sessions, read)
    first, second, *_ = evidence.groups[0].cells
    assert evidence.compare(first, second) is None


def test_cells_without_a_session_record_are_still_there() -> None:
    run = full_run()
    evidence = Evidence(run.records, [], run.read)
    assert len(evidence.cells) == len(run.records)
    assert evidence.groups[0].baseline == "eager"


@pytest.mark.parametrize(("profile", "times"), [("quick", 1), ("default", 0)])
def test_what_one_launch_stands_on_is_said(profile: str, times: int) -> None:
    run = Run(PROFILES[profile])
    name = run.session(launch_prior={"sd": 0.03, "degrees": 4.0})
    run.cell(name, model("m"), "eager", 1)
    said = cautions(Evidence(*run.summarise().parts))
    assert sum("3.0% is believed of this host" in text for text in said) == times


def test_threads_that_the_vendor_chose_are_told_apart_and_said() -> None:
    run = Run()
    for session, threads in (("s0", 2), ("s1", 0)):
        name = run.session(session)
        for text, ms in (("eager", 4.0), ("onnxruntime", 2.0)):
            record = run.cell(name, model("m"), text, 1, ms=ms)
            record["case"]["device"]["threads"] = threads
    evidence = Evidence(*run.summarise().parts)
    titles = [group.title for group in evidence.groups]
    assert titles == ["m [2 threads]", "m [vendor-default threads]"]
    assert any("vendor-default" in said for said in cautions(evidence))
    for record in run.records:
        record["case"]["device"]["threads"] = 2
    assert not any("vendor-default" in said for said in cautions(Evidence(*run.parts)))
