"""Compilers that run without an error and answer wrongly, each in one way seen in real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from ngraphbench.plugin import Compiler, Program
from ngraphbench.types import Array, Arrays, Device, Option, OptionValue, Support
from ngraphbench.workload import Workload

__all__ = ["FAULTS", "TARGET", "Silent"]

TARGET = "silent_plugins:Silent"


def _bfloat16(array: Array) -> Array:
    if array.dtype != np.float32:
        return array
    bits = np.ascontiguousarray(array).view(np.uint32) + 0x8000
    return np.asarray((bits & 0xFFFF0000).view(np.float32))


def _uninitialised(array: Array) -> Array:
    return np.asarray(np.resize(np.arange(array.size, dtype=np.uint32), array.size)).view(
        np.float32
    ).reshape(array.shape).astype(array.dtype)  # fmt: skip


def _one_row(array: Array) -> Array:
    wrong = array.copy()
    wrong[-1] = wrong[0]
    return wrong


def _hole(array: Array) -> Array:
    wrong = array.astype(np.float64 if array.dtype == np.float64 else np.float32)
    wrong.flat[-1] = np.nan
    return wrong


OUTPUT_FAULTS: dict[str, Callable[[Array], Array]] = {
    "none": lambda array: array,
    "uninitialised": _uninitialised,
    "empty": lambda array: array[:0],
    "empty-rows": lambda array: array[..., :0],
    "folded-shape": lambda array: array.reshape(1, -1),
    "folded-values": lambda array: array - array.mean(axis=0, keepdims=True),
    "first-row": lambda array: np.repeat(array[:1], len(array), axis=0),
    "one-row": _one_row,
    "rows-swapped": lambda array: array[::-1],
    "transposed": lambda array: np.ascontiguousarray(array.T).reshape(array.shape),
    "zeros": np.zeros_like,
    "hole": _hole,
    "half": lambda array: array.astype(np.float16),
    "half-inside": lambda array: array.astype(np.float16).astype(array.dtype),
    "batch-one-only": lambda array: array[:1],
    "extra-axis": lambda array: array[np.newaxis],
    "narrowed": lambda array: array.astype(np.int32).astype(array.dtype),
}
STATE_FAULTS = (
    *("bf16", "stale", "reused-buffer", "swapped-outputs", "late", "first-input"),
    *("resized-garbage", "resized-empty"),
)
"""Those that depend on earlier runs, or on a batch size that was set after compiling for 1."""
FAULTS = (*OUTPUT_FAULTS, *STATE_FAULTS)


class SilentProgram(Program):
    """Runs the graph by onnx's reference evaluator; then ``fault`` happens to the outputs."""

    def __init__(self, workload: Workload, *, fault: str) -> None:
        import onnx
        from onnx import numpy_helper
        from onnx.reference import ReferenceEvaluator

        model = onnx.load(str(workload.onnx_path))
        if fault == "bf16":
            for tensor in model.graph.initializer:
                rounded = _bfloat16(np.asarray(numpy_helper.to_array(tensor)))
                tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))
        self._evaluator: Any = ReferenceEvaluator(model)
        self._fault = fault
        self._batch = workload.batch
        self._inputs: Arrays = {}
        self._shown: Arrays = {}
        self._runs = 0

    def load(self, inputs: Arrays) -> None:
        if self._fault == "first-input" and self._inputs:
            return
        self._inputs = {name: np.array(value) for name, value in inputs.items()}
        if self._fault == "bf16":
            self._inputs = {name: _bfloat16(value) for name, value in self._inputs.items()}

    def run(self) -> None:
        self._runs += 1
        found = self._evaluator.run(None, self._inputs)
        fresh = dict(zip(self._evaluator.output_names, map(np.array, found), strict=True))
        if self._fault in ("stale", "reused-buffer") and self._shown:
            if self._fault == "stale":
                self._shown, self._next = self._next, fresh
                return
            # One buffer for two outputs: the second is written over the first.
            last = list(fresh.values())[-1]
            fresh = {name: np.resize(last, value.shape) for name, value in fresh.items()}
        self._shown = self._next = fresh

    def outputs(self) -> Arrays:
        if self._fault == "swapped-outputs":
            return dict(zip(self._shown, reversed(list(self._shown.values())), strict=True))
        if self._fault == "late" and self._runs > 30:
            return {name: value + 1 for name, value in self._shown.items()}
        change = OUTPUT_FAULTS.get(self._fault, OUTPUT_FAULTS["none"])
        if self._batch > 1:
            resized = {"resized-garbage": _uninitialised, "resized-empty": OUTPUT_FAULTS["empty"]}
            change = resized.get(self._fault, change)
        return {name: change(value) for name, value in self._shown.items()}

    def close(self) -> None:
        self._evaluator = None


class Silent(Compiler):
    """Never raises."""

    name: ClassVar[str] = "silent"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    options: ClassVar[tuple[Option, ...]] = (
        Option(name="fault", type="str", default="none", choices=FAULTS, help="what goes wrong"),
    )

    def probe(self, device: Device) -> Support:
        return Support(ok=True, version="1")

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> SilentProgram:
        return SilentProgram(workload, fault=str(options.get("fault", "none")))
