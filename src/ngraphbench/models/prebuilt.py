"""Files that a compiler made elsewhere, measured as they are.

Such a model has one form, ``artefact:NAME``, which that compiler alone takes. Its inputs and
outputs are those of its own signature. Nothing tells what is right, unless the argument
``reference`` names the ONNX file that it was made from.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngraphbench.errors import SpecError, Unsupported
from ngraphbench.models.batch import Run
from ngraphbench.models.feeds import Feed
from ngraphbench.models.inputs import Declared, plan_inputs
from ngraphbench.models.localfile import digest_file, existing_file
from ngraphbench.models.origins import Bound, OnnxSource, Source
from ngraphbench.models.reference import Outputs, Reference
from ngraphbench.plugin import prebuilt_suffixes
from ngraphbench.types import Array, Arrays, Json, TensorSpec, storage_dtype
from ngraphbench.workload import ARTEFACT, ARTEFACT_FOLDER, NO_REFERENCE

__all__ = ["ArtefactSource", "prebuilt_identity", "prebuilt_kind"]

REFERENCE = "reference"


def prebuilt_kind(head: str) -> str:
    """Return the kind of a file by its suffix, ``artefact:NAME``; empty for no compiler's."""
    suffix = Path(head).suffix.lower()
    found = prebuilt_suffixes().get(suffix) if suffix else None
    return f"{ARTEFACT}{found[0]}" if found else ""


def prebuilt_identity(path: Path, arguments: Mapping[str, Any], *, base: Path) -> Json:
    """Return what makes an artefact that artefact: its bytes, and its reference's.

    Raises SpecError for arguments other than the reference.
    """
    unknown = sorted(set(arguments) - {REFERENCE})
    if unknown:
        raise SpecError(
            f"{path.name} takes no argument {unknown[0]!r}: it is compiled already.",
            key=unknown[0],
            reason="model-args",
            hint=f"Only {REFERENCE}=MODEL.onnx is known: what its outputs are compared with.",
        )
    identity: Json = {file.name: digest_file(file) for file in _files(path)}
    if given := arguments.get(REFERENCE):
        identity[REFERENCE] = digest_file(existing_file(str(given), base=base, what=REFERENCE))
    return identity


def _files(path: Path) -> list[Path]:
    """Return the file with those that belong to it, such as weights."""
    _, companions = prebuilt_suffixes().get(path.suffix.lower(), ("", ()))
    beside = [path.with_suffix(suffix) for suffix in companions]
    return [path, *(file for file in beside if file.is_file())]


class ArtefactSource(Source):
    """An artefact, of the signature that its compiler read in it."""

    weights = "file"

    def __init__(self, model: Json, overrides: Json, signature: Json | None) -> None:
        self._path = Path(model["path"])
        self.forms = (str(model["kind"]),)
        self._onnx: OnnxSource | None = None
        if given := (model.get("args") or {}).get(REFERENCE):
            self._onnx = OnnxSource({**model, "path": str(given)}, overrides)
            self.plan = self._onnx.plan
            return
        if signature is None:
            raise Unsupported(
                f"{self._path.name} cannot be asked for its inputs here.",
                reason="input",
                hint=f"Name its source: {self._path.name}?{REFERENCE}=MODEL.onnx.",
            )
        inputs = [TensorSpec.from_json(spec) for spec in signature["inputs"]]
        self._outputs = [TensorSpec.from_json(spec) for spec in signature["outputs"]]
        declared = [Declared(spec.name, spec.dtype, spec.shape) for spec in inputs]
        self.plan = plan_inputs(declared, overrides)

    def reference(self, feed: Feed, folder: Path) -> Reference:
        if self._onnx is not None:
            return self._onnx.reference(feed, folder)
        a, b = self._nothing(feed, 1), self._nothing(feed, 2)
        dtypes = {spec.name: spec.dtype for spec in self._outputs}
        return Reference(NO_REFERENCE, own=Outputs(a, dtypes), a=a, b=b, deterministic=True)

    def _nothing(self, feed: Feed, free: int) -> Arrays:
        """Return arrays of the outputs' shapes; dims that are not known are ``free``."""
        sizes = {
            dim: size
            for spec, bound in zip(self.plan.specs, feed.specs, strict=True)
            for dim, size in zip(spec.shape, bound.shape, strict=True)
        }
        return {spec.name: _zeros(spec, sizes, free) for spec in self._outputs}

    def finish(self, feed: Feed, folder: Path, reference: Reference) -> Bound:
        target = folder / ARTEFACT_FOLDER
        target.mkdir(exist_ok=True)
        for file in _files(self._path):
            _place(file, target / file.name)
        if self._onnx is not None:
            (folder / "model.onnx").unlink(missing_ok=True)
        return Bound(forms=self.forms)

    def plain(self, specs: Sequence[TensorSpec]) -> Run | None:
        return self._onnx.plain(specs) if self._onnx is not None else None

    def bound(self, specs: Sequence[TensorSpec], folder: Path) -> Run:
        if self._onnx is None:
            raise Unsupported(
                "A prebuilt artefact has no uncompiled model to evaluate.", reason="eval"
            )
        return self._onnx.bound(specs, folder)

    def denormals(self) -> str:
        return ""


def _zeros(spec: TensorSpec, sizes: Mapping[int | str, int | str], free: int) -> Array:
    dims = [sizes.get(dim, free) if isinstance(dim, str) else dim for dim in spec.shape]
    shape = tuple(dim if isinstance(dim, int) else free for dim in dims)
    return np.zeros(shape, storage_dtype(spec.dtype))


def _place(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
