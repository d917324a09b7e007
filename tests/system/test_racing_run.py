"""A race through the command line: slow programs leave early, also over an interrupt."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import ngb, records, start
from processes import processes_of, wait_until
from steady import as_steady, is_calm

from ngraphbench.store.rundir import RunDir
from ngraphbench.store.samples import read_samples

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.usefixtures("own_lock")]

SLOW = "fake:units=400"
EXPERIMENT = """
name: race
models: [double.onnx]
compilers: ["fake:units=300", "fake:units=25", "fake:units=25", "fake:units=400"]
baseline: "fake:units=300"
batch_sizes: [1]
measure: {profile: PROFILE, threads: 1, best: true}
"""


def experiment(folder: Path, profile: str) -> Path:
    path = folder / "race.yaml"
    path.write_text(EXPERIMENT.replace("PROFILE", profile))
    return path


def rounds(run: Path, record: Mapping[str, Any]) -> dict[int, int]:
    """Return how many slots a candidate had in each launch."""
    samples = read_samples(run / record["measurement"]["samples"])
    epochs = samples["epoch"].tolist()
    return {epoch: epochs.count(epoch) for epoch in epochs}


def flags(record: Mapping[str, Any]) -> dict[str, str]:
    return {flag["flag"]: flag["detail"] for flag in record["flags"]}


def check(run: Path, found: dict[str, Any]) -> None:
    """Check what holds of every race between two equals and two that are far slower."""
    winner, slow, base = found["fake:units=25"], found[SLOW], found["fake:units=300"]
    assert {as_steady(record)["status"] for record in found.values()} == {"ok"}
    assert "surely slower than fake:units=25" in flags(slow)["dropped"]
    assert "few-rounds" not in flags(slow)
    assert "dropped" not in flags(winner) | flags(base)
    assert slow["verification"]["checks"] == ["a", "b", "after"]
    # The baseline stays to the end, at a slower pace; who is dropped saves its slots.
    spent = {label: sum(rounds(run, record).values()) for label, record in found.items()}
    assert spent[SLOW] < spent["fake:units=25"]
    assert spent["fake:units=300"] < spent["fake:units=25"]
    assert set(rounds(run, base)) == set(rounds(run, winner))
    if is_calm((winner, base), ()):
        assert winner["summary"]["vs_baseline"]["verdict"] == "faster"


def test_a_race_drops_the_slow_ones_and_names_the_fastest(tmp_path: Path, site) -> None:
    path = experiment(tmp_path, "quick")
    done = ngb("run", path.name, "--out", "run", "--json", cwd=tmp_path, env=site, check=0)
    found = {record["label"]: record for record in records(done)}
    check(tmp_path / "run", found)
    shown = ngb("show", "run", cwd=tmp_path, env=site, check=0).stdout
    said = " ".join(shown.split())
    assert "1 left the race early, surely slower" in said
    if is_calm(found.values(), RunDir.open(tmp_path / "run").sessions()):
        assert "fake:units=25" in said.split("model batch")[0]
    assert SLOW not in said.split("model batch")[0]
    assert re.search(r"(ok|unstable)\W+dropped", said)


def test_who_was_dropped_stays_so_after_an_interrupt(tmp_path: Path, site) -> None:
    path = experiment(tmp_path, "default")
    run = tmp_path / "run"
    first = start("run", path.name, "--out", "run", "--json", cwd=tmp_path, env=site, rounds=100)
    assert wait_until(lambda: state(run).get("epochs_done") == 1, 240)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=120)
    assert first.returncode == 130, said
    assert wait_until(lambda: not processes_of(tmp_path)), processes_of(tmp_path)
    kept = state(run)
    assert kept["ended"][0] != "decided"
    beaten = [case for case in kept["cases"].values() if case["beaten_by"]]
    assert len(beaten) == 2

    second = start("run", path.name, "--out", "run", "--json", cwd=tmp_path, env=site, rounds=100)
    out, said = second.communicate(timeout=400)
    assert second.returncode == 0, said
    found = {record["label"]: record for record in json.loads(out)}
    check(run, found)
    assert set(rounds(run, found[SLOW])) == {0}
    assert len(rounds(run, found["fake:units=25"])) > 1


def state(run: Path) -> dict[str, Any]:
    states = list(run.glob("spool/*/state.json"))
    return json.loads(states[0].read_text()) if states else {}
