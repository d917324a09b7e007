"""The command line from outside: what it prints, where, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ngb, records, write_model
from json_page import hold

import ngraphbench

COMMANDS = ("bench", "run", "show", "report", "list", "doctor", "env")
HEAVY = {
    *("torch", "torchvision", "timm", "onnx", "onnxruntime", "openvino"),
    *("numpy", "scipy", "polars", "pandas", "jinja2"),
}
ORT = ("-c", "onnxruntime")
YAML = "name: small\nmodels: [m.onnx]\ncompilers: [onnxruntime]\nbatch_sizes: [1]\n"
BROKEN = YAML.replace("batch_sizes", "batch_size")
CRASHING = """
import torch

class Bad(torch.nn.Module):
    def forward(self, x):
        raise ValueError("deliberate")

def bad():
    return Bad(), (torch.randn(1, 4),)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a small model and a finished run of it."""
    path = tmp_path_factory.mktemp("cli")
    write_model(path / "m.onnx")
    (path / "e.yaml").write_text(YAML)
    return path


@pytest.fixture(scope="module")
def finished(folder: Path) -> Path:
    run = folder / "done"
    arguments = ("bench", "m.onnx", "-c", "onnxruntime", "-c", "openvino", "-b", "1")
    table = ngb(*arguments, "--profile", "quick", "-o", run, cwd=folder, short=True, check=0)
    assert "onnxruntime" in table.stdout and "items/s" in table.stdout
    assert_fits(table.stdout, but=("Report: ",))
    return run


def assert_fits(text: str, *, but: tuple[str, ...] = ()) -> None:
    long = [line for line in text.splitlines() if len(line) > 80 and not line.startswith(but)]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_imports_nothing_heavy(command: str, tmp_path: Path) -> None:
    arguments = [*([command] if command else []), "--help"]
    code = (
        "import sys; from ngraphbench.cli.app import run; code = run(sys.argv[1:]);"
        " print(sorted(sys.modules), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(eval(done.stderr))
    assert sorted(loaded & HEAVY) == []
    assert "Usage:" in done.stdout
    assert_fits(done.stdout)


def test_help_tells_the_defaults(tmp_path: Path) -> None:
    text = " ".join(ngb("bench", "--help", cwd=tmp_path, check=0).stdout.replace("│", " ").split())
    assert "every compiler that works here" in text
    assert "one per physical core of the fastest class, within the quota" in text


def test_version(tmp_path: Path) -> None:
    done = ngb("--version", cwd=tmp_path, check=0)
    assert done.stdout == f"ngraphbench {ngraphbench.__version__}\n"


@pytest.mark.parametrize("arguments", [["frobnicate"], ["bench", "--frob"], ["bench"], ["show"]])
def test_wrong_usage(arguments: list[str], tmp_path: Path) -> None:
    done = ngb(*arguments, cwd=tmp_path, check=2)
    assert "Error" in done.stderr and not done.stdout


def test_wrong_usage_keeps_json_whole(tmp_path: Path) -> None:
    assert records(ngb("bench", "--frob", "--json", cwd=tmp_path, check=2)) == []


def test_a_broken_experiment_names_its_line(folder: Path) -> None:
    (folder / "broken.yaml").write_text(BROKEN)
    done = ngb("run", "broken.yaml", "--json", cwd=folder, check=2)
    assert "broken.yaml:4: batch_size" in done.stderr
    assert "Did you mean 'batch_sizes'?" in done.stderr
    assert records(done) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "m.onnx", "-c", "glow"], "There is no compiler 'glow'"),
        (["bench", "m.onnx", "-c", "onnxruntim"], "Did you mean 'onnxruntime'?"),
        (["bench", "m.onnx", "-c", "openvino:hint=fast"], "latency"),
        (["bench", "none.onnx", *ORT], "none.onnx"),
        (["bench", "resnet18", *ORT], "timm:resnet18"),
        (["bench", "m.onnx", "-b", "1,x", *ORT], "--batch"),
        (["bench", "m.onnx", "-b", "0", *ORT], "at least 1"),
        (["bench", "m.onnx", "--profile", "quik", *ORT], "Did you mean 'quick'?"),
        (["bench", "m.onnx", "--precision", "fp8", *ORT], "fp32"),
        (["bench", "m.onnx", "--timeout", "fast", *ORT], "fast"),
        (["bench", "m.onnx", "--memory", "lots", *ORT], "lots"),
        (["bench", "m.onnx", "--shape", "x", *ORT], "--shape"),
        (["bench", "m.onnx", "--input", "x", *ORT], "--input"),
        (["bench", "m.onnx", "--inputs", "none.npz", *ORT], "none.npz"),
        (["run", "none.yaml"], "none.yaml"),
        (["run", "e.yaml", "--retry", "broken"], "--retry"),
        (["run", "e.yaml", "--set", "limits.cel=60s"], "Did you mean 'cell'?"),
        (["show", "none"], "There is no run directory"),
        (["show", "."], "not a run directory"),
        (["report", "none"], "There is no run directory"),
        (["list", "things"], "compilers, models, blocks, devices"),
    ],
)
def test_what_the_user_must_fix(arguments: list[str], words: str, folder: Path) -> None:
    done = ngb(*arguments, cwd=folder, check=2)
    assert words in done.stderr
    assert done.stderr.startswith("ngb: ") and not done.stdout


def test_every_fault_is_told_at_once(folder: Path) -> None:
    done = ngb("bench", "a.onnx", "b.onnx", "-c", "glow", "--json", cwd=folder, check=2)
    assert all(word in done.stderr for word in ("a.onnx", "b.onnx", "glow"))
    assert records(done) == []


def test_dry_run(folder: Path) -> None:
    done = ngb("run", "e.yaml", "--dry-run", cwd=folder, check=0)
    assert "2 cells, about" in done.stdout
    assert_fits(done.stdout)
    plan = json.loads(ngb("run", "e.yaml", "--dry-run", "--json", cwd=folder, check=0).stdout)
    hold(plan, "run --dry-run")
    assert len(plan["sessions"][0]["cases"]) == 2
    assert not (folder / "runs" / "small").exists()


@pytest.mark.slow
def test_list_and_doctor(folder: Path) -> None:
    for arguments in (["list", "models"], ["list", "devices"], ["doctor"]):
        assert_fits(ngb(*arguments, cwd=folder, check=0).stdout)
    options = ngb("list", "compilers", "--options", cwd=folder, check=0).stdout
    assert "level = none | basic | extended | all" in options
    assert_fits(options)
    compilers = json.loads(ngb("list", "--json", cwd=folder, check=0).stdout)["compilers"]
    assert compilers["onnxruntime"]["accepts"] == ["onnx"]
    hold({"compilers": compilers}, "list compilers")
    assert set(compilers["openvino"]["options"][0]) == {
        *("name", "type", "default", "choices", "presets", "help"),
    }
    models = json.loads(ngb("list", "models", "--json", cwd=folder, check=0).stdout)
    assert "timm:NAME" in models["models"]
    devices = json.loads(ngb("list", "devices", "--json", cwd=folder, check=0).stdout)
    assert devices["devices"]["local"]["threads"] >= 1 and devices["host"]["os"]
    doctor = json.loads(ngb("doctor", "--json", cwd=folder, check=0).stdout)
    hold(doctor, "doctor")
    blocks = json.loads(ngb("list", "blocks", "--json", cwd=folder, check=0).stdout)
    hold(blocks, "list blocks")


def test_show_and_report(finished: Path, folder: Path) -> None:
    shown = ngb("show", finished, cwd=folder, check=0)
    assert_fits(shown.stdout)
    assert len(records(ngb("show", finished, "--json", cwd=folder, check=0))) == 3
    page = folder / "page.html"
    done = ngb("report", finished, "--html", page, cwd=folder, check=0)
    assert done.stdout.strip() == str(page) and "<html" in page.read_text()
    ngb("report", finished, cwd=folder, check=0)
    assert (finished / "report.html").exists()


def test_show_narrow_and_wide(finished: Path, folder: Path) -> None:
    for columns in (60, 120, 200):
        env = {"COLUMNS": str(columns)}
        shown = ngb("show", finished, cwd=folder, env=env, check=0)
        assert max(map(len, shown.stdout.splitlines())) <= columns


def test_a_report_that_cannot_be_written(finished: Path, folder: Path) -> None:
    done = ngb("report", finished, "--html", folder / "none" / "r.html", cwd=folder, check=2)
    assert "r.html" in done.stderr


@pytest.mark.parametrize("where", ["m.onnx", "m.onnx/below", "/proc/none"])
def test_an_out_that_cannot_be_written(where: str, folder: Path) -> None:
    arguments = ("bench", "m.onnx", "-c", "onnxruntime", "-o", where, "--json")
    done = ngb(*arguments, cwd=folder, check=2)
    assert where.removeprefix("/") in done.stderr
    assert records(done) == []


def test_a_folder_of_other_things_is_left_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = ngb("bench", "m.onnx", "-c", "onnxruntime", "-o", tmp_path, cwd=folder, check=2)
    assert "holds other files" in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


def test_the_same_command_resumes(finished: Path, folder: Path) -> None:
    arguments = ("bench", "m.onnx", "-c", "onnxruntime", "-c", "openvino", "-b", "1")
    done = ngb(*arguments, "--profile", "quick", "-o", finished, cwd=folder, short=True, check=0)
    assert "3 cells were already measured and kept." in done.stderr


@pytest.mark.slow
def test_exit_codes_follow_the_cells(folder: Path) -> None:
    pytest.importorskip("torch")
    (folder / "bad.py").write_text(CRASHING)
    quick = ("--profile", "quick", "-b", "1", "--json")
    failed = ngb("bench", "bad.py:bad", "-c", "eager", *quick, cwd=folder, short=True, check=1)
    (record,) = records(failed)
    assert record["status"] == "failed" and "deliberate" in record["message"]
    write_model(folder / "fixed.onnx", batch=1)
    unsupported = ngb("bench", "fixed.onnx", "-c", "eager", *quick, cwd=folder, short=True, check=0)
    assert "unsupported" in {r["status"] for r in records(unsupported)}


@pytest.mark.parametrize(
    ("shell", "own"),
    [
        ("bash", "complete -o default -F _ngb_completion ngb"),
        ("zsh", "#compdef ngb"),
        ("fish", "complete --command ngb"),
    ],
)
def test_completion_scripts(shell: str, own: str, tmp_path: Path) -> None:
    """Each shell has its own, whatever shell this runs in."""
    done = ngb("completion", shell, cwd=tmp_path, check=0)
    assert "_NGB_COMPLETE" in done.stdout and own in done.stdout
    assert "'bash', 'zsh', 'fish'" in ngb("completion", "csh", cwd=tmp_path, check=2).stderr


def test_completion_answers(tmp_path: Path) -> None:
    env = {"_NGB_COMPLETE": "complete_bash", "COMP_WORDS": "ngb do", "COMP_CWORD": "1"}
    program = Path(sys.executable).with_name("ngb")
    done = subprocess.run(
        [program], env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["doctor"]


@pytest.mark.parametrize("arguments", ["show {run}", "show {run} --json", "list models"])
def test_a_reader_that_goes_away(arguments: str, finished: Path, folder: Path) -> None:
    words = arguments.format(run=finished)
    script = f"{sys.executable} -m ngraphbench {words} | exec true"
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
