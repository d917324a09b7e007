"""A model that the exporter can bind to a batch size: an ONNX file or a torch module."""

from __future__ import annotations

import resource
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ngraphbench.errors import CompileFailed, NGraphBenchError, Unsupported, first_line
from ngraphbench.models.batch import Run
from ngraphbench.models.denormals import WEIGHTS, describe_denormals
from ngraphbench.models.double import exact_outputs, is_quantised
from ngraphbench.models.feeds import Feed
from ngraphbench.models.graphinputs import declared_shapes, plan_graph_inputs
from ngraphbench.models.inputs import InputPlan
from ngraphbench.models.modules import WEIGHTS_FILE
from ngraphbench.models.onnxfile import (
    OnnxFile,
    bind,
    check_format,
    forget_output_shapes,
    open_onnx,
    weight_arrays,
)
from ngraphbench.models.onnxgraph import domains
from ngraphbench.models.onnxrunner import OnnxRunner
from ngraphbench.models.reference import (
    Exact,
    Reference,
    make_reference,
    relative_error,
)
from ngraphbench.models.torchmodel import TorchModel
from ngraphbench.models.values import dims_of
from ngraphbench.types import Arrays, Json, TensorSpec
from ngraphbench.workload import PORTABLE, PORTABLE_FILE

__all__ = ["Bound", "OnnxSource", "Source", "TorchSource"]

DYNAMIC_EXPORT_BATCH = 2
EXPORT_RTOL = 1e-2
CHECKED_BYTES_MAX = 512 * 1024**2


@dataclass(frozen=True, slots=True)
class Bound:
    """The forms of a model at one batch size, and why one of them is not there.

    ``export_error`` is of the ONNX form, ``pt2_error`` of the exported torch program.
    """

    forms: tuple[str, ...]
    export_error: str = ""
    pt2_error: str = ""
    notes: tuple[str, ...] = ()


class Source(ABC):
    """A model that can be bound to a batch size."""

    plan: InputPlan
    weights: str
    forms: tuple[str, ...]
    notes: tuple[str, ...] = ()
    memory_bytes: int = 0
    """The memory limit of this process, 0 for none."""
    rewritable = False
    """Whether a batch size that the model fixes can be changed in a copy."""

    @abstractmethod
    def reference(self, feed: Feed, folder: Path) -> Reference:
        """Return the reference outputs; may write the bound model to ``folder``."""

    @abstractmethod
    def finish(self, feed: Feed, folder: Path, reference: Reference) -> Bound:
        """Write what is left of the bound model, checked against its reference."""

    def finish_portable(
        self, feed: Feed, folder: Path, reference: Reference, *, bound: Bound
    ) -> Bound:
        """Return ``bound`` with the exported torch program written, where the model has one."""
        return bound

    def examples(self, batch: int, *, seed: int) -> Arrays:
        """Return the model's own example inputs, if it has any."""
        return {}

    @abstractmethod
    def denormals(self) -> str:
        """Return how many weights are denormal numbers, as a phrase; empty for none."""

    @abstractmethod
    def plain(self, specs: Sequence[TensorSpec]) -> Run | None:
        """Return the model as it is, for inputs of any of its own sizes; None where dear."""

    @abstractmethod
    def bound(self, specs: Sequence[TensorSpec], folder: Path) -> Run:
        """Return the uncompiled model at the batch size that was written to ``folder``."""

    def declared_outputs(self) -> dict[str, tuple[int | str, ...]]:
        """Return the shapes that the model declares for its outputs, if it does."""
        return {}


class OnnxSource(Source):
    """An ONNX file."""

    forms = ("onnx",)
    weights = "file"
    rewritable = True

    def __init__(self, model: Json, overrides: Json) -> None:
        self._file = open_onnx(Path(model["path"]))
        check_format(self._file.model)
        self.plan = plan_graph_inputs(self._file.model, overrides)
        self.notes = _file_notes(self._file)
        self._quantised = is_quantised(self._file.model)

    def reference(self, feed: Feed, folder: Path) -> Reference:
        bound = bind(self._file, _shapes(feed), folder)
        try:
            runner = OnnxRunner(bound, self._file)
        except CompileFailed as error:
            custom = domains(self._file.model)
            if not custom:
                raise
            raise Unsupported(
                f"No reference outputs: the model uses operators of {', '.join(custom)}."
                f" {error.message}",
                reason="operator",
            ) from error

        def exact(*, seconds: float, nudged: bool) -> Exact:
            self._check_memory()
            return exact_outputs(
                bound, self._file, specs=feed.specs, seconds=seconds, nudged=nudged
            )

        reference = make_reference(
            runner.name,
            lambda arrays: runner.run(arrays, feed.specs),
            a=feed.a,
            b=feed.b,
            exact=None if self._quantised else exact,
        )
        return replace(reference, quantised=self._quantised)

    def _check_memory(self) -> None:
        """Raise Unsupported where a copy twice as large might not fit the limit."""
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if self.memory_bytes and 3 * peak_bytes > self.memory_bytes:
            raise Unsupported("A copy in fp64 might not fit the memory limit.", reason="fp64")

    def finish(self, feed: Feed, folder: Path, reference: Reference) -> Bound:
        shapes = {name: array.shape for name, array in reference.own.arrays.items()}
        wrong = forget_output_shapes(folder / "model.onnx", shapes)
        notes = tuple(f"declared-shape-wrong: of output {name}; it is ignored" for name in wrong)
        return Bound(forms=self.forms, notes=notes)

    def plain(self, specs: Sequence[TensorSpec]) -> Run | None:
        if self._file.size_bytes > CHECKED_BYTES_MAX:
            return None
        runner = OnnxRunner(self._file.path, self._file)
        return lambda inputs: runner.run(inputs, tuple(specs))

    def bound(self, specs: Sequence[TensorSpec], folder: Path) -> Run:
        runner = OnnxRunner(folder / "model.onnx", self._file)
        return lambda inputs: runner.run(inputs, tuple(specs))

    def declared_outputs(self) -> dict[str, tuple[int | str, ...]]:
        return declared_shapes(self._file.model)

    def denormals(self) -> str:
        return describe_denormals(weight_arrays(self._file), what=WEIGHTS)


class TorchSource(Source):
    """A torch module, and the ONNX form that torch's exporter makes of it."""

    forms = ("torch",)

    def __init__(self, model: Json, overrides: Json, root: Path) -> None:
        self._torch = TorchModel(model)
        self._root = root
        self.plan = self._torch.plan(overrides)
        self.notes = self._torch.notes
        self.weights = self._torch.weights
        self._torch.save_weights(root / WEIGHTS_FILE)
        self._dynamic: OnnxFile | None = None
        self._dynamic_error = ""
        self._static_error = ""
        self._portable_error = ""

    def examples(self, batch: int, *, seed: int) -> Arrays:
        return self._torch.example_arrays(batch, seed=seed)

    def reference(self, feed: Feed, folder: Path) -> Reference:
        def exact(*, seconds: float, nudged: bool) -> Exact:
            return Exact("eager", self._torch.exact(feed.specs, nudged=nudged))

        before = self._torch.state()
        reference = make_reference(
            "eager",
            lambda arrays: self._torch.run(arrays, feed.specs),
            a=feed.a,
            b=feed.b,
            exact=None if self._torch.quantised else exact,
        )
        changed = self._torch.changed_since(before)
        return replace(reference, stateful=changed, quantised=self._torch.quantised)

    def plain(self, specs: Sequence[TensorSpec]) -> Run | None:
        return lambda inputs: self._torch.run(inputs, specs)

    def bound(self, specs: Sequence[TensorSpec], folder: Path) -> Run:
        return lambda inputs: self._torch.run(inputs, specs)

    def denormals(self) -> str:
        return describe_denormals(self._torch.weight_arrays(), what=WEIGHTS)

    def finish(self, feed: Feed, folder: Path, reference: Reference) -> Bound:
        """Write the ONNX form: the dynamic export if it is right here, else a static one."""
        both = ("onnx", "torch")
        try:
            file = self._dynamic_export(feed)
            if file is not None:
                error, notes = _bound_error(file, feed, folder, reference)
                if error <= EXPORT_RTOL:
                    return Bound(forms=both, notes=notes)
            file = self._static_export(feed)
            error, notes = _bound_error(file, feed, folder, reference)
        except NGraphBenchError as failure:
            (folder / "model.onnx").unlink(missing_ok=True)
            return Bound(forms=self.forms, export_error=failure.message)
        if error > EXPORT_RTOL:
            notes = (*notes, f"export-differs: the ONNX form is {error:.2g} off the module")
        return Bound(forms=both, notes=notes)

    def finish_portable(
        self, feed: Feed, folder: Path, reference: Reference, *, bound: Bound
    ) -> Bound:
        """Write the exported program, checked against the module as the ONNX form is."""
        path = folder / PORTABLE_FILE
        path.unlink(missing_ok=True)
        if self._portable_error:
            return replace(bound, pt2_error=self._portable_error)
        names = list(reference.own.arrays)
        try:
            self._torch.export_portable(feed.a, feed.specs, path=path)
            found = self._torch.run_portable(path, feed.a, feed.specs, names=names)
        except NGraphBenchError as failure:
            path.unlink(missing_ok=True)
            self._portable_error = failure.message
            return replace(bound, pt2_error=failure.message)
        error = relative_error(found, reference.own) if reference.deterministic else 0.0
        notes = bound.notes
        if error > EXPORT_RTOL:
            notes = (*notes, f"export-differs: the torch.export form is {error:.2g} off the module")
        return replace(bound, forms=(*bound.forms, PORTABLE), notes=notes)

    def _dynamic_export(self, feed: Feed) -> OnnxFile | None:
        """Return the export with a dynamic batch, made once; None when there is none."""
        axes = {name: axis for name, axis in self.plan.batch_axes().items() if axis is not None}
        if self._dynamic is None and axes and not self._dynamic_error:
            try:
                file = self._export(_resized(feed, axes), axes=axes, name="dynamic")
                _check_dynamic(file, axes)
                self._dynamic = file
            except NGraphBenchError as error:
                self._dynamic_error = error.message
                print(f"The export with a dynamic batch failed: {error.message}", file=sys.stderr)
        return self._dynamic

    def _static_export(self, feed: Feed) -> OnnxFile:
        if self._static_error:
            raise CompileFailed(self._static_error, reason="export")
        dims = "_".join("x".join(map(str, spec.shape)) for spec in feed.specs)[:80]
        try:
            return self._export(feed, axes={}, name=f"static_{dims}")
        except CompileFailed as error:
            self._static_error = error.message
            raise

    def _export(self, feed: Feed, *, axes: dict[str, int], name: str) -> OnnxFile:
        path = self._root / "export" / name / "model.onnx"
        self._torch.export(feed.a, feed.specs, path=path, axes=axes)
        return open_onnx(path)


def _check_dynamic(file: OnnxFile, axes: Mapping[str, int]) -> None:
    # The exporter may fix the batch to that of its example without saying so.
    for value in file.model.graph.input:
        dims = value.type.tensor_type.shape.dim
        axis = axes.get(value.name)
        if axis is not None and dims[axis].HasField("dim_value"):
            raise CompileFailed(
                f"torch.onnx (dynamo): the batch was fixed to {dims[axis].dim_value}",
                reason="export",
            )


def _bound_error(
    file: OnnxFile, feed: Feed, folder: Path, reference: Reference
) -> tuple[float, tuple[str, ...]]:
    """Bind an export, and return how far its outputs are from the module's, with notes.

    Raises CompileFailed when its inputs or outputs are not those of the module.
    """
    shapes = _shapes(feed)
    for what, have, want in (
        ("inputs", [value.name for value in file.model.graph.input], list(shapes)),
        ("outputs", [value.name for value in file.model.graph.output], list(reference.own.arrays)),
    ):
        if have != want:
            raise CompileFailed(
                f"torch.onnx (dynamo): the graph has the {what} {have}, the module {want}",
                reason="export",
            )
    path = bind(file, shapes, folder)
    if not reference.deterministic:
        return 0.0, ()
    if file.size_bytes > CHECKED_BYTES_MAX:
        return 0.0, ("export-unchecked: too large to run once more",)
    try:
        return relative_error(OnnxRunner(path, file).run(feed.a, feed.specs), reference.own), ()
    except NGraphBenchError as error:
        return 0.0, (f"export-unchecked: {error.message}",)


def _shapes(feed: Feed) -> dict[str, list[int]]:
    return {spec.name: [int(dim) for dim in spec.shape] for spec in feed.specs}


def _file_notes(file: OnnxFile) -> tuple[str, ...]:
    import onnx

    notes = []
    if custom := domains(file.model):
        notes.append(f"custom-operators: of {', '.join(custom)}")
    elif not file.data:
        try:
            onnx.checker.check_model(file.model)
        except Exception as error:  # a runtime may still take what the checker refuses
            notes.append(f"invalid-onnx: {first_line(error)}")
    return tuple(notes)


def _resized(feed: Feed, axes: dict[str, int]) -> Feed:
    """Return the feed with two rows: torch.export takes a dim of 1 for fixed."""
    rows = np.arange(DYNAMIC_EXPORT_BATCH)
    a = {
        name: np.take(array, rows % array.shape[axes[name]], axis=axes[name])
        if name in axes
        else array
        for name, array in feed.a.items()
    }
    return Feed(specs=dims_of(feed.specs, a), a=a, b=a, axes=axes)
