"""Every difficult model through the command line: a record or one clear message, always."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from command_line import ngb, records

from ngraphbench import api
from ngraphbench.errors import SpecError
from ngraphbench.records import STATUSES
from ngraphbench.types import Json

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.cases.onnx_cases import write_cases

TORCH_CASES = Path(__file__).parents[1] / "cases" / "torch_cases.py"

NAMES: dict[str, tuple[str, ...]] = {
    "corrupt_truncated": ("truncated",),
    "corrupt_empty": ("empty file",),
    "corrupt_text": ("cannot be read as ONNX",),
    "corrupt_no_graph": ("no ONNX graph",),
    "lfs_pointer": ("git lfs pull",),
    "external_traversal": ("../secret_outside.bin", "outside the model's folder"),
    "external_absolute": ("secret_outside.bin", "outside the model's folder"),
    "external_missing": ("nowhere.bin",),
}
"""Cases that cannot be planned, and what the message must say."""

BATCHED = (
    *("batch_hardcoded_reshape", "batch_folded_silently", "batch_axis_one", "no_inputs"),
    *("shared_symbol_no_batch_out", "passthrough_output"),
)
COSTLY = ("endless_loop", "memory_per_row", "sequence_output")
GROUP = 10

UNSUPPORTED = {
    "string_input": ("dtype", "strings"),
    "string_identity": ("dtype", "strings"),
    "sequence_output": ("", "sequence"),
    "input_without_shape": ("input-shape", "no declared shape"),
    "ir_too_new": ("model-format", "IR version 99"),
    "opset_too_new": ("model-format", "opset 999"),
    "custom_op": ("operator", "com.example"),
}
"""Cases that no compiler is tried on: reason and words of the message."""

UNVERIFIABLE = ("random_op", "dropout_training")
HOSTILE = "<b>[bold]\x1b[31m|=1+1"

TORCH_FAULTS = {
    "no_tensor_out": ("failed", "no-tensor-output", "no tensor"),
    "hangs_on_large": ("timeout", "deadline", "8 s"),
    "exits": ("crashed", "exit:3", "exit code 3"),
    "segfaults": ("crashed", "signal:SIGSEGV", "SIGSEGV"),
    "allocates_without_end": ("oom", "memory", "2048 MiB"),
}
TORCH_GOOD = (
    *("functional_dropout", "left_in_train_mode", "in_place_input", "dict_out", "data_dependent"),
    *("hard_batch", "batch_in_python", "alias_out", "prints_a_lot", "changes_threads"),
)


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
    simple = [n for n in cases if n not in (*NAMES, *BATCHED, *COSTLY)]
    groups = [(simple[i : i + GROUP], "2") for i in range(0, len(simple), GROUP)]
    groups += [(list(BATCHED), "1,2"), (list(COSTLY), "4")]
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
        if name not in NAMES:
            plan, _ = api.plan_of(experiment)
            assert len(plan.cases()) == 6, name
            continue
        with pytest.raises(SpecError) as caught:
            api.plan_of(experiment)
        text = str(caught.value)
        assert path.name in text and "\n" not in text
        assert all(word in text for word in NAMES[name]), text


def test_one_bad_file_stops_the_command_and_all_are_named(
    cases: dict[str, Path], folder: Path
) -> None:
    bad = [cases[name] for name in NAMES]
    good = cases["gather_bound"]
    done = ngb("bench", good, *bad, "-c", "onnxruntime", "--json", cwd=folder, check=2)
    assert records(done) == []
    lines = done.stderr.splitlines()
    assert len(lines) == len(bad)
    for line, path in zip(lines, bad, strict=True):
        assert line.startswith("ngb: ") and path.name in line
    assert not (folder / "runs").exists()


@pytest.mark.slow
def test_every_case_has_its_records(
    measured: dict[str, list[Json]], cases: dict[str, Path]
) -> None:
    assert set(measured) == set(cases) - set(NAMES)
    for name, found in measured.items():
        assert len(found) == (6 if name in BATCHED else 3), name
    fine = set(measured) - set(UNSUPPORTED) - set(UNVERIFIABLE) - set(BATCHED)
    for name in fine - {"endless_loop", "duplicate_node_names", "bf16_io"}:
        # What other compilers make of a case is theirs; the plain runtime is the reference.
        assert status(measured, name, "onnxruntime:level=none") == "ok", name


def status(measured: dict[str, list[Json]], name: str, label: str, batch: int = 0) -> str:
    (found,) = (
        r["status"]
        for r in measured[name]
        if r["label"] == label and batch in (0, r["case"]["batch"])
    )
    return str(found)


@pytest.mark.slow
def test_what_cannot_be_done_is_unsupported(measured: dict[str, list[Json]]) -> None:
    for name, (reason, words) in UNSUPPORTED.items():
        for record in measured[name]:
            assert record["status"] == "unsupported", (name, record["message"])
            assert not reason or record["reason"] == reason
            assert words in record["message"], (name, record["message"])
    for record in measured["input_without_shape"]:
        assert "--input" in record["detail"]["hint"]
    for name in ("string_input", "ir_too_new", "opset_too_new"):
        assert all(record["detail"]["hint"] for record in measured[name])


@pytest.mark.slow
def test_outcomes_by_case(measured: dict[str, list[Json]]) -> None:
    for name in UNVERIFIABLE:
        assert status(measured, name, "onnxruntime") == "unverifiable"
    assert {r["status"] for r in measured["endless_loop"]} == {"timeout"}
    assert all(r["costs"]["peak_rss_bytes"] < 2**31 for r in measured["memory_per_row"])
    for name in set(BATCHED) - {"batch_axis_one"}:
        for record in measured[name]:
            if record["case"]["batch"] == 2:
                assert (record["status"], record["reason"]) == ("unsupported", "batch-fixed"), name
    for name in BATCHED:
        assert status(measured, name, "onnxruntime", batch=1) == "ok"
    assert status(measured, "batch_axis_one", "onnxruntime", batch=2) == "ok"
    duplicate = {r["label"]: r for r in measured["duplicate_node_names"]}
    assert "same node name" in duplicate["onnxruntime"]["message"]
    for record in measured["dropout_training"]:
        assert record["status"] in ("unverifiable", "unsupported")


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


@pytest.mark.slow
def test_torch_modules(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    shutil.copy(TORCH_CASES, tmp_path / "torch_cases.py")
    options = ("-c", "eager", "-c", "onnxruntime", "-b", "2", "--timeout", "30s")
    models = [f"torch_cases.py:{name}" for name in TORCH_GOOD]
    found = list(bench(models, folder=tmp_path, out="good", options=options))
    assert len(found) == 2 * len(TORCH_GOOD)
    by_cell = {(r["case"]["model"]["label"], r["label"]): r for r in found}
    for (name, label), record in by_cell.items():
        wanted = "unverifiable" if name == "functional_dropout" else "ok"
        if (name, label) == ("data_dependent", "onnxruntime"):
            assert "Export to ONNX failed" in record["message"]
            wanted = "unsupported"
        assert record["status"] == wanted, (name, label, record["message"])
    assert "output-flood" in {f["flag"] for f in by_cell["prints_a_lot", "eager"]["flags"]}


@pytest.mark.slow
def test_torch_modules_that_fail(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    shutil.copy(TORCH_CASES, tmp_path / "torch_cases.py")
    models = [f"torch_cases.py:{name}" for name in (*TORCH_FAULTS, "dict_out")]
    options = ("-c", "eager", "-b", "4", "--timeout", "8s")
    for record in bench(models, folder=tmp_path, out="bad", options=options):
        name = record["case"]["model"]["label"]
        status, reason, words = TORCH_FAULTS.get(name, ("ok", "", ""))
        assert (record["status"], record["reason"]) == (status, reason), record["message"]
        assert words in record["message"]
