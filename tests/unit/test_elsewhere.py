"""The contract suite in another environment: what it needs is within reach, no more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ngraphbench.testing.elsewhere import suite_command
from ngraphbench.testing.workloads import SAMPLES_VARIABLE, write_samples, write_workload

SUITE = """
from ngraphbench.compilers.fake import FakeCompiler
from ngraphbench.testing import CompilerContract

class TestFake(CompilerContract):
    compiler = FakeCompiler()
    models = ("fake",)
    heavy = "fake"
"""


def test_a_foreign_interpreter_runs_the_suite_without_an_installation(tmp_path: Path) -> None:
    test_file = tmp_path / "test_fake.py"
    test_file.write_text(SUITE)
    folder = tmp_path / "suite"
    folder.mkdir()
    arguments = ("-q", "-k", "test_runs_repeat or test_options_are_declared")
    command, variables = suite_command(
        Path(sys.executable), test_file, folder=folder, arguments=arguments
    )
    # Without its site-packages, this interpreter has what the folder gives, and numpy.
    numpy = Path(np.__file__).parent
    for top in (numpy, numpy.with_name("numpy.libs")):
        if top.exists():
            (folder / "within" / top.name).symlink_to(top)
    alone = [command[0], "-S", *command[1:]]
    done = subprocess.run(
        alone, env=variables, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_samples_are_found_by_their_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = tmp_path / "samples"
    samples.mkdir()
    made = write_workload(tmp_path / "made", "mlp", batches=(2,)) / "b2" / "model.onnx"
    write_samples(samples, batches=(2,), seeds=(0,))
    monkeypatch.setenv(SAMPLES_VARIABLE, os.fspath(samples))
    copied = write_workload(tmp_path / "copied", "mlp", batches=(2,)) / "b2" / "model.onnx"
    assert copied.read_bytes() == made.read_bytes()
    with pytest.raises(FileNotFoundError):
        write_workload(tmp_path / "other", "mlp", batches=(2,), seed=7)
