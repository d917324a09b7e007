"""The inputs that an ONNX graph declares, with integer ranges from the tables they index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ngraphbench.errors import Unsupported
from ngraphbench.models.inputs import Declared, InputPlan, plan_inputs
from ngraphbench.models.onnxfile import graph_inputs, nodes
from ngraphbench.types import INTEGERS

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

__all__ = ["declared_inputs", "declared_shapes", "plan_graph_inputs"]

# Operators that hand the values of their first input on, so that a bound found behind
# them holds for the input itself.
_CARRIERS = (
    *("Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape"),
    *("Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
)


def plan_graph_inputs(model: ModelProto, overrides: Mapping[str, Any]) -> InputPlan:
    """Return the input plan of an ONNX model; the user's ``overrides`` win.

    Raises Unsupported for inputs that are not tensors (``input-type``), whose dtype cannot
    be fed (``dtype``), or that have no shape (``input-shape``).
    """
    return plan_inputs(declared_inputs(model), overrides)


def declared_inputs(model: ModelProto) -> tuple[Declared, ...]:
    """Return the inputs to feed, initializers left out, in the graph's order."""
    bounds = _index_bounds(model)
    return tuple(_declared(value, bounds) for value in graph_inputs(model))


def _declared(value: ValueInfoProto, bounds: Mapping[str, int]) -> Declared:
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
    bound = bounds.get(value.name, 0)
    generator = f"int:0:{bound}" if bound and dtype in INTEGERS else ""
    return Declared(name=value.name, dtype=dtype, shape=shape, generator=generator)


def _dims(value: ValueInfoProto) -> tuple[int | str, ...]:
    """Return the dims: an int, a symbol, or an empty text for 0, -1 and a dim without name."""
    return tuple(
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else dim.dim_param
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
        what = "strings" if onnx_name == "STRING" else f"values of dtype {onnx_name}"
        raise Unsupported(
            f"Input {name!r} takes {what}, which cannot be fed.",
            reason="dtype",
            hint="Cut the model behind the operators that turn them into numbers.",
        )
    return names[onnx_name]


def _index_bounds(model: ModelProto) -> dict[str, int]:
    """Return, by input name, the row count of the smallest table that the input indexes."""
    dims = _constant_dims(model)
    inputs = {value.name for value in graph_inputs(model)}
    origin = {name: {name} for name in inputs}
    bounds: dict[str, int] = {}
    for node in nodes(model.graph):
        for indices, rows in _lookups(node, dims):
            for name in origin.get(indices, ()):
                bounds[name] = min(rows, bounds.get(name, rows))
        if node.op_type in _CARRIERS:
            sources = node.input if node.op_type == "Concat" else node.input[:1]
            found = set().union(*(origin.get(source, set()) for source in sources))
            for output in node.output if found else ():
                origin.setdefault(output, set()).update(found)
    return bounds


def _constant_dims(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """Return the dims of every table by name: initializers, and what casts make of them."""
    dims = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for node in nodes(model.graph):
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    dims[node.output[0]] = tuple(attribute.t.dims)
        elif node.op_type in ("Cast", "DequantizeLinear", "Identity") and node.input[0] in dims:
            dims[node.output[0]] = dims[node.input[0]]
    return dims


def _lookups(node: NodeProto, dims: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    """Return (indices, rows) for every table that ``node`` looks up."""
    pairs: list[tuple[int, int]] = []
    axis = 0
    if node.op_type == "Gather":
        pairs = [(1, 0)]
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    elif node.op_type == "EmbedLayerNormalization":
        pairs = [(0, 2), (1, 4)]
    found = []
    for indices, table in pairs:
        if max(indices, table) < len(node.input):
            shape = dims.get(node.input[table], ())
            if -len(shape) <= axis < len(shape) and shape[axis] > 0:
                found.append((node.input[indices], int(shape[axis])))
    return found
