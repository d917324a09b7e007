"""Every difficult ONNX file through the command line: a record or one clear message, always."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from benching import bench, check_record
from case_expectations import BIG, CHOSEN, MODULES, NOT_HELD, ONNX, REFUSED, expected_of
from command_line import ngb, records
from steady import as_steady

from ngraphbench import api
from ngraphbench.errors import SpecError
from ngraphbench.types import Json

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.cases.onnx_cases import write_cases

BATCHED = tuple(name for name, by in ONNX.items() if 1 in by and 2 in by)
COSTLY = ("endless_loop", "sequence_output")
GROUP = 10

HOSTILE = "<b>[bold]\x1b[31m|=1+1"


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


@pytest.fixture(scope="module")
def measured(cases: dict[str, Path], folder: Path) -> dict[str, list[Json]]:
    """Return the records of every case that can be planned, by name."""
    simple = [n for n in cases if n not in (*REFUSED, *BATCHED, *COSTLY, "memory_per_row")]
    groups = [(simple[i : i + GROUP], "2") for i in range(0, len(simple), GROUP)]
    groups += [(list(BATCHED), "1,2"), (list(COSTLY), "4"), (["memory_per_row"], "1,64")]
    found: dict[str, list[Json]] = {}
    for number, (names, batches) in enumerate(groups):
        paths = {str(cases[name]): name for name in names}
        # Where memory ends is searched for with large batches: time is not to end that.
        limit = "60s" if names == ["memory_per_row"] else "8s"
        options = ("-c", "onnxruntime", "-c", "openvino", "-b", batches, "--timeout", limit)
        for record in bench(list(paths), folder=folder, out=f"run{number}", options=options):
            found.setdefault(paths[record["case"]["model"]["path"]], []).append(record)
    return found


def test_every_other_case_is_planned(cases: dict[str, Path]) -> None:
    for name, path in cases.items():
        if name not in REFUSED:
            experiment = api.bench_experiment([str(path)], compilers=["onnxruntime", "openvino"])
            plan, _ = api.plan_of(experiment)
            assert len(plan.cases()) == 6, name


@pytest.mark.parametrize("name", REFUSED)
def test_a_case_that_cannot_be_planned_is_refused(cases: dict[str, Path], name: str) -> None:
    path = cases[name]
    experiment = api.bench_experiment([str(path)], compilers=["onnxruntime", "openvino"])
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


def test_every_case_has_its_expectations(tmp_path: Path) -> None:
    """Every case is a parameter of a test below, or has a test of its own: none is left out."""
    assert {*ONNX, *REFUSED, BIG} == set(write_cases(tmp_path, big=True))
    assert {*NOT_HELD, *CHOSEN} <= {*ONNX, *MODULES}


@pytest.mark.slow
@pytest.mark.parametrize("name", ONNX)
def test_an_onnx_case_comes_to_what_it_must(measured: dict[str, list[Json]], name: str) -> None:
    found = measured[HOSTILE if name == "trivially_fast" else name]
    assert len(found) == 3 * len({record["case"]["batch"] for record in found})
    for record in found:
        batch = record["case"]["batch"]
        check_record(record, expected_of(ONNX[name], label=record["label"], batch=batch))


@pytest.mark.slow
def test_where_memory_ends_is_told(measured: dict[str, list[Json]]) -> None:
    for record in measured["memory_per_row"]:
        if record["case"]["batch"] == 64:
            told = record["detail"]
            # 64 MiB a row, of 2 GiB; the reference in double precision takes twice as much.
            assert 4 <= told["largest_batch"] < told["smallest_batch_oom"] <= 32, told
            assert f"Batch {told['largest_batch']} fits" in record["message"]


@pytest.mark.slow
def test_data_of_more_than_2_gb_is_loaded_by_its_path(tmp_path: Path) -> None:
    case = write_cases(tmp_path / "onnx", big=True)[BIG]
    options = ("-c", "onnxruntime", "--baseline", "onnxruntime", "-b", "2", "--memory", "8GiB")
    command = ("bench", case["file"], *options, "--profile", "quick", "--json", "-o", "run")
    (record,) = map(as_steady, records(ngb(*command, cwd=tmp_path, short=True, check=0)))
    assert record["status"] == "ok"
    assert record["costs"]["peak_rss_bytes"] < 1024**3
    placed = sum(path.stat().st_blocks for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert 512 * placed < 64 * 1024**2


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
