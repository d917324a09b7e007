"""A model that the exporter can bind to a batch size: an ONNX file or a torch module."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from ngraphbench.errors import CompileFailed, NGraphBenchError
from ngraphbench.models.feeds import Feed
from ngraphbench.models.graphinputs import plan_graph_inputs
from ngraphbench.models.inputs import InputPlan
from ngraphbench.models.modules import WEIGHTS_FILE
from ngraphbench.models.onnxfile import OnnxFile, bind, check_format, domains, open_onnx
from ngraphbench.models.reference import OnnxRunner, Outputs, Reference, make_reference
from ngraphbench.models.torchmodel import TorchModel
from ngraphbench.models.values import dims_of
from ngraphbench.types import Arrays, Json

__all__ = ["OnnxSource", "Source", "TorchSource"]

DYNAMIC_EXPORT_BATCH = 2
ROW_CHECK_BYTES_MAX = 512 * 1024**2


class Source(ABC):
    """A model that can be bound to a batch size."""

    plan: InputPlan
    weights: str
    forms: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @abstractmethod
    def reference(self, feed: Feed, folder: Path) -> Reference:
        """Return the reference outputs; may write the bound model to ``folder``."""

    @abstractmethod
    def finish(self, feed: Feed, folder: Path) -> tuple[tuple[str, ...], str]:
        """Write what is left of the bound model; return its forms and the export error."""

    def examples(self, batch: int, *, seed: int) -> Arrays:
        """Return the model's own example inputs, if it has any."""
        return {}

    @abstractmethod
    def row(self, feed: Feed) -> Outputs | None:
        """Return the outputs for a feed of one row, or None where that is not cheap."""


class OnnxSource(Source):
    """An ONNX file."""

    forms = ("onnx",)
    weights = "file"

    def __init__(self, model: Json, overrides: Json) -> None:
        self._file = open_onnx(Path(model["path"]))
        check_format(self._file.model)
        self.plan = plan_graph_inputs(self._file.model, overrides)
        custom = domains(self._file.model)
        self.notes = (f"custom-operators: of {', '.join(custom)}",) if custom else ()

    def reference(self, feed: Feed, folder: Path) -> Reference:
        shapes = {spec.name: [int(dim) for dim in spec.shape] for spec in feed.specs}
        runner = OnnxRunner(bind(self._file, shapes, folder), self._file)
        return make_reference(
            runner.name, lambda arrays: runner.run(arrays, feed.specs), a=feed.a, b=feed.b
        )

    def finish(self, feed: Feed, folder: Path) -> tuple[tuple[str, ...], str]:
        return self.forms, ""

    def row(self, feed: Feed) -> Outputs | None:
        data = [self._file.path, *self._file.data.values()]
        if sum(path.stat().st_size for path in data) > ROW_CHECK_BYTES_MAX:
            return None
        return OnnxRunner(self._file.path, self._file).run(feed.a, feed.specs)


class TorchSource(Source):
    """A torch module, and the ONNX form that torch's exporter makes of it."""

    forms = ("torch",)

    def __init__(self, model: Json, overrides: Json, root: Path) -> None:
        self._torch = TorchModel(model)
        self._root = root
        self.plan = self._torch.plan(overrides)
        self.weights = self._torch.weights
        self._torch.save_weights(root / WEIGHTS_FILE)
        self._dynamic: OnnxFile | None = None
        self._dynamic_error = ""
        self._static_error = ""

    def examples(self, batch: int, *, seed: int) -> Arrays:
        return self._torch.example_arrays(batch, seed=seed)

    def reference(self, feed: Feed, folder: Path) -> Reference:
        return make_reference(
            "eager",
            lambda arrays: self._torch.run(arrays, feed.specs),
            a=feed.a,
            b=feed.b,
            exact=lambda: self._torch.exact(feed.specs),
        )

    def row(self, feed: Feed) -> Outputs | None:
        return self._torch.run(feed.a, feed.specs)

    def finish(self, feed: Feed, folder: Path) -> tuple[tuple[str, ...], str]:
        try:
            file = self._exported(feed)
            shapes = {spec.name: [int(dim) for dim in spec.shape] for spec in feed.specs}
            missing = {value.name for value in file.model.graph.input} ^ set(shapes)
            if missing:
                raise CompileFailed(
                    f"torch.onnx (dynamo): the exported graph has other inputs: {sorted(missing)}"
                )
            bind(file, shapes, folder)
        except NGraphBenchError as error:
            return self.forms, error.message
        return ("onnx", "torch"), ""

    def _exported(self, feed: Feed) -> OnnxFile:
        """Return the dynamic export, made once; else a static one of this very batch size."""
        axes = {name: axis for name, axis in self.plan.batch_axes().items() if axis is not None}
        if self._dynamic is None and axes and not self._dynamic_error:
            try:
                self._dynamic = self._export(_resized(feed, axes), axes=axes, name="dynamic")
            except CompileFailed as error:
                self._dynamic_error = error.message
                print(f"The export with a dynamic batch failed: {error.message}", file=sys.stderr)
        if self._dynamic is not None:
            return self._dynamic
        if self._static_error:
            raise CompileFailed(self._static_error, reason="export")
        try:
            return self._export(feed, axes={}, name=f"b{len(next(iter(feed.a.values()), ()))}")
        except CompileFailed as error:
            self._static_error = error.message
            raise

    def _export(self, feed: Feed, *, axes: dict[str, int], name: str) -> OnnxFile:
        path = self._root / "export" / name / "model.onnx"
        self._torch.export(feed.a, feed.specs, path=path, axes=axes)
        return open_onnx(path)


def _resized(feed: Feed, axes: dict[str, int]) -> Feed:
    """Return the feed with two rows: torch.export takes a dim of 1 for fixed."""
    rows = np.arange(DYNAMIC_EXPORT_BATCH)
    a = {
        name: np.take(array, rows % array.shape[axes[name]], axis=axes[name])
        if name in axes
        else array
        for name, array in feed.a.items()
    }
    return Feed(specs=dims_of(feed.specs, a), a=a, b=a)
