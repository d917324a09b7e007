"""Every difficult model through the command line: a record or one clear message, always."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from case_expectations import INDUCTOR, MODULES, NOT_HELD, ONNX, REFUSED, Expected, expected_of
from command_line import ngb, records

from ngraphbench import api
from ngraphbench.errors import SpecError
from ngraphbench.plugin import discover
from ngraphbench.records import STATUSES
from ngraphbench.types import Json

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.cases.onnx_cases import write_cases

TORCH_NAMES = (
    *("functional_dropout", "left_in_train_mode", "in_place_input", "dict_out", "no_tensor_out"),
    *("data_dependent", "hard_batch", "batch_in_python", "alias_out", "hangs_on_large"),
    *("exits", "segfaults", "prints_a_lot", "changes_threads", "allocates_without_end"),
)
"""``MODULES`` of the torch cases, which cannot be imported without torch."""

TORCH_CASES = Path(__file__).parents[1] / "cases" / "torch_cases.py"

BATCHED = tuple(name for name, by in ONNX.items() if 1 in by and 2 in by)
COSTLY = ("endless_loop", "sequence_output")
GROUP = 10

HOSTILE = "<b>[bold]\x1b[31m|=1+1"

TORCH_FAULTS = {
    "no_tensor_out": ("failed", "no-tensor-output", "no tensor"),
    "hangs_on_large": ("timeout", "deadline", "20 s"),
    "exits": ("crashed", "exit:3", "exit code 3"),
    "segfaults": ("crashed", "signal:SIGSEGV", "SIGSEGV"),
    "allocates_without_end": ("oom", "memory", "2048 MiB"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cases")


@pytest.fixture(scope="module")
def cases(folder: Path) -> dict[str, Path]:
    """Return the file of every ONNX case by name, one with a hostile file name among them."""
    found = {name: Path(case["file"]) for name, case in write_cases(folder / "onnx").items()}
    odd = folder / f"{HOSTILE}.onnx"
    shutil.copy(found["trivially_fast"], odd)
    # The same bytes would be the same model, which may be listed once only.
    del found["trivially_fast"]
    return {**found, HOSTILE: odd}


def bench(
    models: Sequence[object], *, folder: Path, out: str, options: Sequence[str]
) -> Iterator[Json]:
    """Yield the records of one command, each of which is as a record must be."""
    common = ("--profile", "quick", "--memory", "2GiB", "--json", "-o", out)
    done = ngb("bench", *models, *options, *common, cwd=folder, short=True)
    found = records(done)
    assert done.returncode == api.Run.open(folder / out).exit_code(), done.stderr
    assert found and done.stderr.count("\n") <= 2, done.stderr
    for record in found:
        assert record["status"] in STATUSES
        assert bool(record["message"]) == (record["status"] != "ok"), record["message"]
        assert record["status"] == "ok" or record["reason"]
        assert "Traceback" not in record["message"] and "src/" not in record["message"][:80]
        assert bool(record["summary"]) == (record["status"] in ("ok", "unverifiable"))
        yield record


@pytest.fixture(scope="module")
def measured(cases: dict[str, Path], folder: Path) -> dict[str, list[Json]]:
    """Return the records of every case that can be planned, by name."""
    simple = [n for n in cases if n not in (*REFUSED, *BATCHED, *COSTLY, "memory_per_row")]
    groups = [(simple[i : i + GROUP], "2") for i in range(0, len(simple), GROUP)]
    groups += [(list(BATCHED), "1,2"), (list(COSTLY), "4"), (["memory_per_row"], "1,64")]
    found: dict[str, list[Json]] = {}
    for number, (names, batches) in enumerate(groups):
        paths = {str(cases[name]): name for name in names}
        options = ("-c", "onnxruntime", "-c", "openvino", "-b", batches, "--timeout", "8s")
        for record in bench(list(paths), folder=folder, out=f"run{number}", options=options):
            found.setdefault(paths[record["case"]["model"]["path"]], []).append(record)
    return found


def test_every_case_is_planned_or_refused(cases: dict[str, Path]) -> None:
    for name, path in cases.items():
        experiment = api.bench_experiment([str(path)], compilers=["onnxruntime", "openvino"])
        if name not in REFUSED:
            plan, _ = api.plan_of(experiment)
            assert len(plan.cases()) == 6, name
            continue
        with pytest.raises(SpecError) as caught:
            api.plan_of(experiment)
        text = str(caught.value)
        assert path.name in text and "\n" not in text
        assert all(word in text for word in REFUSED[name]), text


def test_one_bad_file_stops_the_command_and_all_are_named(
    cases: dict[str, Path], folder: Path
) -> None:
    bad = [cases[name] for name in REFUSED]
    good = cases["gather_bound"]
    done = ngb("bench", good, *bad, "-c", "onnxruntime", "--json", cwd=folder, check=2)
    assert records(done) == []
    lines = done.stderr.splitlines()
    assert len(lines) == len(bad)
    for line, path in zip(lines, bad, strict=True):
        assert line.startswith("ngb: ") and path.name in line
    assert not (folder / "runs").exists()


def test_every_case_has_its_expectations(cases: dict[str, Path]) -> None:
    assert {HOSTILE if name == "trivially_fast" else name for name in ONNX} | set(REFUSED) == set(
        cases
    )
    assert set(NOT_HELD) <= {*ONNX, *MODULES}
    assert {*MODULES, *TORCH_FAULTS} == set(TORCH_NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONNX)
def test_an_onnx_case_comes_to_what_it_must(measured: dict[str, list[Json]], name: str) -> None:
    found = measured[HOSTILE if name == "trivially_fast" else name]
    assert len(found) == 3 * len({record["case"]["batch"] for record in found})
    for record in found:
        batch = record["case"]["batch"]
        check_record(record, expected_of(ONNX[name], label=record["label"], batch=batch))


def check_record(record: Json, expected: Expected) -> None:
    """Hold a record against what it must come to."""
    who = (record["case"]["model"]["label"], record["case"]["batch"], record["label"])
    assert record["status"] in (expected.statuses or (expected.status,)), (who, record["message"])
    if not expected.statuses:
        assert record["reason"] == expected.reason, who
    assert expected.words in record["message"], (who, record["message"])
    flags = {flag["flag"] for flag in record["flags"]}
    assert flags >= set(expected.flags), (who, flags)
    assert not flags & set(expected.no_flags), (who, flags)
    if record["status"] == "unsupported" and record["reason"] in ("input-shape", "dtype"):
        assert record["detail"]["hint"], who
    found = record["verification"]
    if record["summary"] is None:
        return
    assert found["verdict"] in (
        (expected.verdict,) if expected.verdict else ("ok", record["status"])
    )
    assert expected.tolerance in (None, found["tolerance"]), who
    assert not expected.fp64 or found["reference"].endswith("-fp64"), (who, found)
    shapes = tuple(tuple(output["shape"]) for output in found["outputs"])
    assert expected.shapes in ((), shapes), (who, shapes)
    assert found["checks"] == ["a", "b", "after"]


@pytest.mark.slow
def test_hostile_names_are_inert(measured: dict[str, list[Json]], folder: Path) -> None:
    assert measured["hostile_names"] and measured[HOSTILE]
    for run in sorted(folder.glob("run[0-9]*")):
        shown = ngb("show", run, cwd=folder)
        assert all(len(line) <= 80 for line in shown.stdout.splitlines())
        ngb("report", run, cwd=folder, check=0)
        page = (run / "report.html").read_text()
        assert "<img src=x" not in page and "\x1b" not in page
        assert "<b>[bold]" not in page and "</script><b>" not in page


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


@pytest.mark.slow
def test_torch_modules_that_fail(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    shutil.copy(TORCH_CASES, tmp_path / "torch_cases.py")
    models = [f"torch_cases.py:{name}" for name in (*TORCH_FAULTS, "dict_out")]
    options = ("-c", "eager", "-b", "4", "--timeout", "20s")
    for record in bench(models, folder=tmp_path, out="bad", options=options):
        name = record["case"]["model"]["label"]
        status, reason, words = TORCH_FAULTS.get(name, ("ok", "", ""))
        assert (record["status"], record["reason"]) == (status, reason), record["message"]
        assert words in record["message"]
