"""docs/json.md names every key that a command prints with ``--json``, and no other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
import typer
from curve_fixture import depth_run
from json_page import PAGE, documented, hold
from run_fixture import Run
from study_fixture import Table, study_run

from ngraphbench.analysis.devices import Crossing
from ngraphbench.analysis.metrics import metrics
from ngraphbench.analysis.pairing import Side
from ngraphbench.analysis.regressions import compare_runs
from ngraphbench.analysis.tables import Evidence
from ngraphbench.cli.app import app, run
from ngraphbench.selftest import Finding, SelfTest
from ngraphbench.studies.constraints import Constraints
from ngraphbench.studies.deploy import deploy
from ngraphbench.studies.design import design
from ngraphbench.studies.develop import develop
from ngraphbench.summary import Comparison

MODELS: Table = {
    "conv": {"eager": 10.0, "openvino": 2.0},
    "former": {"eager": 8.0, "openvino": 3.0},
}
COMPARISON = Comparison(0.5, 0.4, 0.6, 0.45, 0.55, 24, 3, 0.95)


@pytest.fixture
def measured() -> Run:
    return study_run(MODELS, batches=(1, 4))


def command(*arguments: object, capsys: pytest.CaptureFixture[str]) -> Any:
    assert run([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_metrics_and_orders(measured: Run) -> None:
    printed = metrics(*measured.parts).to_json()
    hold(printed, "show --metrics")
    hold(printed["orders"], "reversals")


def test_orders_of_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "figures.csv"
    table.write_text("model,batch,baseline,compiled\na,1,10,30\nb,1,20,25\n")
    hold(command("reversals", table, capsys=capsys), "reversals", table=2)


def test_studies(measured: Run) -> None:
    hold({**design(*measured.parts).to_json(), "run": ""}, "design")
    times = {"eager": {1: 6.0, 2: 10.0}, "openvino": {1: 3.0, 2: 4.0}}
    developed = develop(*depth_run(times, rounds=8).parts, count=lambda family, sizes: {})
    hold({**developed.to_json(), "run": ""}, "develop")
    one = study_run({"net": {"eager": 10.0, "openvino": 2.0}})
    deployed = deploy(one.parts, one.parts, Constraints()).to_json()
    hold({**deployed, "delivered": {}, "path": "", "next": None}, "deploy")


def test_a_comparison(measured: Run) -> None:
    side = Side(Evidence(*measured.parts))
    hold({**compare_runs(side, side).to_json(), "paired": []}, "compare")


def test_orders_between_devices() -> None:
    crossing = Crossing(*([None] * len(fields(Crossing))))
    hold(asdict(crossing), "reversals", table=1)


def test_a_self_test() -> None:
    found = SelfTest((Finding(2, 0.5, COMPARISON, "faster", False),), (), False)
    hold(found.to_json(), "selftest")


@pytest.mark.parametrize("what", ["list models", "list devices", "env list"])
def test_lists(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    hold(command(*what.split(), capsys=capsys), what)


def test_a_page_that_lacks_a_key_or_has_one_too_many_is_found() -> None:
    right = {"models": {}}
    hold(right, "list models")
    for wrong in ({}, {**right, "more": 1}):
        with pytest.raises(AssertionError):
            hold(wrong, "list models")


def test_every_command_that_prints_json_is_on_the_page() -> None:
    page = PAGE.read_text()
    headings = re.findall(r"^## (.+)$", page, flags=re.M)
    assert all(documented(heading) for heading in headings)
    named = set(_with_json(typer.main.get_command(app), ()))
    # `list` is told of by what it lists; records have a schema.
    assert {"bench", "run", "show"} < named
    missing = named - {"bench", "run", "show", "list"} - set(headings)
    assert not missing
    told = {heading.split(" --")[0] for heading in headings if not heading.startswith("list ")}
    assert told <= named


def _with_json(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    if any("--json" in parameter.opts for parameter in command.params):
        yield " ".join(path)
    for name, below in getattr(command, "commands", {}).items():
        yield from _with_json(below, (*path, name))
