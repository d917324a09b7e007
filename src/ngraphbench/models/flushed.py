"""A copy of a workload whose weights hold zeros in place of denormal numbers.

What the same compiler makes of the copy shows what the denormals cost it: the programs differ
in nothing else.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from ngraphbench.models.denormals import without_denormals
from ngraphbench.models.modules import WEIGHTS_FILE
from ngraphbench.models.onnxdata import load_whole
from ngraphbench.models.onnxgraph import tensors
from ngraphbench.workload import CALIBRATION, batch_folder, flushed_root

__all__ = ["COPIED_BYTES_MAX", "write_flushed"]

COPIED_BYTES_MAX = 1024**3
"""Larger models are not copied: an ONNX file in one piece has to stay below 2 GiB."""


def write_flushed(root: Path, batch: int) -> bool:
    """Write the copy of one batch size of the workload in ``root``; False for a large model."""
    source, target = batch_folder(root, batch), batch_folder(flushed_root(root), batch)
    weights = root / WEIGHTS_FILE
    model = source / "model.onnx"
    size = sum(path.stat().st_size for path in (weights, *source.iterdir()) if path.is_file())
    if size > COPIED_BYTES_MAX:
        return False
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    shutil.copy(root / "workload.json", flushed_root(root))
    if weights.exists() and not (flushed_root(root) / WEIGHTS_FILE).exists():
        _flush_weights(weights, flushed_root(root) / WEIGHTS_FILE)
    if model.exists():
        _flush_model(model, target / model.name)
    for path in (*source.glob("inputs-*.npz"), *source.glob(CALIBRATION)):
        shutil.copy(path, target)
    shutil.copy(source / "batch.json", target)
    return True


def _flush_weights(source: Path, target: Path) -> None:
    import torch

    state = torch.load(source, map_location="cpu", weights_only=True)
    torch.save({name: _flushed(value) for name, value in state.items()}, target)


def _flushed(value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    limit = torch.finfo(value.dtype).tiny
    # float16 is left as it is: its denormals are ordinary small weights.
    small = torch.zeros_like(value, dtype=torch.bool)
    if value.dtype != torch.float16:
        small = value.abs() < limit
    return torch.where(small, torch.zeros_like(value), value)


def _flush_model(source: Path, target: Path) -> None:
    from onnx import TensorProto, numpy_helper

    model = load_whole(source)
    for tensor in tensors(model):
        if tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE):
            values = np.asarray(numpy_helper.to_array(tensor))
            name = tensor.name
            tensor.CopyFrom(numpy_helper.from_array(without_denormals(values), name))
    target.write_bytes(model.SerializeToString())
