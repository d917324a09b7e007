"""The user's inputs on the command line: what does not fit is said at once, with exit code 2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import ngb, records, write_model

from ngraphbench.cli.options import model_entries

NETS = """
import torch

class Two(torch.nn.Module):
    def forward(self, image, scale, bias=None):
        return image * scale if bias is None else image * scale + bias

def two():
    return Two()
"""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--input", "y=batchx8"], ["'y'", "the model has x", "own input names"]),
        (["--input", "x=batchx3x4"], ["'x' was given 3 dims", "[batch, 8]"]),
        (["--input", "x=batchx9"], ["fixed to [batch, 8]"]),
        (["--input", "x=int64:0..9"], ["given as int64", "takes float32"]),
        (["--shape", "z=1x8"], ["'z'", "the model has x"]),
        (["--inputs", "other.npz"], ["no array for input 'x'", "it has: w"]),
        (["--inputs", "none.npz"], ["none.npz"]),
        (["--inputs", "m.onnx"], ["cannot be read as an .npz file"]),
    ],
)
def test_inputs_that_do_not_fit_an_onnx_file(
    tmp_path: Path, options: list[str], words: list[str]
) -> None:
    write_model(tmp_path / "m.onnx")
    np.savez(tmp_path / "other.npz", w=np.zeros(3, np.float32))
    done = ngb("bench", "m.onnx", "-c", "onnxruntime", *options, "--json", cwd=tmp_path, check=2)
    assert records(done) == []
    assert done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in words), done.stderr
    assert not (tmp_path / "runs").exists()


def test_each_of_several_files_gets_the_inputs_it_has(tmp_path: Path) -> None:
    from onnx import load, save

    write_model(tmp_path / "a.onnx", batch="N")
    other = load(str(tmp_path / "a.onnx"))
    other.graph.input[0].name = other.graph.node[0].input[0] = "ids"
    save(other, str(tmp_path / "b.onnx"))
    entries = model_entries([str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx")], ["x=0..1"], None)
    assert [entry.get("inputs") for entry in entries] == [{"x": {"generator": "range:0:1"}}, None]
    wrong = ngb("bench", "a.onnx", "b.onnx", "--input", "q=0..1", cwd=tmp_path, check=2)
    assert "'q'" in wrong.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "Nothing says which inputs"),
        (["--input", "imag=batchx4"], "forward takes image, scale, bias"),
        (["--input", "image=batchx4"], "forward also needs scale"),
    ],
)
def test_inputs_that_do_not_fit_a_module(tmp_path: Path, options: list[str], words: str) -> None:
    pytest.importorskip("torch")
    (tmp_path / "nets.py").write_text(NETS)
    command = ("bench", "nets.py:two", "-c", "eager", "-b", "2", "--json", *options)
    done = ngb(*command, cwd=tmp_path, short=True, check=2)
    (record,) = records(done)
    assert (record["status"], record["reason"]) == ("unsupported", "input")
    assert words in record["message"]
    assert "--input" in record["detail"]["hint"] or "image" in record["detail"]["hint"]


@pytest.mark.slow
def test_inputs_that_fit_a_module(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "nets.py").write_text(NETS)
    given = ("--input", "image=batchx4", "--input", "scale=batchx4:0..2")
    command = ("bench", "nets.py:two", "-c", "eager", "-b", "2", "--json", *given)
    (record,) = records(ngb(*command, cwd=tmp_path, short=True, check=0))
    assert record["verification"]["reference"] == "eager-fp64"
