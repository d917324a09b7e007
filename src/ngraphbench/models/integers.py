"""Which integers an ONNX graph takes: told by tables and comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ngraphbench.models.onnxgraph import graph_inputs, nodes
from ngraphbench.types import Array

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

__all__ = ["integer_generators"]

# Operators that hand the values of their first input on, so that what is found behind them
# holds for the input itself.
_CARRIERS = (
    *("Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape"),
    *("Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
)
_BROADCAST = ("Add", "Div", "Mul", "Sub")


def integer_generators(model: ModelProto) -> dict[str, str]:
    """Return how values are made of each input that the graph says something about.

    Indices stay below the rows of the smallest table, and classes below the depth of a
    one-hot code, also where that is written as a comparison with 0, 1, 2 ... A single number
    that is compared for equality with a constant, as a sampling rate is that chooses a branch,
    takes the first such constant.
    """
    known = _Constants(model)
    single = {value.name for value in graph_inputs(model) if _is_single(value)}
    origin = {value.name: {value.name} for value in graph_inputs(model)}
    bounds: dict[str, int] = {}
    equal: dict[str, int] = {}
    for node in nodes(model.graph):
        for indices, rows in _lookups(node, known):
            for name in origin.get(indices, ()):
                bounds[name] = min(rows, bounds.get(name, rows))
        for value, number in _comparisons(node, known):
            for name in origin.get(value, set()) & single:
                equal.setdefault(name, number)
        if node.op_type in _CARRIERS:
            sources = node.input if node.op_type == "Concat" else node.input[:1]
            found = set().union(*(origin.get(source, set()) for source in sources))
            for output in node.output if found else ():
                origin.setdefault(output, set()).update(found)
    ranges = {name: f"int:0:{rows}" for name, rows in bounds.items()}
    return {name: f"const:{number}" for name, number in equal.items()} | ranges


def _is_single(value: ValueInfoProto) -> bool:
    """Return whether an input is declared to hold one number."""
    if not value.type.tensor_type.HasField("shape"):
        return False
    return all(dim.dim_value == 1 for dim in value.type.tensor_type.shape.dim)


class _Constants:
    """Dims of every table by name, and the values of those that are small rows of numbers."""

    def __init__(self, model: ModelProto) -> None:
        self.dims: dict[str, tuple[int, ...]] = {}
        self._rows: dict[str, TensorProto] = {}
        for tensor in model.graph.initializer:
            self._add(tensor.name, tensor)
        for node in nodes(model.graph):
            source = node.input[0] if node.input else ""
            if node.op_type == "Constant":
                for attribute in node.attribute:
                    if attribute.name == "value":
                        self._add(node.output[0], attribute.t)
            elif node.op_type in ("Cast", "DequantizeLinear", "Identity") and source in self.dims:
                self.dims[node.output[0]] = self.dims[source]
                if node.op_type != "DequantizeLinear" and source in self._rows:
                    self._rows[node.output[0]] = self._rows[source]
            elif node.op_type in _BROADCAST and all(name in self.dims for name in node.input):
                # Tables kept as small integers are multiplied by their scale.
                shapes = (self.dims[name] for name in node.input)
                self.dims[node.output[0]] = np.broadcast_shapes(*shapes)

    def _add(self, name: str, tensor: TensorProto) -> None:
        self.dims[name] = tuple(tensor.dims)
        # Numbers kept outside of the file are never read here.
        if sum(dim != 1 for dim in tensor.dims) <= 1 and tensor.data_location != tensor.EXTERNAL:
            self._rows[name] = tensor

    def number(self, name: str) -> int | None:
        """Return the whole number that ``name`` holds; None when it is no such constant."""
        row = self._row(name)
        if row is None or row.size != 1 or row.dtype.kind not in "iuf":
            return None
        value = float(row.item())
        return int(value) if value.is_integer() else None

    def counted(self, name: str) -> int:
        """Return n where ``name`` holds the numbers 0 to n - 1 in order, else 0."""
        row = self._row(name)
        if row is None or row.size < 2 or not np.array_equal(row, np.arange(row.size)):
            return 0
        return int(row.size)

    def _row(self, name: str) -> Array | None:
        from onnx import numpy_helper

        tensor = self._rows.get(name)
        return None if tensor is None else np.asarray(numpy_helper.to_array(tensor)).ravel()


def _comparisons(node: NodeProto, known: _Constants) -> Iterator[tuple[str, int]]:
    """Yield (value, number) where ``node`` asks whether a value equals a number."""
    if node.op_type == "Equal":
        for value, other in (node.input, reversed(node.input)):
            number = known.number(other)
            if number is not None:
                yield value, number


def _lookups(node: NodeProto, known: _Constants) -> Iterator[tuple[str, int]]:
    """Yield (indices, rows) for every table that ``node`` looks up, one-hot codes included."""
    pairs: Mapping[str, tuple[tuple[int, int], ...]] = {
        "Gather": ((1, 0),),
        "EmbedLayerNormalization": ((0, 2), (1, 4)),
    }
    axis = 0
    if node.op_type == "Gather":
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    for indices, table in pairs.get(node.op_type, ()):
        if max(indices, table) < len(node.input):
            shape = known.dims.get(node.input[table], ())
            if -len(shape) <= axis < len(shape) and shape[axis] > 0:
                yield node.input[indices], int(shape[axis])
    if node.op_type == "OneHot" and (depth := known.number(node.input[1]) or 0) > 0:
        yield node.input[0], depth
    if node.op_type == "Equal":
        for value, other in (node.input, reversed(node.input)):
            if count := known.counted(other):
                yield value, count
