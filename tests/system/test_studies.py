"""The studies from the command line to the next experiment, over the vendor-free compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import command_line
import pytest
from command_line import ngb
from steady import as_steady

from ngraphbench.store.rundir import RunDir
from ngraphbench.testing.workloads import write_onnx

pytestmark = pytest.mark.slow

COMMAND = command_line.__file__


def test_a_design_study_and_its_next_step(tmp_path: Path, site) -> None:
    write_onnx(tmp_path / "second.onnx", "fake", batch="n")
    command = ("design", "double.onnx", "second.onnx", "-b", "1,2", "--baseline", "fake:units=300")
    compilers = ("-c", "fake:units=25", "-c", "fake:fault=oom", "--limit", "memory=400MiB")
    short = {"cwd": tmp_path, "env": site, "short": True}
    done = ngb(
        *command,
        *compilers,
        "--threads",
        1,
        "--profile",
        "quick",
        "-o",
        "run",
        "--json",
        **short,
        check=1,
    )
    found = json.loads(done.stdout)
    (place,) = found["places"]
    told = {(one["archetype"], one["compiler"]): one["statuses"] for one in place["support"]}
    assert told["double", "fake:units=25"] == {"1": "ok", "2": "ok"}
    assert told["second", "fake:fault=oom"] == {"1": "oom", "2": "oom"}
    # Two models of the same work: nobody may be named.
    assert place["fastest"][0]["state"] in ("tie", "unresolved")
    assert {one["compilers"] for one in place["archetypes"]} == {2}
    assert {one["works_under"] for one in place["archetypes"]} == {1}

    directory = RunDir.open(tmp_path / "run")
    together: dict[str, set[tuple[str, int]]] = {}
    for record in directory.latest():
        case = record["case"]
        held = together.setdefault(record["session_id"], set())
        held.add((case["model"]["label"], case["batch"]))
    # Whoever is put in an order was measured side by side, at one batch size.
    pairs = sorted(sorted(held) for held in together.values())
    assert pairs == [[("double", size), ("second", size)] for size in (1, 2)]
    before = {record["case_id"]: record["session_id"] for record in directory.latest()}
    ngb("run", "run/next.yaml", "--out", "run", "--profile", "quick", **short, check=1)
    again = {record["case_id"]: record["session_id"] for record in directory.latest()}
    assert set(again) == set(before)
    assert any(again[case_id] != session_id for case_id, session_id in before.items())
    text = " ".join(ngb("design", "--of", "run", **short, check=1).stdout.split())
    assert "Next: " in text and "who works where" in text
    ngb("design", cwd=tmp_path, check=2)


def test_a_development_study_of_blocks(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    blocks = ("--block", "basic", "--depth", "1,2", "--width", 32, "--resolution", 32)
    # Of these two only the exporter needs torch.
    compilers = ("-c", "onnxruntime", "--baseline", "onnxruntime:level=none")
    wanted = ("-p", "quick", "--limit-ms", 1e9, "-o", "run", "--json")
    done = ngb("develop", *blocks, *compilers, *wanted, cwd=tmp_path, short=True, check=0)
    found = json.loads(done.stdout)
    (finding,) = found["findings"]
    assert (finding["fit"]["label"], finding["fit"]["depths"]) == ("onnxruntime", [1, 2])
    assert [one["depth"] for one in finding["fit"]["speedups"]] == [1, 2]
    # Whatever it takes stays within the limit, so that the deeper model computes the most.
    assert {(one["label"], one["depth"]) for one in found["viable"]} == {
        *(("onnxruntime:level=none", 2), ("onnxruntime", 2))
    }
    assert [one["depth"] for one in found["chosen"]] == [2]
    one, two = sorted(found["points"], key=lambda point: point["depth"])
    assert two["flops"] - one["flops"] == 2 * (2 * 9 * 32 * 32 * 8 * 8)
    assert two["parameters"] - one["parameters"] == 2 * (9 * 32 * 32 + 2 * 32)
    assert two["flops_front"] and "block:basic" in found["decision"]
    statuses = {as_steady(record)["status"] for record in RunDir.open(tmp_path / "run").latest()}
    assert statuses == {"ok"}


def test_a_deployment_hands_over_what_it_measured(tmp_path: Path, site) -> None:
    short = {"cwd": tmp_path, "env": site, "short": True}
    units = [word for n in (25, 400) for word in ("-c", f"fake:units={n}")]
    wanted = ("--rate", 200, "--max-memory", "2GiB", "--tolerance", "1e-3")
    command = ("deploy", "double.onnx", *units, "--baseline", "fake:units=300", "--threads", 1)
    done = ngb(*command, *wanted, "-p", "quick", "-o", "d", "--json", **short, check=0)
    found = json.loads(done.stdout)
    assert found["outcome"] == "chosen"
    assert found["choice"]["label"] == "fake:units=25"
    assert {check["verdict"] for check in found["choice"]["checks"]} == {"pass"}
    assert {check["name"] for check in found["choice"]["checks"]} == {
        *("outputs", "tolerance", "rate", "memory")
    }
    assert json.loads((tmp_path / "d" / "artefact" / "program.json").read_text())[1] == 25

    # The script measures the same cell: `ngb` is this package, with its short slots.
    fake_ngb = tmp_path / "bin" / "ngb"
    fake_ngb.parent.mkdir()
    fake_ngb.write_text(f'#!/bin/sh\nexec {sys.executable} {COMMAND} "$@"\n')
    fake_ngb.chmod(0o755)
    path = os.pathsep.join([str(fake_ngb.parent), os.environ["PATH"]])
    again = subprocess.run(
        [tmp_path / "d" / "reproduce.sh", "--json", "--out", tmp_path / "again"],
        env={**os.environ, **site, "PATH": path, "NGRAPHBENCH_LOCK": str(tmp_path / "lock")},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert found["choice"]["case_id"] in {one["case_id"] for one in json.loads(again.stdout)}

    # Decided anew under what nobody keeps to, and under what was not measured.
    none = ngb("deploy", "--of", "d", "--min-throughput", 1e9, "--json", **short, check=5)
    assert json.loads(none.stdout)["outcome"] == "none"
    assert not (tmp_path / "d" / "artefact").exists()
    open_ = ngb("deploy", "--of", "d", "--p99", "10s", "--rate", 30, **short, check=5)
    assert "Undecided" in open_.stdout and "Next: " in open_.stdout
