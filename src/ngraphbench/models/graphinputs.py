"""The inputs that an ONNX graph declares, with the integers that fit it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ngraphbench.errors import Unsupported
from ngraphbench.models.inputs import Declared, InputPlan, plan_inputs
from ngraphbench.models.integers import integer_generators
from ngraphbench.models.onnxgraph import graph_inputs
from ngraphbench.types import INTEGERS

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

__all__ = ["declared_inputs", "declared_shapes", "plan_graph_inputs"]


def plan_graph_inputs(model: ModelProto, overrides: Mapping[str, Any]) -> InputPlan:
    """Return the input plan of an ONNX model; the user's ``overrides`` win.

    Raises Unsupported for inputs that are not tensors (``input-type``), whose dtype cannot
    be fed (``dtype``), or that have no shape (``input-shape``).
    """
    return plan_inputs(declared_inputs(model), overrides)


def declared_inputs(model: ModelProto) -> tuple[Declared, ...]:
    """Return the inputs to feed, initializers left out, in the graph's order."""
    try:
        generators = integer_generators(model)
    except (LookupError, ValueError, TypeError, ArithmeticError, RecursionError):
        # What fits a broken graph nobody can tell; who opens it says what is wrong with it.
        generators = {}
    return tuple(_declared(value, generators) for value in graph_inputs(model))


def _declared(value: ValueInfoProto, generators: Mapping[str, str]) -> Declared:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise Unsupported(
            f"Input {value.name!r} is a {(kind or 'value of no type').removesuffix('_type')},"
            " not a tensor.",
            reason="input-type",
            hint="Export the model with tensor inputs only.",
        )
    tensor = value.type.tensor_type
    dtype = _dtype_name(value.name, tensor.elem_type)
    shape = _dims(value) if tensor.HasField("shape") else None
    generator = generators.get(value.name, "") if dtype in INTEGERS else ""
    return Declared(name=value.name, dtype=dtype, shape=shape, generator=generator)


# What exporters write for a dim that has no name: two of them need not be equal.
_NAMELESS = ("?", "-1", "None")


def _dims(value: ValueInfoProto) -> tuple[int | str, ...]:
    """Return the dims: an int, a symbol, or an empty text for 0, -1 and a dim without name."""
    return tuple(
        dim.dim_value
        if dim.HasField("dim_value") and dim.dim_value > 0
        else ("" if dim.dim_param in _NAMELESS else dim.dim_param)
        for dim in value.type.tensor_type.shape.dim
    )


def declared_shapes(model: ModelProto) -> dict[str, tuple[int | str, ...]]:
    """Return the shapes that the graph declares for its outputs, where it declares any."""
    return {
        value.name: _dims(value)
        for value in model.graph.output
        if value.type.tensor_type.HasField("shape")
    }


def _dtype_name(name: str, elem_type: int) -> str:
    from onnx import TensorProto

    names = {
        "FLOAT": "float32",
        "DOUBLE": "float64",
        "FLOAT16": "float16",
        "BFLOAT16": "bfloat16",
        "BOOL": "bool",
        **{dtype.upper(): dtype for dtype in INTEGERS},
    }
    try:
        onnx_name = str(TensorProto.DataType.Name(elem_type))
    except ValueError:
        onnx_name = f"type {elem_type}"
    if onnx_name not in names:
        hint = "Cut the model behind the operators that turn them into numbers."
        what = f"values of dtype {onnx_name}"
        if onnx_name == "STRING":
            what, hint = "strings", f"--inputs takes numbers alone. {hint}"
        raise Unsupported(
            f"Input {name!r} takes {what}, which cannot be fed.", reason="dtype", hint=hint
        )
    return names[onnx_name]
