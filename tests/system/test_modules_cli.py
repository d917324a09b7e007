"""Every difficult torch module through the command line, and Inductor on all of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from benching import TORCH_CASES, bench, check_record
from case_expectations import INDUCTOR, MODULES, expected_of

from ngraphbench.plugin import discover
from ngraphbench.types import Json


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module")
def modules(module_folder: Path) -> dict[str, list[Json]]:
    """Return the records of every torch module that runs, by name."""
    pytest.importorskip("torch")
    folder = module_folder
    shutil.copy(TORCH_CASES, folder / "torch_cases.py")
    every = ("-c", "eager", "-c", "onnxruntime", "-b", "2")
    found: dict[str, list[Json]] = {}
    all_names = tuple(MODULES)
    for out, names, options in (
        ("good", all_names[:5], (*every, "--timeout", "30s")),
        ("more", all_names[5:], (*every, "--timeout", "30s")),
        ("inductor", INDUCTOR, ("-c", "inductor", "-b", "2", "--timeout", "300s")),
    ):
        models = [f"torch_cases.py:{name}" for name in names]
        for record in bench(models, folder=folder, out=out, options=options):
            found.setdefault(record["case"]["model"]["label"], []).append(record)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_a_torch_module_comes_to_what_it_must(modules: dict[str, list[Json]], name: str) -> None:
    labels = [record["label"] for record in modules[name]]
    # Beside Inductor alone, eager comes along as the baseline.
    assert labels == ["eager", "onnxruntime", *(["eager", "inductor"] if name in INDUCTOR else [])]
    for record in modules[name]:
        check_record(record, expected_of(MODULES[name], label=record["label"], batch=2))


@pytest.mark.slow
def test_inductor_takes_every_other_module(
    modules: dict[str, list[Json]], module_folder: Path
) -> None:
    others = [name for name in MODULES if name not in INDUCTOR]
    assert set(others) | set(INDUCTOR) == set(modules)
    roots = [
        path.parent
        for run in ("good", "more")
        for path in sorted((module_folder / run / "workloads").glob("*/workload.json"))
        if json.loads(path.read_text())["model"]["label"] in others
    ]
    out = module_folder / "inductor.json"
    script, caches = Path(__file__).with_name("one_process.py"), module_folder / "caches"
    done = subprocess.run(
        [sys.executable, script, out, discover()["inductor"], *roots],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(caches)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(out.read_text())
    assert set(found) == set(others)
    for name in others:
        expected, told = expected_of(MODULES[name], label="inductor", batch=2), found[name]
        status = "ok" if expected.status == "unverifiable" else expected.status
        assert (told["status"], told["message"]) == (status, ""), name
        verification = told["verification"]
        assert verification["verdict"] == (expected.verdict or "ok"), (name, verification)
        assert verification["checks"] == ["a", "b", "after"], name
        assert not expected.fp64 or verification["reference"] == "eager-fp64", name
        shapes = tuple(tuple(output["shape"]) for output in verification["outputs"])
        assert expected.shapes in ((), shapes), (name, shapes)
