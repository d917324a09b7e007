"""Two releases of one compiler side by side, and one release in two environments."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import ngb, records, write_model
from steady import is_calm

from ngraphbench.analysis.tables import Cell, Evidence
from ngraphbench.analysis.versions import version_verdicts
from ngraphbench.api import Run
from ngraphbench.environments.interpreters import interpreter_tag
from ngraphbench.locks import request_for
from ngraphbench.plugin import package_version
from ngraphbench.summary import verdict

OLDER = "1.31.1"
MANAGED = request_for("onnxruntime", distributions=["onnxruntime"])
ALIKE = 0.999


@pytest.mark.slow
def test_releases_are_compared_and_one_release_is_alike(tmp_path: Path) -> None:
    write_model(tmp_path / "m.onnx", size=256)
    given = {"NGRAPHBENCH_ENVIRONMENTS": str(tmp_path / "store")}
    made = ngb("env", "create", "onnxruntime", cwd=tmp_path, env=given)
    if made.returncode:
        pytest.skip(f"onnxruntime cannot be installed here: {made.stderr[-400:]}")
    place = tmp_path / "store" / MANAGED.id(interpreter_tag())
    heads = ["onnxruntime", f"onnxruntime@{place}", f"onnxruntime@{OLDER}"]
    chosen = [word for head in heads for word in ("-c", head)]
    done = ngb(
        *("bench", "m.onnx", *chosen, "-b", "8", "--profile", "quick"),
        *("--baseline", f"onnxruntime@{OLDER}", "-o", "run", "--json"),
        cwd=tmp_path,
        env=given,
        check=0,
    )
    found = {record["label"]: record for record in records(done)}
    assert {record["status"] for record in found.values()} <= {"ok", "unstable"}
    versions = {head: found[head]["environment"]["compiler_version"] for head in heads}
    assert versions[heads[2]] == OLDER and versions[heads[1]] != OLDER
    assert found[heads[0]]["summary"]["vs_baseline"]["baseline"] == heads[2]
    run = Run.open(tmp_path / "run")
    evidence = Evidence(run.history(), run.sessions(), run.samples)
    calm = is_calm(found.values(), run.sessions())
    if calm:
        first = version_verdicts(evidence)[0]
        assert first.earlier == heads[2] and first.speedup is not None
        assert first.speedup.low < first.speedup.estimate < first.speedup.high
    if calm and versions[heads[0]] == versions[heads[1]] == package_version("onnxruntime"):
        alike = evidence.compare(Cell(found[heads[0]]), Cell(found[heads[1]]), ALIKE)
        assert verdict(alike, tie=0.03) not in ("faster", "slower")
    ngb("env", "remove", "--all", cwd=tmp_path, env=given, check=0)
    assert not (tmp_path / "store").exists()
