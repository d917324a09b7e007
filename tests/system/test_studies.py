"""The studies from the command line to the next experiment, over the vendor-free compiler."""

from __future__ import annotations

import json
from pathlib import Path

from command_line import ngb

from ngraphbench.store.rundir import RunDir
from ngraphbench.testing.workloads import write_onnx


def test_a_design_study_and_its_next_step(tmp_path: Path, site) -> None:
    write_onnx(tmp_path / "second.onnx", "fake", batch="n")
    command = ("design", "double.onnx", "second.onnx", "-b", "1", "--baseline", "fake:units=300")
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
    assert told["double", "fake:units=25"] == {"1": "ok"}
    assert told["second", "fake:fault=oom"] == {"1": "oom"}
    # Two models of the same work: nobody may be named.
    assert place["fastest"][0]["state"] in ("tie", "unresolved")
    assert {one["compilers"] for one in place["archetypes"]} == {2}
    assert {one["works_under"] for one in place["archetypes"]} == {1}

    directory = RunDir.open(tmp_path / "run")
    before = {record["case_id"]: record["session_id"] for record in directory.latest()}
    ngb("run", "run/next.yaml", "--out", "run", "--profile", "quick", **short, check=1)
    again = {record["case_id"]: record["session_id"] for record in directory.latest()}
    assert set(again) == set(before)
    assert any(again[case_id] != session_id for case_id, session_id in before.items())
    text = " ".join(ngb("design", "--of", "run", **short, check=1).stdout.split())
    assert "Next: " in text and "who works where" in text
    ngb("design", cwd=tmp_path, check=2)
