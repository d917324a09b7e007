"""Workload folders written by hand, without the exporter and without a vendor."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np

from ngraphbench.case import ModelRef, digest
from ngraphbench.testing.samples import SAMPLES, Sample
from ngraphbench.types import Arrays, TensorSpec, storage_dtype
from ngraphbench.workload import (
    INPUT_SETS,
    PORTABLE,
    PORTABLE_FILE,
    Workload,
    batch_folder,
    read_arrays,
    write_arrays,
)

__all__ = [
    "SAMPLES_VARIABLE",
    "draw_inputs",
    "fake_workload",
    "move_weights_out",
    "reference_arrays",
    "write_onnx",
    "write_samples",
    "write_workload",
]

SAMPLES_VARIABLE = "NGB_SAMPLES"
"""Names a folder of ``write_samples``, for environments that have no onnx."""

OPSET = 17
IR_VERSION = 8

_MODULE = '''\
"""Written for a test."""

from pathlib import Path

import numpy as np
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        with np.load(Path(__file__).with_name("weights.npz")) as weights:
            for name in weights.files:
                value = torch.from_numpy(np.array(weights[name]))
                self.register_parameter(name, torch.nn.Parameter(value, requires_grad=False))

'''


def write_workload(
    root: Path,
    sample: str,
    *,
    batches: Iterable[int] = (1, 2, 3),
    seed: int = 0,
    forms: tuple[str, ...] = ("onnx", "torch"),
) -> Path:
    """Return ``root`` after writing the sample model's workload folder there.

    Its references are computed with numpy in float64. ``seed`` decides weights and inputs.
    The form ``pt2`` needs torch here, ``onnx`` onnx.
    """
    model = SAMPLES[sample]
    root.mkdir(parents=True, exist_ok=True)
    weights = model.weights(np.random.default_rng(seed))
    np.savez(root / "weights.npz", **weights)  # type: ignore[arg-type]
    (root / "model.py").write_text(_MODULE + indent(model.forward, "    "))
    whole = {
        "forms": list(forms),
        "inputs": [spec.to_json() for spec in model.inputs],
        "model": _reference(root, model, seed=seed).to_json(),
        "weights": f"random(seed {seed})",
    }
    (root / "workload.json").write_text(json.dumps(whole, indent=1))
    batches = tuple(batches)
    for batch in batches:
        _write_batch(batch_folder(root, batch), model, weights, batch=batch, forms=forms)
    if PORTABLE in forms:
        _write_portable(root, batches, key=(sample, seed))
    return root


def fake_workload(root: Path, batches: Iterable[int] = (1, 2, 8)) -> Path:
    """Return ``root`` after writing the workload of ``y = 2 x + 1`` for ``FakeCompiler``.

    ``x`` and ``y`` are float32 of shape [batch, 4]; the model's kind is ``fake``.
    """
    write_workload(root, "fake", batches=batches)
    whole = json.loads((root / "workload.json").read_text())
    content = digest(["fake", "2x+1"])
    whole["model"] = ModelRef(source="fake", label="fake", kind="fake", content=content).to_json()
    (root / "workload.json").write_text(json.dumps(whole, indent=1))
    return root


def write_onnx(path: Path, sample: str, *, batch: int | str = "batch", seed: int = 0) -> Path:
    """Return ``path`` after writing the sample as an ONNX file; a str batch stays symbolic."""
    model = SAMPLES[sample]
    return _write_onnx(path, model, model.weights(np.random.default_rng(seed)), batch=batch)


def move_weights_out(root: Path, *, batch: int) -> Path:
    """Return the file that the weights of a workload's ONNX file now lie in.

    It has a second name elsewhere, as has the data file of a model that was bound. Needs onnx.
    """
    import onnx
    from onnx.external_data_helper import set_external_data

    path = batch_folder(root, batch) / "model.onnx"
    data = path.with_name("model.onnx.data")
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        # Shapes are told with the graph.
        if tensor.data_type == onnx.TensorProto.FLOAT:
            set_external_data(tensor, data.name)
    onnx.save(model, path)
    os.link(data, root / data.name)
    return data


def draw_inputs(specs: Iterable[TensorSpec], *, seed: int = 0) -> Arrays:
    """Return seeded arrays for concrete specs, made as their generators say."""
    rng = np.random.default_rng(seed)
    return {spec.name: _drawn(rng, spec) for spec in specs}


def reference_arrays(root: Path, *, batch: int, which: str = "a") -> Arrays:
    """Return the reference outputs of one input set by name."""
    return read_arrays(batch_folder(root, batch) / f"reference-{which}.npz")


def write_samples(folder: Path, *, batches: Iterable[int], seeds: Iterable[int] = (0, 1)) -> Path:
    """Return ``folder`` after writing every sample's ONNX file there, for each batch and seed.

    ``write_workload`` takes them from the folder that ``SAMPLES_VARIABLE`` names.
    """
    for model, batch, seed in itertools.product(SAMPLES.values(), tuple(batches), tuple(seeds)):
        weights = model.weights(np.random.default_rng(seed))
        path = folder / _sample_name(model, weights, batch=batch)
        _make_onnx(path, model, weights, batch=batch)
    return folder


def _reference(root: Path, model: Sample, *, seed: int) -> ModelRef:
    return ModelRef(
        source="model.py:Model",
        label=model.name,
        kind="file",
        content=digest([model.name, model.forward, seed]),
        path=str(root / "model.py"),
        seed=seed,
    )


def _write_batch(
    folder: Path, model: Sample, weights: Arrays, *, batch: int, forms: tuple[str, ...]
) -> None:
    folder.mkdir(exist_ok=True)
    inputs, outputs = _bound(model.inputs, batch), _bound(model.outputs, batch)
    bound = {
        "forms": list(forms),
        "export_error": "",
        "inputs": [spec.to_json() for spec in inputs],
        "axes": {spec.name: 0 for spec in inputs},
        "outputs": [spec.to_json() for spec in outputs],
        "reference": "eager-fp64",
        "deterministic": True,
        "constant": False,
        "baseline_rel_l2": None,
        "notes": [],
    }
    (folder / "batch.json").write_text(json.dumps(bound, indent=1))
    if "onnx" in forms:
        _write_onnx(folder / "model.onnx", model, weights, batch=batch)
    wide = {name: value.astype(np.float64) for name, value in weights.items()}
    for seed, which in enumerate(INPUT_SETS):
        arrays = draw_inputs(inputs, seed=100 + seed)
        write_arrays(folder / f"inputs-{which}.npz", arrays)
        exact = {name: value.astype(np.float64) for name, value in arrays.items()}
        result = model.evaluate(wide, exact)
        cast = {s.name: result[s.name].astype(storage_dtype(s.dtype)) for s in outputs}
        write_arrays(folder / f"reference-{which}.npz", cast)


def _write_portable(root: Path, batches: Iterable[int], *, key: tuple[str, int]) -> None:
    import torch

    from ngraphbench.models.modules import build_module
    from ngraphbench.models.portable import export_program

    for batch in batches:
        workload = Workload.open(root, batch=batch)
        path, made = workload.folder / PORTABLE_FILE, (*key, batch)
        if made not in _PORTABLE:
            arrays = workload.input_arrays("a")
            tensors = {spec.name: torch.from_numpy(arrays[spec.name]) for spec in workload.inputs}
            export_program(build_module(workload), tensors, path=path)
            _PORTABLE[made] = path.read_bytes()
        path.write_bytes(_PORTABLE[made])


_PORTABLE: dict[tuple[str, int, int], bytes] = {}
"""Exported samples by name, seed and batch: a suite writes the same ones in every test."""


def _bound(specs: Iterable[TensorSpec], batch: int | str) -> tuple[TensorSpec, ...]:
    return tuple(replace(spec, shape=(batch, *spec.shape[1:])) for spec in specs)


def _drawn(rng: np.random.Generator, spec: TensorSpec) -> Any:
    shape = tuple(int(dim) for dim in spec.shape)
    kind, *arguments = spec.generator.split(":")
    if kind == "int":
        low, high = map(int, arguments)
        return rng.integers(low, high, size=shape).astype(spec.dtype)
    return rng.standard_normal(shape).astype(spec.dtype)


def _write_onnx(path: Path, model: Sample, weights: Arrays, *, batch: int | str) -> Path:
    samples = os.environ.get(SAMPLES_VARIABLE)
    if not samples:
        return _make_onnx(path, model, weights, batch=batch)
    shutil.copyfile(Path(samples) / _sample_name(model, weights, batch=batch), path)
    return path


def _sample_name(model: Sample, weights: Arrays, *, batch: int | str) -> str:
    # By content: another numpy that drew other weights must not get a foreign file.
    content = digest([model.name, batch, *(value.tobytes().hex() for value in weights.values())])
    return f"{model.name}-{content[:16]}.onnx"


def _make_onnx(path: Path, model: Sample, weights: Arrays, *, batch: int | str) -> Path:
    import onnx
    from onnx import helper, numpy_helper

    def info(spec: TensorSpec) -> Any:
        element = helper.np_dtype_to_tensor_dtype(storage_dtype(spec.dtype))
        return helper.make_tensor_value_info(spec.name, element, list(spec.shape))

    graph = helper.make_graph(
        [
            helper.make_node(op, ins, outs, **attributes)
            for op, ins, outs, attributes in model.nodes
        ],
        model.name,
        [info(spec) for spec in _bound(model.inputs, batch)],
        [info(spec) for spec in _bound(model.outputs, batch)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION), path)
    return path
