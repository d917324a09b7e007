"""Inputs and outputs of OpenVINO models as ours. Reached for from ``openvino`` alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ngraphbench.types import BFLOAT16, TensorSpec

__all__ = ["port_spec"]


def port_spec(port: Any) -> TensorSpec:
    """Return an input or output of a model; a first dim that is free is the batch."""
    name = port.get_any_name()
    dims = enumerate(port.get_partial_shape())
    shape = tuple(d.get_length() if d.is_static else _free(name, axis) for axis, d in dims)
    kind = port.get_element_type()
    dtype = BFLOAT16 if kind.get_type_name() == "bf16" else np.dtype(kind.to_dtype()).name
    return TensorSpec(name, dtype, shape)


def _free(name: str, axis: int) -> str:
    return "batch" if axis == 0 else f"?{name}.{axis}"
