"""An ONNX graph in double precision: what its outputs would be, but for rounding.

Every float tensor, weight and cast of a copy becomes float64. ONNX Runtime runs that with
no optimisation; the onnx reference evaluator where it has no such kernels and the model is
small. What neither runs has no fp64 reference, which the caller says.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraphbench.case import ONNX_BASELINE
from ngraphbench.errors import CompileFailed, Unsupported, first_line
from ngraphbench.models.onnxdata import load_whole
from ngraphbench.models.onnxfile import OnnxFile
from ngraphbench.models.onnxgraph import nodes
from ngraphbench.models.onnxrunner import plain_session
from ngraphbench.models.reference import Exact, Outputs
from ngraphbench.models.values import from_bfloat16
from ngraphbench.types import BFLOAT16, FLOATS, Array, Arrays, TensorSpec

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

__all__ = ["exact_outputs", "is_quantised", "nudged_values", "widen"]

BYTES_MAX = 256 * 1024**2
SECONDS_MAX = 2.0
EVALUATOR_SECONDS_MAX = 0.02
EVALUATOR_NODES_MAX = 300
"""The evaluator is up to 500 times slower than ONNX Runtime, whose time this is about."""

NUDGE = 2.0**-24
"""Half a unit in the last place of float32: what rounding to it does to every value."""

_QUANTISED = ("quantizelinear", "matmulinteger", "convinteger", "qlinear", "matmulnbits", "qgemm")

# Inputs that operators take as float32 alone, by position.
_SINGLE: Mapping[str, tuple[int, ...]] = {
    "Resize": (2,),
    "Upsample": (1,),
    "NonMaxSuppression": (0, 1, 3, 4),
}


def is_quantised(model: ModelProto) -> bool:
    """Return whether the graph computes with integers that stand for real numbers."""
    every = [*nodes(model.graph), *(node for f in model.functions for node in f.node)]
    return any(word in node.op_type.lower() for node in every for word in _QUANTISED)


def exact_outputs(
    path: Path,
    source: OnnxFile,
    *,
    specs: tuple[TensorSpec, ...],
    seconds: float,
    nudged: bool = False,
) -> Exact:
    """Return the bound model at ``path`` in double precision, ready to run.

    ``seconds`` is how long a run in its own precision takes; ``nudged`` moves every weight
    and input by half a unit in the last place of float32. Raises Unsupported for a model
    that is too large or too slow, quantised, or not to be written in doubles.
    """
    size = source.size_bytes
    if size > BYTES_MAX:
        raise Unsupported(f"{size} bytes are too many for a copy in fp64.", reason="fp64")
    if seconds > SECONDS_MAX:
        raise Unsupported(f"One run takes {seconds:.1f} s, too long for fp64.", reason="fp64")
    if is_quantised(source.model):
        raise Unsupported("A quantised model has no meaning in fp64.", reason="fp64")
    model = load_whole(path)
    widen(model, np.random.default_rng(0) if nudged else None)
    runner = _DoubleRunner(model, specs, nudged=nudged, by_hand=_by_hand(source, seconds))
    return Exact(runner.name, runner.run)


def _by_hand(source: OnnxFile, seconds: float) -> bool:
    small = sum(1 for _ in nodes(source.model.graph)) <= EVALUATOR_NODES_MAX
    return small and seconds <= EVALUATOR_SECONDS_MAX


class _DoubleRunner:
    """Runs a widened model. ``name`` says by what."""

    def __init__(
        self, model: ModelProto, specs: tuple[TensorSpec, ...], *, nudged: bool, by_hand: bool
    ) -> None:
        self._model = model
        self._specs = specs
        self._nudged = nudged
        self._outputs = [value.name for value in model.graph.output]
        self._session: Any = None
        self._evaluator: Any = None
        try:
            self._session = plain_session(model.SerializeToString(), severity=4)
        except Exception as error:
            if not by_hand:
                text = f"onnxruntime has no fp64 kernels for it ({first_line(error)})"
                raise CompileFailed(text, reason="fp64") from error
            from onnx.reference import ReferenceEvaluator

            self._evaluator = ReferenceEvaluator(model)

    @property
    def name(self) -> str:
        return ONNX_BASELINE if self._session is not None else "onnx-reference"

    def run(self, inputs: Arrays) -> Outputs:
        random = np.random.default_rng(1)
        feed = {}
        for spec in self._specs:
            array = _as_double(inputs[spec.name], spec.dtype)
            feed[spec.name] = nudged_values(array, random) if self._nudged else array
        engine = self._session if self._session is not None else self._evaluator
        found = [np.asarray(value) for value in engine.run(self._outputs, feed)]
        arrays = dict(zip(self._outputs, found, strict=True))
        return Outputs(arrays, {name: array.dtype.name for name, array in arrays.items()})


def _as_double(array: Array, dtype: str) -> Array:
    if dtype == BFLOAT16 and array.dtype == np.uint16:
        return from_bfloat16(array).astype(np.float64)
    return array.astype(np.float64) if dtype in FLOATS else array


def nudged_values(array: Array, random: np.random.Generator) -> Array:
    """Return floats moved up or down by half a unit in the last place of float32."""
    if array.dtype.kind != "f":
        return array
    moved = array * (1.0 + NUDGE * random.choice([-1.0, 1.0], array.shape))
    return np.asarray(moved)


def widen(model: ModelProto, random: np.random.Generator | None = None) -> None:
    """Turn every float of ``model`` into float64, in place; its data must be loaded.

    With ``random``, weights are moved by half a unit in the last place of float32. Raises
    Unsupported for sparse weights.
    """
    _widen_graph(model.graph, random)
    for function in model.functions:
        kept = list(function.node)
        del function.node[:]
        for node in kept:
            function.node.extend(_widened(node, random))


def _widen_graph(graph: GraphProto, random: np.random.Generator | None) -> None:
    from onnx import TensorProto

    if graph.sparse_initializer:
        raise Unsupported("Sparse weights are not written in doubles.", reason="fp64")
    for tensor in graph.initializer:
        _widen_tensor(tensor, random)
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in _narrow():
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    kept = list(graph.node)
    del graph.node[:]
    for node in kept:
        graph.node.extend(_widened(node, random))


def _narrow() -> tuple[int, ...]:
    from onnx import TensorProto

    return (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def _widen_tensor(tensor: TensorProto, random: np.random.Generator | None) -> None:
    from onnx import numpy_helper

    if tensor.data_type not in _narrow():
        return
    array = np.asarray(numpy_helper.to_array(tensor)).astype(np.float64)
    if random is not None:
        array = nudged_values(array, random)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _widened(node: NodeProto, random: np.random.Generator | None) -> list[NodeProto]:
    """Return the node for doubles, behind the casts of inputs that must stay float32."""
    from onnx import TensorProto, helper, numpy_helper

    for attribute in node.attribute:
        if attribute.HasField("t"):
            _widen_tensor(attribute.t, random)
        for tensor in attribute.tensors:
            _widen_tensor(tensor, random)
        for inner in [*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs]:
            _widen_graph(inner, random)
        if attribute.name in ("to", "dtype") and attribute.i in _narrow():
            attribute.i = TensorProto.DOUBLE
    plain = {a.name: a for a in node.attribute}
    if node.op_type == "ConstantOfShape" and "value" not in plain:
        zero = numpy_helper.from_array(np.zeros(1, np.float64))
        node.attribute.append(helper.make_attribute("value", zero))
    if node.op_type == "Constant" and {"value_float", "value_floats"} & set(plain):
        found = plain.get("value_float") or plain["value_floats"]
        values = np.asarray(found.f if found.name == "value_float" else list(found.floats))
        del node.attribute[:]
        tensor = numpy_helper.from_array(values.astype(np.float64))
        node.attribute.append(helper.make_attribute("value", tensor))
    casts = []
    for place in _SINGLE.get(node.op_type, ()):
        if place < len(node.input) and node.input[place]:
            single = f"{node.input[place]}/{node.output[0]}/{place}"
            casts.append(helper.make_node("Cast", [node.input[place]], [single], to=1))
            node.input[place] = single
    return [*casts, node]
