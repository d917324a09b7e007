"""An ONNX file run as it stands, for reference outputs."""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from ngraphbench.case import ONNX_BASELINE
from ngraphbench.errors import CompileFailed, Unavailable, Unsupported, first_line
from ngraphbench.models.onnxdata import load_whole
from ngraphbench.models.onnxfile import OnnxFile
from ngraphbench.models.onnxgraph import nodes
from ngraphbench.models.reference import Outputs
from ngraphbench.types import BFLOAT16, Array, Arrays, TensorSpec

__all__ = ["OnnxRunner", "plain_session"]

SMALL_GRAPH_NODES = 200


class OnnxRunner:
    """Runs an ONNX file as it stands, by ONNX Runtime with no optimisation, else by onnx.

    ``name`` says which. Raises CompileFailed (``reference``) when none takes the model.
    """

    def __init__(self, path: Path, source: OnnxFile) -> None:
        self._session: Any = None
        self._evaluator: Any = None
        self._path = path
        self._small = sum(1 for _ in nodes(source.model.graph)) <= SMALL_GRAPH_NODES
        self._outputs = [value.name for value in source.model.graph.output]
        self._check_outputs(source)
        self._open(uses_bfloat16=_uses_bfloat16(source))

    @property
    def name(self) -> str:
        return ONNX_BASELINE if self._session is not None else "onnx-reference"

    def run(self, inputs: Arrays, specs: tuple[TensorSpec, ...]) -> Outputs:
        """Return the outputs for ``inputs``. Raises CompileFailed (``reference``)."""
        try:
            if self._session is not None:
                return _named(self._outputs, self._session.run(self._outputs, dict(inputs)))
            feed = {spec.name: _native(inputs[spec.name], spec.dtype) for spec in specs}
            return _named(self._outputs, self._evaluator.run(None, feed))
        except (CompileFailed, Unsupported):
            raise
        except Exception as error:
            raise _failed(self.name, "run", _innermost(error)) from error

    def _check_outputs(self, source: OnnxFile) -> None:
        for value in source.model.graph.output:
            kind = value.type.WhichOneof("value") or "tensor_type"
            if kind != "tensor_type":
                raise Unsupported(
                    f"Output {value.name!r} is a {kind.removesuffix('_type')}, not a tensor.",
                    reason="output-type",
                    hint="Export the model with tensor outputs only.",
                )

    def _open(self, *, uses_bfloat16: bool) -> None:
        refusal: Exception | None = None
        # The Python bindings of ONNX Runtime have no bfloat16 arrays.
        if not uses_bfloat16:
            try:
                self._session = plain_session(str(self._path))
                return
            except Exception as error:
                refusal = error
        if self._small:
            try:
                from onnx.reference import ReferenceEvaluator

                self._evaluator = ReferenceEvaluator(load_whole(self._path))
                return
            except Exception as error:
                if refusal is None or isinstance(refusal, ImportError):
                    raise _failed("onnx-reference", "load", _innermost(error)) from error
        if isinstance(refusal, ImportError):
            raise Unavailable(
                "Reference outputs of an ONNX model of this size need onnxruntime.",
                reason="reference",
                hint="pip install 'ngraphbench[onnxruntime]'",
            ) from refusal
        raise _failed(
            ONNX_BASELINE, "load", _innermost(refusal) if refusal else "bfloat16 inputs or outputs"
        ) from refusal


def plain_session(model: str | bytes, *, severity: int = 3) -> Any:
    """Return a session without optimisation of a file, by its path, or of serialised bytes.

    ``severity`` is the least of what ONNX Runtime prints: 3 errors, 4 what is fatal. Raises
    ImportError where there is no ONNX Runtime, and what it raises itself.
    """
    # Or it tells its makers of the model: read when it is first imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = severity
    return onnxruntime.InferenceSession(
        model, sess_options=options, providers=["CPUExecutionProvider"]
    )


def _uses_bfloat16(source: OnnxFile) -> bool:
    from onnx import TensorProto

    graph = source.model.graph
    values = [*graph.input, *graph.output]
    return any(value.type.tensor_type.elem_type == TensorProto.BFLOAT16 for value in values)


def _native(array: Array, dtype: str) -> Array:
    if dtype != BFLOAT16:
        return array
    import ml_dtypes

    return array.view(ml_dtypes.bfloat16)


def _named(names: list[str], values: list[Any]) -> Outputs:
    arrays: Arrays = {}
    dtypes: dict[str, str] = {}
    for name, value in zip(names, values, strict=True):
        array = np.asarray(value)
        if array.dtype.kind in "OUS":
            raise Unsupported(
                f"Output {name!r} holds strings, which cannot be compared.",
                reason="dtype",
                hint="Cut the model before them.",
            )
        dtypes[name] = array.dtype.name
        arrays[name] = np.array(array.view(np.uint16) if array.dtype.name == BFLOAT16 else array)
    return Outputs(arrays=arrays, dtypes=dtypes)


# An error inside a branch or a loop is told once for each graph around it; the last says why.
_NESTED = re.compile(
    r"Non-zero status code returned while running (\w+) node\. Name:'(.*?)' Status"
)


def _innermost(error: Exception) -> str:
    """Return the first line of an error, without what encloses the node that failed."""
    *_, last = [None, *_NESTED.finditer(str(error))]
    if last is None:
        return first_line(error)
    told = str(error)[last.end() :].removeprefix(" Message: ")
    return f"{last.group(1)} node {last.group(2)!r}: {first_line(ValueError(told))}"


def _failed(name: str, verb: str, why: str) -> CompileFailed:
    return CompileFailed(
        f"{name} cannot {verb} the model, so there are no reference outputs: {why}",
        reason="reference",
        hint="Check the model, or give fitting inputs with --input or --inputs.",
    )
