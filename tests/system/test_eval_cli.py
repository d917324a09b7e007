"""The task metric on a labelled set: of the timed programs, beside the numerical verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from command_line import ngb, records, write_model
from fake_runs import campaign, compiler, fake_plan
from onnx import load, numpy_helper

from ngraphbench import api
from ngraphbench.errors import SpecError
from ngraphbench.models.sources import resolve_model
from ngraphbench.plan import Plan
from ngraphbench.store.rundir import RunDir
from ngraphbench.store.schema import load_schema

ITEMS = 11


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a model, a labelled set of which it gets all but two right, a metric."""
    write_model(tmp_path / "m.onnx")
    weights = numpy_helper.to_array(load(str(tmp_path / "m.onnx")).graph.initializer[0])
    x = np.random.default_rng(1).standard_normal((ITEMS, 8)).astype(np.float32)
    y = (x @ weights).argmax(-1)
    y[[3, ITEMS - 1]] = (y[[3, ITEMS - 1]] + 1) % 8
    np.savez(tmp_path / "xy.npz", x=x, y=y)
    (tmp_path / "my_metrics.py").write_text(
        "import os\n"
        "def counted(outputs, labels):\n"
        "    with open('metric.pids', 'a') as file:\n"
        "        file.write(f'{os.getpid()} {os.getppid()}\\n')\n"
        "    return float((outputs['y'].argmax(-1) != labels).sum())\n"
        "def broken(outputs, labels):\n"
        "    raise RuntimeError('not today')\n"
    )
    return tmp_path


def test_the_metric_is_that_of_the_timed_programs(folder: Path) -> None:
    command = ("bench", "m.onnx", "-c", "onnxruntime", "-b", "1,4", "--profile", "quick")
    done = ngb(*command, "--eval", "xy.npz", "--json", "-o", "run", cwd=folder, short=True, check=0)
    found = records(done)
    assert len(found) == 4
    for record in found:
        jsonschema.Draft202012Validator(load_schema()).validate(record)
        told = record["verification"]["eval"]
        assert told["value"] == told["reference"] == pytest.approx((ITEMS - 2) / ITEMS)
        assert (told["metric"], told["items"], told["problem"]) == ("top1", ITEMS, "")
        assert record["verification"]["verdict"] == "ok"
        assert "--eval" in record["command"] and "--metric top1" in record["command"]
    shown = ngb("show", "run", cwd=folder, check=0).stdout
    assert "Task metric" in shown and "top1 on 11 items of xy.npz: uncompiled 0.8182" in shown
    assert "Task metric" in (api.Run.open(folder / "run").report()).read_text()
    again = ngb(*command, "--json", "-o", "run", cwd=folder, short=True, check=0)
    assert all("eval" not in record["verification"] for record in records(again))


def test_a_metric_of_the_users_runs_in_the_exporters_process(folder: Path) -> None:
    (folder / "e.yaml").write_text(
        "name: e\nmodels: [{model: m.onnx, eval: xy.npz, metric: 'my_metrics:counted'}]\n"
        "compilers: [onnxruntime]\nbatch_sizes: [3]\nmeasure: {profile: quick}\n"
    )
    done = ngb("run", "e.yaml", "--json", "-o", "run", cwd=folder, short=True, check=0)
    for record in records(done):
        told = record["verification"]["eval"]
        assert told["value"] == told["reference"] == 2.0
    pids = [
        tuple(line.split()) for line in (folder / "run" / "metric.pids").read_text().splitlines()
    ]
    # The uncompiled model is scored by one process, both programs by another of the agent's.
    assert len(pids) == 3 and len({pid for pid, _ in pids}) == 2
    assert len({parent for _, parent in pids}) == 1


def test_a_wrong_program_is_scored_and_stays_wrong(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    plan = fake_plan(tmp_path, [compiler(), compiler(fault="wrong")], batches=[2])
    (session,) = plan.sessions
    name = load(session.cases[0].model.path).graph.input[0].name
    np.savez(tmp_path / "xy.npz", **{name: x}, y=x.argmax(-1))
    model = resolve_model("double.onnx", base=tmp_path, eval_file="xy.npz")
    cases = tuple(replace(case, model=model) for case in session.cases)
    campaign(tmp_path / "run", Plan("fake", (replace(session, cases=cases),))).run()
    right, wrong = RunDir.open(tmp_path / "run").latest()
    assert (right["status"], right["verification"]["eval"]["value"]) == ("ok", 1.0)
    assert (wrong["status"], wrong["verification"]["verdict"]) == ("wrong", "wrong")
    assert wrong["verification"]["eval"]["reference"] == 1.0
    assert 0.0 <= wrong["verification"]["eval"]["value"] <= 1.0
    assert wrong["summary"] is None


@pytest.mark.parametrize(
    ("eval_file", "metric", "words"),
    [
        ("none.npz", "", ["labelled set", "none.npz"]),
        ("m.onnx", "", ["m.onnx cannot be read as an .npz"]),
        ("no_y.npz", "", ["no_y.npz has no array for labels, 'y'", "it has: x"]),
        ("no_x.npz", "", ["no_x.npz has no array for input 'x'"]),
        ("xy.npz", "top5", ["'top5' is not a metric"]),
        ("xy.npz", "nowhere:f", ["no Python module 'nowhere'"]),
        ("xy.npz", "nowhere.py:f", ["nowhere.py"]),
        ("", "top1", ["no labelled set was given"]),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    folder: Path, eval_file: str, metric: str, words: list[str]
) -> None:
    np.savez(folder / "no_y.npz", x=np.zeros((2, 8), np.float32))
    np.savez(folder / "no_x.npz", z=np.zeros((2, 8), np.float32), y=np.zeros(2))
    entry = {"model": "m.onnx", "eval": eval_file, "metric": metric}
    experiment = api.bench_experiment([entry], compilers=["onnxruntime"])
    with pytest.raises(SpecError) as caught:
        api.plan_of(experiment, base=folder)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_bad_set_ends_the_command_with_exit_code_2(folder: Path) -> None:
    np.savez(folder / "no_y.npz", x=np.zeros((2, 8), np.float32))
    command = ("bench", "m.onnx", "-c", "onnxruntime", "--eval", "no_y.npz", "--json")
    done = ngb(*command, cwd=folder, check=2)
    assert records(done) == []
    assert done.stderr.count("\n") == 1 and "no_y.npz has no array for labels, 'y'" in done.stderr
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("arrays", "metric", "words"),
    [
        ({"x": np.zeros((3, 8), np.float32)}, "top1", "holds 3 items under 'x' and 11 labels"),
        ({}, "my_metrics:broken", "RuntimeError: not today"),
    ],
)
def test_what_only_the_model_can_tell_is_exit_code_2_too(
    folder: Path, arrays: dict[str, np.ndarray], metric: str, words: str
) -> None:
    with np.load(folder / "xy.npz") as good:
        np.savez(folder / "bad.npz", **{**dict(good), **arrays})
    options = ("--eval", "bad.npz", "--metric", metric, "--profile", "quick", "--json")
    command = ("bench", "m.onnx", "-c", "onnxruntime", "-b", "2", *options)
    found = records(ngb(*command, cwd=folder, short=True, check=2))
    assert {record["reason"] for record in found} <= {"eval", "metric"}
    assert all(words in record["message"] and not record["summary"] for record in found)
