"""Files that a compiler made elsewhere: whose they are, and what is said of their outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from plan_fixture import COMPILERS, FACTS, Fake, labels, write_models

from ngraphbench import plugin
from ngraphbench.errors import SpecError, Unsupported
from ngraphbench.models.exporter import Exporter
from ngraphbench.models.sources import resolve_model
from ngraphbench.plan import Plan, make_plan
from ngraphbench.session.export import load_references
from ngraphbench.session.verify import check
from ngraphbench.spec import build_experiment
from ngraphbench.types import Device, Json, OptionValue, TensorSpec
from ngraphbench.workload import Workload


class Maker(Fake):
    name: ClassVar[str] = "maker"
    prebuilt: ClassVar[Mapping[str, tuple[str, ...]]] = {".made": (".weights",)}

    def signature(
        self, path: Path, given: Sequence[TensorSpec]
    ) -> tuple[Sequence[TensorSpec], Sequence[TensorSpec]]:
        raise AssertionError("A plan reads no artefacts.")

    def open_prebuilt(
        self, path: Path, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Any:
        raise AssertionError("A plan opens no artefacts.")


ALL = {**COMPILERS, "maker": f"{__name__}:Maker"}
SIGNATURE: Json = {
    "inputs": [TensorSpec("x", "float32", ("batch", 1)).to_json()],
    "outputs": [TensorSpec("y", "float32", ("batch", "?y.1")).to_json()],
}


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(plugin, "discover", lambda: ALL)
    (tmp_path / "model.made").write_bytes(b"code")
    (tmp_path / "model.weights").write_bytes(b"weights")
    return write_models(tmp_path)


def plan_of(base: Path, model: str) -> Plan:
    data = {"name": "t", "models": [model], "compilers": ["maker", "tuner"], "batch_sizes": [2]}
    return make_plan(build_experiment(data), base=base, compilers=ALL, facts=FACTS)


def test_one_compiler_runs_it_and_there_is_no_baseline(base: Path) -> None:
    plan = plan_of(base, "model.made")
    (session,) = plan.sessions
    assert labels(session) == ["maker"]
    assert session.cases[0].model.kind == "artefact:maker"
    assert session.cases[0].model.label == "model.made"
    assert session.baseline_case(session.cases[0]) is None
    (skipped,) = plan.skipped
    assert (skipped.status, skipped.reason) == ("unsupported", "form")
    assert skipped.message == "tuner takes onnx models; model.made is an artefact:maker."


def test_it_is_told_apart_by_all_its_files(base: Path) -> None:
    contents = {resolve_model("model.made", base=base).content}
    contents.add(resolve_model("model.made?reference=a.onnx", base=base).content)
    contents.add(resolve_model("model.made?reference=b.onnx", base=base).content)
    (base / "model.weights").write_bytes(b"others")
    contents.add(resolve_model("model.made", base=base).content)
    assert len(contents) == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("none.made", "no model file"),
        ("model.made?depth=3", "compiled already"),
        ("model.made?reference=none.onnx", "no reference"),
        ("model.other", "is not a model"),
    ],
)
def test_what_cannot_be_is_refused(base: Path, text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        resolve_model(text, base=base)


def exported(base: Path, text: str, *, signature: Json | None) -> tuple[Path, Json]:
    model = resolve_model(text, base=base).to_json()
    exporter, root = Exporter(), base / "workload"
    exporter.open({"model": model, "root": str(root), "signature": signature})
    return root, exporter.batch({"batch": 2, "seed": 0})


def test_without_a_reference_nothing_is_said_to_be_right(base: Path) -> None:
    root, made = exported(base, "model.made", signature=SIGNATURE)
    assert made["forms"] == ["artefact:maker"] and made["reference"] == "none"
    assert not made["constant"] and made["spread"] is None
    workload = Workload.open(root, batch=2)
    assert workload.artefact_path.read_bytes() == b"code"
    assert workload.artefact_path.with_suffix(".weights").read_bytes() == b"weights"
    assert workload.outputs[0].shape == (2, "?1")
    found = load_references(root, 2)["a"]
    verdict = check({"y": np.ones((2, 5), np.float32)}, found, "fp32")
    assert (verdict.verdict, verdict.reason, verdict.reference) == (
        "unverifiable",
        "prebuilt",
        "none",
    )
    assert verdict.rel_l2 is None and verdict.outputs[0]["shape"] == [2, 5]
    assert check({}, found, "fp32").verdict == "wrong"


def test_with_a_reference_it_is_compared(base: Path) -> None:
    root, made = exported(base, "model.made?reference=b.onnx", signature=None)
    assert made["forms"] == ["artefact:maker"] and made["reference"] != "none"
    assert not (root / "b2" / "model.onnx").exists()
    workload = Workload.open(root, batch=2)
    found = load_references(root, 2)["a"]
    twice = workload.input_arrays("a")["x"] * 2
    assert check({"y": twice}, found, "fp32").verdict == "ok"
    assert check({"y": twice + 1}, found, "fp32").verdict == "wrong"


def test_what_nobody_can_read_needs_its_source(base: Path) -> None:
    with pytest.raises(Unsupported, match="cannot be asked") as caught:
        exported(base, "model.made", signature=None)
    assert "?reference=MODEL.onnx" in caught.value.hint


def test_only_plugins_that_can_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "discover", lambda: ALL)
    assert plugin.prebuilt_suffixes() == {".made": ("maker", (".weights",))}
