"""A worker that is not Python: measured, verified and refused like any other."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import ngb, records
from steady import as_steady

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parent / "runner" / "runner.cpp"


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("There is no g++ here to build the runner with.")
    built = tmp_path_factory.mktemp("runner") / "relu runner"
    subprocess.run([compiler, "-O2", "-std=c++17", "-o", built, SOURCE], check=True)
    return built


def write_model(path: Path, op: str) -> Path:
    import onnx
    from onnx import TensorProto, helper

    shape = ["batch", 64]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], op, info[:1], info[1:])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def test_a_command_in_another_language_is_a_compiler(runner: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "relu.onnx", "Relu")
    external = f"external:command='{runner}'"
    asked = ("-c", "onnxruntime", "-c", external, "-b", "1,8", "--json")
    done = ngb("bench", model, *asked, cwd=tmp_path, short=True, check=0)
    found = [as_steady(one) for one in records(done) if one["label"].startswith("external")]
    assert [one["case"]["batch"] for one in found] == [1, 8]
    for one in found:
        assert (one["status"], one["stage"]) == ("ok", "measure")
        assert one["verification"]["verdict"] == "ok"
        assert one["environment"]["compiler_version"] == "1.0"
        assert one["summary"]["vs_baseline"]["low"] > 0
        assert one["measurement"]["calls"] > 0


def test_what_it_refuses_is_unsupported_and_what_is_missing_unavailable(
    runner: Path, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "tanh.onnx", "Tanh")
    compilers = ("-c", f"external:command='{runner}'", "-c", "external:command=./no-such-runner")
    asked = ("-c", "onnxruntime", *compilers, "-b", "1", "--json")
    done = ngb("bench", model, *asked, cwd=tmp_path, short=True, check=0)
    refused, missing = (one for one in records(done) if one["label"].startswith("external"))
    assert (refused["status"], refused["reason"]) == ("unsupported", "operator")
    assert refused["message"] == "This runner runs one Relu, and nothing else."
    assert (missing["status"], missing["reason"]) == ("unavailable", "command")
    assert "no program './no-such-runner'" in missing["message"]
