"""Short ways to write ONNX graphs, and the list of those that are cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

__all__ = ["GRAPHS", "Graph", "case", "constant", "fed", "model", "node", "normal", "value"]

OPSET = 17
IR_VERSION = 8


@dataclass(frozen=True)
class Graph:
    """A case: ``valid`` is what the ONNX checker should say, None where it is no question.

    ``feed`` maps inputs to {shape, dtype, gen}, with 'B' for the batch in a shape.
    """

    build: Callable[[], ModelProto]
    valid: bool | None
    feed: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.build.__name__

    @property
    def expect(self) -> str:
        return " ".join((self.build.__doc__ or "").split())


GRAPHS: list[Graph] = []


def case(
    *, valid: bool | None = True, feed: dict[str, Any] | None = None
) -> Callable[[Callable[[], ModelProto]], Callable[[], ModelProto]]:
    def add(build: Callable[[], ModelProto]) -> Callable[[], ModelProto]:
        GRAPHS.append(Graph(build=build, valid=valid, feed=feed or {}))
        return build

    return add


def fed(shape: Sequence[int | str], gen: str = "normal", dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "gen": gen}


def value(
    name: str, dtype: int = TensorProto.FLOAT, shape: Sequence[int | str] | None = None
) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs, outputs, **attributes)


def constant(name: str, array: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    weights: Sequence[TensorProto] = (),
    *,
    opset: int = OPSET,
    ir: int = IR_VERSION,
    extra: Sequence[tuple[str, int]] = (),
    name: str = "g",
) -> ModelProto:
    graph = helper.make_graph(list(nodes), name, list(inputs), list(outputs), list(weights))
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, version) for domain, version in extra]
    made = helper.make_model(graph, opset_imports=imports, producer_name="ngb-cases")
    made.ir_version = ir
    return made
