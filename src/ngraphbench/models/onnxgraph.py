"""What an ONNX graph holds, with the graphs inside it: nodes, tensors, inputs, domains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

__all__ = ["STANDARD_DOMAINS", "attribute_graphs", "domains", "graph_inputs", "nodes", "tensors"]

STANDARD_DOMAINS = ("", "ai.onnx")


def domains(model: ModelProto) -> tuple[str, ...]:
    """Return the operator domains that the model's nodes use, the standard one excluded.

    Domains whose operators the file defines itself as functions are left out as well.
    """
    defined = {(function.domain, function.name) for function in model.functions}
    used = {
        node.domain
        for node in nodes(model.graph)
        if node.domain not in STANDARD_DOMAINS and (node.domain, node.op_type) not in defined
    }
    return tuple(sorted(used))


def graph_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the inputs that must be fed: graph inputs that are not initializers."""
    fixed = {tensor.name for tensor in model.graph.initializer}
    fixed |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    return [value for value in model.graph.input if value.name not in fixed]


def nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield every node of ``graph`` and of the graphs inside it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in attribute_graphs(attribute):
                yield from nodes(inner)


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every tensor that may hold external data: initializers and attributes."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        for node in function.node:
            yield from _node_tensors(node)


def _graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        yield from _node_tensors(node)


def _node_tensors(node: NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for inner in attribute_graphs(attribute):
            yield from _graph_tensors(inner)


def attribute_graphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    """Yield the graphs inside an attribute, such as a branch of ``If``."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs
