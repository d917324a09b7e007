"""The exporter process, end to end, over its socket."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngraphbench.models.sources import resolve_model
from ngraphbench.models.values import from_bfloat16
from ngraphbench.worker.protocol import receive, send
from ngraphbench.workload import Workload, read_arrays

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.cases.onnx_cases import write_cases

ROOT = Path(__file__).parents[2]
TORCH_CASES = "tests/cases/torch_cases.py"

Ask = Callable[..., dict[str, Any]]


@contextmanager
def exporter(log: Path | None = None) -> Iterator[Ask]:
    ours, theirs = socket.socketpair()
    with ours, theirs, (log or Path("/dev/null")).open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "ngraphbench.models.exporter", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        theirs.close()
        ours.settimeout(240)

        def ask(op: str, **fields: Any) -> dict[str, Any]:
            send(ours, {"id": 1, "op": op, **fields})
            return receive(ours)

        try:
            yield ask
            assert ask("close")["ok"]
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()
            process.wait()


def opened(ask: Ask, text: str, root: Path, *, base: Path = ROOT, **wishes: Any) -> dict[str, Any]:
    model = resolve_model(text, base=base, **wishes).to_json()
    return ask("open", model=model, root=str(root), precision="fp32", seed=0, shapes={})


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    return write_cases(tmp_path_factory.mktemp("cases"))


def test_an_onnx_file_becomes_a_workload(tmp_path: Path, cases: dict[str, dict]) -> None:
    with exporter() as ask:
        reply = opened(ask, cases["external_odd_dir"]["file"], tmp_path)
        assert (reply["forms"], reply["weights"]) == (["onnx"], "file")
        assert reply["inputs"][0]["shape"] == ["batch", 8]
        bound = ask("batch", batch=3, seed=0)
    assert bound["ok"]
    assert bound["reference"] == "onnxruntime:level=none-fp64"
    assert (bound["deterministic"], bound["constant"]) == (True, False)
    workload = Workload.open(tmp_path, batch=3)
    assert workload.inputs[0].shape == (3, 8)
    assert workload.outputs[0].shape == (3, 4)
    assert (workload.folder / "model.onnx.data").stat().st_nlink > 1
    weights = np.frombuffer((workload.folder / "model.onnx.data").read_bytes(), np.float32)
    expected = workload.input_arrays("b")["x"] @ weights.reshape(8, 4)
    found = read_arrays(workload.folder / "reference-b.npz")["y"]
    assert np.allclose(found, expected, atol=1e-5)


def test_what_an_onnx_reference_is_worth_is_said(tmp_path: Path, cases: dict[str, dict]) -> None:
    expected = {
        "random_op": ("non-deterministic", 4),
        "constant_output": ("output-has-no-batch", 4),
        "dynamic_quant_batch": ("rows-depend-on-batch", 4),
        "axis0_not_a_batch": ("rows-depend-on-batch", 4),
        "nan_from_random": ("not-finite", 4),
    }
    with exporter() as ask:
        for name, (note, batch) in expected.items():
            assert opened(ask, cases[name]["file"], tmp_path / name)["ok"], name
            bound = ask("batch", batch=batch)
            assert any(n.startswith(note) for n in bound["notes"]), (name, bound["notes"])
        opened(ask, cases["unsorted_nodes"]["file"], tmp_path / "unsorted")
        whole = json.loads((tmp_path / "unsorted" / "workload.json").read_text())
    assert whole["notes"][0].startswith("invalid-onnx")


def test_onnx_models_that_cannot_be_bound_are_errors_with_a_reason(
    tmp_path: Path, cases: dict[str, dict]
) -> None:
    expected = {
        "batch_folded_silently": "batch-fixed",
        "batch_hardcoded_reshape": "batch-fixed",
        "no_inputs": "batch-fixed",
        "custom_op": "operator",
    }
    with exporter() as ask:
        for name, reason in expected.items():
            assert opened(ask, cases[name]["file"], tmp_path / name)["ok"], name
            error = ask("batch", batch=4)["error"]
            assert (error["type"], error["reason"]) == ("Unsupported", reason), name
        assert ask("batch", batch=0)["error"]["type"] == "Unsupported"


def test_sizes_are_tried_until_one_runs(tmp_path: Path, cases: dict[str, dict]) -> None:
    with exporter() as ask:
        opened(ask, cases["min_length"]["file"], tmp_path)
        assert ask("batch", batch=1)["inputs"][0]["shape"] == [1, 1, 256]
        assert ask("batch", batch=2)["inputs"][0]["shape"] == [2, 1, 256]


def test_bfloat16_travels_as_its_bits(tmp_path: Path, cases: dict[str, dict]) -> None:
    with exporter() as ask:
        opened(ask, cases["bf16_io"]["file"], tmp_path)
        bound = ask("batch", batch=2)
    assert bound["outputs"][0]["dtype"] == "bfloat16"
    x = read_arrays(tmp_path / "b2" / "inputs-a.npz")["x"]
    assert x.dtype == np.uint16
    y = read_arrays(tmp_path / "b2" / "reference-a.npz")["y"]
    assert y.dtype == np.float64 and np.allclose(y, from_bfloat16(x).astype(np.float64) ** 2)


def test_a_users_arrays_are_the_inputs(tmp_path: Path, cases: dict[str, dict]) -> None:
    given = np.arange(4, dtype=np.float32).reshape(2, 2)
    np.savez(tmp_path / "given.npz", x=given)
    file = cases["duplicate_node_names"]["file"]
    with exporter() as ask:
        opened(ask, file, tmp_path / "w", inputs_file=str(tmp_path / "given.npz"))
        bound = ask("batch", batch=2)
        assert ask("batch", batch=8)["error"]["reason"] == "batch-fixed"
    assert bound["inputs"][0]["generator"] == "file"
    assert np.array_equal(read_arrays(tmp_path / "w" / "b2" / "inputs-a.npz")["x"], given)


def test_a_factory_becomes_a_workload_in_both_forms(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.table = torch.nn.Embedding(50, 8)\n"
        "    def forward(self, ids, scale=None):\n"
        "        print('from user code')\n"
        "        rows = self.table(ids)\n"
        "        return {'sum': rows.sum(1), 'best': rows.sum(1).argmax(-1)}\n"
        "def net():\n"
        "    return Net(), lambda b: (torch.randint(0, 50, (b, 6)),)\n"
    )
    with exporter(tmp_path / "log") as ask:
        reply = opened(ask, "nets.py:net", tmp_path / "w", base=tmp_path, seed=3)
        assert reply["weights"] == "random(seed 3)"
        assert reply["inputs"] == [
            {"name": "ids", "dtype": "int64", "shape": ["batch", 6], "generator": "file"}
        ]
        for batch in (1, 4):
            bound = ask("batch", batch=batch)
            assert sorted(bound["forms"]) == ["onnx", "torch"], bound
            assert [o["name"] for o in bound["outputs"]] == ["output.sum", "output.best"]
            assert [o["dtype"] for o in bound["outputs"]] == ["float32", "int64"]
            assert bound["reference"] == "eager-fp64"
            assert bound["baseline_rel_l2"] < 1e-6
    assert "from user code" in (tmp_path / "log").read_text()
    arrays = read_arrays(tmp_path / "w" / "b4" / "reference-a.npz")
    assert (arrays["output.sum"].dtype, arrays["output.best"].dtype) == (np.float64, np.int64)
    assert (tmp_path / "w" / "weights.pt").is_file()


@pytest.mark.slow
def test_a_timm_model_and_its_onnx_form_agree(tmp_path: Path) -> None:
    import onnxruntime

    with exporter() as ask:
        reply = opened(ask, "timm:test_vit?img_size=64&num_classes=7", tmp_path)
        assert reply["inputs"][0]["shape"] == ["batch", 3, 64, 64]
        bound = ask("batch", batch=2)
    assert sorted(bound["forms"]) == ["onnx", "torch"], bound["export_error"]
    workload = Workload.open(tmp_path, batch=2)
    session = onnxruntime.InferenceSession(str(workload.onnx_path))
    (found,) = session.run(["output"], workload.input_arrays("a"))
    assert np.allclose(found, read_arrays(workload.folder / "reference-a.npz")["output"], atol=1e-4)


@pytest.mark.slow
def test_an_export_does_not_keep_the_batch_of_its_example(tmp_path: Path) -> None:
    import onnxruntime

    with exporter() as ask:
        opened(ask, f"{TORCH_CASES}:batch_in_python", tmp_path)
        for batch in (2, 3):
            bound = ask("batch", batch=batch)
            assert "onnx" in bound["forms"], bound
            workload = Workload.open(tmp_path, batch=batch)
            session = onnxruntime.InferenceSession(str(workload.onnx_path))
            (found,) = session.run(None, workload.input_arrays("a"))
            assert found.shape == (batch, 8)


@pytest.mark.slow
def test_torch_cases_say_what_is_odd_about_them(tmp_path: Path) -> None:
    with exporter() as ask:

        def batch(name: str, size: int = 3) -> dict[str, Any]:
            assert opened(ask, f"{TORCH_CASES}:{name}", tmp_path / name)["ok"], name
            return ask("batch", batch=size)

        bound = batch("data_dependent")
        assert bound["forms"] == ["torch"]
        assert bound["export_error"].startswith("torch.onnx (dynamo): ")
        assert "\n" not in bound["export_error"]
        bound = batch("dict_out")
        assert [o["name"] for o in bound["outputs"]] == ["output.b", "output.a.c", "output.l.0"]
        assert not batch("functional_dropout")["deterministic"]
        assert any(n.startswith("output-has-no-batch") for n in batch("hard_batch")["notes"])
        assert batch("in_place_input")["deterministic"]
        assert batch("prints_a_lot")["ok"]
        error = batch("no_tensor_out")["error"]
        assert (error["type"], error["reason"]) == ("RunFailed", "no-tensor-output")


@pytest.mark.slow
def test_a_module_without_known_inputs_asks_for_them(tmp_path: Path) -> None:
    with exporter() as ask:
        error = opened(ask, "torch.nn:ReLU", tmp_path)["error"]
        assert (error["type"], error["reason"]) == ("Unsupported", "input")
        assert "--input input=" in error["hint"]
        assert ask("batch", batch=1)["error"]["type"] == "WorkerFailed"
        reply = opened(ask, "torch.nn:ReLU", tmp_path, inputs={"input": {"shape": [1, 4]}})
        assert reply["inputs"][0]["shape"] == ["batch", 4]
        assert ask("batch", batch=2)["outputs"][0]["shape"] == [2, 4]


@pytest.mark.slow
def test_a_checkpoint_is_loaded(tmp_path: Path) -> None:
    import torch

    (tmp_path / "nets.py").write_text(
        "import torch\n"
        "def net(width=3): return torch.nn.Linear(2, width), lambda b: (torch.randn(b, 2),)\n"
    )
    state = {"weight": torch.zeros(3, 2), "bias": torch.tensor([1.0, 2.0, 3.0])}
    torch.save({"state_dict": state}, tmp_path / "w.pt")
    with exporter() as ask:
        root = tmp_path / "w"
        reply = opened(ask, "nets.py:net", root, base=tmp_path, checkpoint="w.pt")
        assert reply["weights"] == "checkpoint w.pt"
        bound = ask("batch", batch=2)
        assert bound["constant"]
        wrong = opened(ask, "nets.py:net?width=4", root, base=tmp_path, checkpoint="w.pt")
    assert wrong["error"]["reason"] == "checkpoint"
    assert read_arrays(root / "b2" / "reference-a.npz")["output"].tolist() == [[1, 2, 3]] * 2
