"""External data of ONNX files: where each tensor lies, and reading it.

Part of the kit. The loader of onnx refuses data files that are links of any kind: symbolic ones,
as in a download cache, and hard ones, as in a workload, where one file serves every batch size.
"""

from __future__ import annotations

import importlib
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ngraphbench.errors import SpecError, first_line
from ngraphbench.models.onnxgraph import tensors
from ngraphbench.types import Array

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

__all__ = ["FETCH_AGAIN", "copy_unlinked", "load_whole", "parse", "place_of", "read_external"]

FETCH_AGAIN = "Export or download it again."


def parse(path: Path) -> ModelProto:
    """Return the model in the file at ``path``; its external data are not read.

    Raises SpecError for a file that is not ONNX.
    """
    onnx = importlib.import_module("onnx")
    try:
        model: ModelProto = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf's own DecodeError has no public home in onnx
        raise SpecError(
            f"{path.name} cannot be read as ONNX: it is truncated, or of another kind"
            f" ({first_line(error)}).",
            reason="not-onnx",
            hint=FETCH_AGAIN,
        ) from error
    return model


def load_whole(path: Path) -> ModelProto:
    """Return the bound model at ``path`` with its external data inside it.

    Raises SpecError for a file that is not ONNX, and for a tensor whose place is none.
    """
    model = parse(path)
    for tensor in tensors(model):
        if tensor.data_location != tensor.EXTERNAL:
            continue
        location, start, end = place_of(tensor, path=path)
        with (path.parent / location).open("rb") as file:
            file.seek(start)
            tensor.raw_data = file.read(end - start or -1)
        tensor.data_location = tensor.DEFAULT
        del tensor.external_data[:]
    return model


def read_external(tensor: TensorProto, *, path: Path, dtype: str) -> Array:
    """Return the values of a tensor whose data lie beside the model at ``path``.

    Raises SpecError for a tensor whose place is none, ValueError for too few data.
    """
    location, start, _ = place_of(tensor, path=path)
    stored, count = np.dtype(dtype).newbyteorder("<"), math.prod(tensor.dims)
    values = np.fromfile(path.parent / location, stored, count=count, offset=start)
    shaped: Array = values.reshape(tuple(tensor.dims))
    return shaped


def copy_unlinked(path: Path, folder: Path) -> Path:
    """Return the bound model at ``path``, or a copy in ``folder`` where its data are links.

    For tools that read the file themselves, by way of onnx. Raises SpecError like ``load_whole``.
    """
    model = parse(path)
    external = [tensor for tensor in tensors(model) if tensor.data_location == tensor.EXTERNAL]
    places = {place_of(tensor, path=path)[0] for tensor in external}
    files = [path.parent / place for place in places]
    if all(file.stat().st_nlink == 1 and not file.is_symlink() for file in files):
        return path
    for place in places:
        shutil.copyfile(path.parent / place, folder / place)
    return Path(shutil.copyfile(path, folder / path.name))


def place_of(tensor: TensorProto, *, path: Path) -> tuple[str, int, int]:
    """Return in which data file a tensor lies, at which byte it starts and ends there.

    Raises SpecError where that is not what its shape needs.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    offset, length = (entries.get(key) or "0" for key in ("offset", "length"))
    needed = math.prod(tensor.dims) * _ITEM_BYTES.get(tensor.data_type, 0)
    # Without a length it is as long as its shape needs.
    if not (_is_count(offset) and _is_count(length)) or 0 < int(length) < needed:
        raise SpecError(
            f"{path.name}: {tensor.name!r} is said to be {length} bytes of its data file, from"
            f" byte {offset}; its shape needs {needed}.",
            reason="external-data",
            hint=FETCH_AGAIN,
        )
    start = int(offset)
    return entries.get("location", ""), start, start + (int(length) or needed)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


_ITEM_BYTES = {
    **dict.fromkeys((2, 3, 9, 17, 18, 19, 20), 1),
    **dict.fromkeys((4, 5, 10, 16), 2),
    **dict.fromkeys((1, 6, 12), 4),
    **dict.fromkeys((7, 11, 13, 14), 8),
    15: 16,
}
"""By TensorProto.DataType; strings and types of less than a byte are left out."""
