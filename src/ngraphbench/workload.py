"""The workload folder as a compiler sees it: one model, bound to one batch size.

The exporter writes the folder once per model (``ngraphbench.models.exporter``); this
module only reads it, with the standard library and numpy, so that it works inside any
compiler's environment.

Layout of the folder::

    workload.json          forms, inputs (with symbolic dims), model reference, weights
    weights.pt             state_dict of a torch model, the same for every candidate
    b<BATCH>/batch.json    concrete inputs and outputs for one batch size
    b<BATCH>/model.onnx    ONNX with every input dim fixed (external data beside it)
    b<BATCH>/model.pt2     torch.export program with weights, of fixed shapes; only where a
                           candidate of the session takes it
    b<BATCH>/artefact/     a file that a compiler made elsewhere, and what belongs to it
    b<BATCH>/inputs-a.npz  two seeded input sets, or the user's
    b<BATCH>/inputs-b.npz
    b<BATCH>/calibration.npz    items to calibrate int8 by, a multiple of the batch size
    b<BATCH>/reference-a.npz, reference-b.npz
    b<BATCH>/eval-<DIGEST>/inputs.npz, labels.npz    a labelled set of the user's
    flushed/               the same without denormal weights, where there are any
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ngraphbench.errors import Unsupported
from ngraphbench.types import Arrays, Json, TensorSpec

__all__ = [
    "ARTEFACT",
    "ARTEFACT_FOLDER",
    "CALIBRATION",
    "INPUT_SETS",
    "NO_REFERENCE",
    "PORTABLE",
    "PORTABLE_FILE",
    "Workload",
    "batch_folder",
    "flushed_root",
    "item_axes",
    "read_arrays",
    "write_arrays",
]

INPUT_SETS = ("a", "b")

ARTEFACT = "artefact:"
"""What begins the form of a file that a compiler made elsewhere; its name follows."""

ARTEFACT_FOLDER = "artefact"

NO_REFERENCE = "none"
"""The name of a reference of which the shapes alone are known."""

CALIBRATION = "calibration.npz"

PORTABLE = "pt2"
"""The form of a torch model that needs torch alone, not the code that built it."""

PORTABLE_FILE = "model.pt2"


def batch_folder(root: Path, batch: int) -> Path:
    """Return the folder of one batch size inside a workload folder."""
    return root / f"b{batch}"


def flushed_root(root: Path) -> Path:
    """Return where the copy of a workload without denormal weights lies, if there is one."""
    return root / "flushed"


def read_arrays(path: Path) -> Arrays:
    """Return the arrays of an ``.npz`` file by name, in the order they were written.

    Names may hold any character: they are kept in an index, not as member names.
    """
    with np.load(path, allow_pickle=False) as data:
        names = json.loads(bytes(data["__names__"]).decode())
        return {name: data[f"a{i}"] for i, name in enumerate(names)}


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write arrays to ``path`` so that ``read_arrays`` returns them.

    The file appears whole or not at all.
    """
    names = np.frombuffer(json.dumps(list(arrays)).encode(), dtype=np.uint8)
    members = {f"a{i}": np.asarray(value) for i, value in enumerate(arrays.values())}
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        np.savez(file, __names__=names, **members)  # type: ignore[arg-type]
    partial.replace(path)


def item_axes(
    specs: Sequence[TensorSpec], axes: Mapping[str, int | None], *, batch: int
) -> dict[str, int]:
    """Return along which axis of an input its items lie, for inputs that have such an axis.

    It is the batch axis. A model that is fixed to one batch size does not tell its own: there it
    is the first one, where that is as long.
    """
    known = {name: axis for name, axis in axes.items() if axis is not None}
    return known or {spec.name: 0 for spec in specs if spec.shape[:1] == (batch,)}


def _no_builder(workload: Workload) -> Any:
    raise Unsupported(
        "This workload is an ONNX file; there is no torch module to build.", reason="form"
    )


@dataclass(frozen=True, slots=True)
class Workload:
    """One model at one batch size, as handed to ``Compiler.compile``.

    ``forms`` lists what is there: ``"onnx"``, ``"torch"``, ``"pt2"``. ``inputs`` are
    concrete (every dim an int), and so are ``outputs``, but for dims that depend on the
    values of the inputs: those are names. ``quantised``: the model computes with integers that
    stand for real numbers. ``axes`` holds the batch axis of each input.
    """

    root: Path
    batch: int
    precision: str
    forms: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    model: Json = field(default_factory=dict)
    export_error: str = ""
    pt2_error: str = ""
    build: Callable[[Workload], Any] = _no_builder
    quantised: bool = False
    axes: Mapping[str, int | None] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        root: Path,
        *,
        batch: int,
        precision: str = "fp32",
        build: Callable[[Workload], Any] = _no_builder,
    ) -> Workload:
        """Return the workload in folder ``root`` bound to ``batch``.

        Raises FileNotFoundError when the exporter has not written that batch size.
        """
        whole = json.loads((root / "workload.json").read_text())
        bound = json.loads((batch_folder(root, batch) / "batch.json").read_text())
        return cls(
            root=root,
            batch=batch,
            precision=precision,
            forms=tuple(bound["forms"]),
            inputs=tuple(TensorSpec.from_json(s) for s in bound["inputs"]),
            outputs=tuple(TensorSpec.from_json(s) for s in bound["outputs"]),
            model=whole["model"],
            export_error=bound.get("export_error", ""),
            pt2_error=bound.get("pt2_error", ""),
            build=build,
            quantised=bound.get("quantised", False),
            axes=bound.get("axes", {}),
        )

    @property
    def folder(self) -> Path:
        """The folder of this batch size."""
        return batch_folder(self.root, self.batch)

    @property
    def onnx_path(self) -> Path:
        """Path of the ONNX file with fixed dims; load it by path, for its external data.

        Raises Unsupported, with the exporter's reason, when there is no ONNX form.
        """
        if "onnx" not in self.forms:
            raise Unsupported(
                self.export_error or "This model has no ONNX form.", reason="export-failed"
            )
        return self.folder / "model.onnx"

    @property
    def pt2_path(self) -> Path:
        """Path of the ``torch.export`` program: inputs by position, outputs as one tuple.

        Both are in the order of ``inputs`` and ``outputs``. Raises Unsupported, with the
        exporter's reason, when there is no such form.
        """
        if PORTABLE not in self.forms:
            raise Unsupported(
                self.pt2_error or "This model has no torch.export form.", reason="export-failed"
            )
        return self.folder / PORTABLE_FILE

    @property
    def artefact_path(self) -> Path:
        """Path of the file that a compiler made elsewhere; what belongs to it lies beside it."""
        return self.folder / ARTEFACT_FOLDER / Path(self.model["path"]).name

    def module(self) -> Any:
        """Return the torch module in eval mode with the workload's weights.

        Built anew at each call. Raises Unsupported for a model without torch form.
        """
        if "torch" not in self.forms:
            return _no_builder(self)
        return self.build(self)

    def input_arrays(self, which: str = "a") -> Arrays:
        """Return a seeded input set (``"a"`` or ``"b"``) by name; bfloat16 as uint16 bits."""
        return read_arrays(self.folder / f"inputs-{which}.npz")

    def calibration_batches(self) -> Iterator[Arrays]:
        """Return the user's items for calibration, as inputs of this batch size.

        Raises Unsupported where there are none, before the first is asked for.
        """
        path = self.folder / CALIBRATION
        if not path.is_file():
            raise Unsupported(
                "int8 needs items to calibrate by.",
                reason="calibration",
                hint="Give them with --calib FILE.npz, by input name.",
            )
        return self._items(read_arrays(path))

    def _items(self, arrays: Arrays) -> Iterator[Arrays]:
        held = item_axes(self.inputs, self.axes, batch=self.batch)
        items = min((arrays[name].shape[axis] for name, axis in held.items()), default=self.batch)
        for start in range(0, items, self.batch):
            rows = np.arange(start, start + self.batch)
            yield {
                name: np.take(array, rows, axis=held[name]) if name in held else array
                for name, array in arrays.items()
            }
