"""ONNX files: opened by path, checked, and rewritten for one batch size.

External data is never read here, so a model may be larger than memory or than the 2 GB
that a protobuf can hold.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from ngraphbench.errors import SpecError, Unsupported, first_line
from ngraphbench.models.localfile import similar_files
from ngraphbench.models.onnxdata import FETCH_AGAIN, parse, place_of, read_external
from ngraphbench.models.onnxgraph import (
    STANDARD_DOMAINS,
    attribute_graphs,
    graph_inputs,
    tensors,
)
from ngraphbench.types import Array

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

__all__ = [
    "OnnxFile",
    "bind",
    "check_format",
    "external_files",
    "forget_output_shapes",
    "open_onnx",
    "weight_arrays",
]

_LFS_HEAD = b"version https://git-lfs"


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """A parsed ONNX file without its external data, and where that data is.

    ``data`` maps each external location, as written in the file, to the file's path.
    """

    path: Path
    model: ModelProto
    data: Mapping[str, Path]

    @property
    def size_bytes(self) -> int:
        """How large the file and its external data are together."""
        return sum(path.stat().st_size for path in (self.path, *self.data.values()))


def open_onnx(path: Path) -> OnnxFile:
    """Return the parsed file at ``path``; its external data is located, not loaded.

    Raises SpecError for a file that is missing, empty or not ONNX, and for external data
    that is missing, too short, or outside the model's folder.
    """
    if not path.is_file():
        raise SpecError(
            f"There is no ONNX file {str(path)!r}.", reason="missing", hint=similar_files(path)
        )
    if path.stat().st_size == 0:
        raise SpecError(f"{path.name} is an empty file.", reason="empty", hint=FETCH_AGAIN)
    with path.open("rb") as file:
        if file.read(len(_LFS_HEAD)) == _LFS_HEAD:
            raise SpecError(
                f"{path.name} is a Git LFS pointer, not the model itself.",
                reason="not-onnx",
                hint="Fetch it with `git lfs pull`.",
            )
    model = parse(path)
    if not model.HasField("graph") or not model.graph.output or not model.ir_version:
        raise SpecError(
            f"{path.name} holds no ONNX graph with an output.", reason="not-onnx", hint=FETCH_AGAIN
        )
    return OnnxFile(path=path, model=model, data=external_files(model, path=path))


def check_format(model: ModelProto) -> None:
    """Raise Unsupported when the file is of a newer format than the installed onnx knows."""
    import onnx
    from onnx import defs

    if model.ir_version > onnx.IR_VERSION:
        raise Unsupported(
            f"The file has IR version {model.ir_version}; onnx {onnx.__version__} knows up to"
            f" {onnx.IR_VERSION}.",
            reason="model-format",
            hint="Upgrade onnx, or export the model again.",
        )
    newest = int(defs.onnx_opset_version())
    for entry in model.opset_import:
        if entry.domain in STANDARD_DOMAINS and entry.version > newest:
            raise Unsupported(
                f"The file asks for opset {entry.version}; onnx {onnx.__version__} knows up to"
                f" {newest}.",
                reason="model-format",
                hint="Upgrade onnx, or export the model with an older opset.",
            )


def weight_arrays(source: OnnxFile) -> Iterator[tuple[Array, str]]:
    """Yield the value and dtype of each floating tensor, one in memory at a time.

    bfloat16 is left out: the ONNX library hands it out as numbers, not as bits. Raises
    Unsupported for a tensor whose data are not what its shape and type say.
    """
    from onnx import TensorProto, numpy_helper

    names = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}
    for tensor in tensors(source.model):
        if tensor.data_type not in names:
            continue
        name = names[tensor.data_type]
        try:
            if tensor.data_location == tensor.EXTERNAL:
                values = read_external(tensor, path=source.path, dtype=name)
            else:
                values = numpy_helper.to_array(tensor)
        except (ValueError, TypeError, OverflowError) as error:
            raise Unsupported(
                f"The tensor {tensor.name!r} of {source.path.name} does not hold what its shape"
                f" {list(tensor.dims)} says: {first_line(error)}.",
                reason="model-format",
                hint=FETCH_AGAIN,
            ) from error
        yield values, name


def external_files(model: ModelProto, *, path: Path) -> dict[str, Path]:
    """Return the external data of the model at ``path``: location as written -> file.

    Raises SpecError for a location that is absolute, leaves the model's folder, is
    missing, or is shorter than the tensors in it need.
    """
    found: dict[str, Path] = {}
    for tensor in tensors(model):
        if tensor.data_location != tensor.EXTERNAL:
            continue
        location, _, end = place_of(tensor, path=path)
        if location not in found:
            found[location] = _data_file(location, path=path)
        size = found[location].stat().st_size
        if end > size:
            raise SpecError(
                f"{path.name} needs {end} bytes of its data file {location!r}, which has {size}.",
                reason="external-data",
                hint="The data file is truncated or belongs to another model.",
            )
    return found


def _data_file(location: str, *, path: Path) -> Path:
    absolute = PurePosixPath(location).is_absolute() or PureWindowsPath(location).anchor
    leaves = ".." in PurePosixPath(location.replace("\\", "/")).parts
    if not location or absolute or leaves:
        raise SpecError(
            f"{path.name} keeps its data in {location!r}, outside the model's folder.",
            reason="external-data",
            hint="Data files must be beside the model; export it again or move them.",
        )
    file = path.parent / location
    if not file.is_file():
        raise SpecError(
            f"{path.name} needs the data file {location!r}, which is not beside it.",
            reason="external-data",
            hint=similar_files(file),
        )
    # A download cache links both the model and its data to one folder of blobs: allowed.
    homes = (path.parent.resolve(), path.resolve().parent)
    if not any(file.resolve().is_relative_to(home) for home in homes):
        raise SpecError(
            f"{path.name}: its data file {location!r} is a link out of the model's folder.",
            reason="external-data",
            hint="Put the file itself beside the model.",
        )
    return file


def bind(source: OnnxFile, shapes: Mapping[str, Sequence[int]], out: Path) -> Path:
    """Write ``source`` with every input dim fixed to ``out/model.onnx``; return that path.

    ``shapes`` maps input names to dims. Shapes inside the graph that name symbolic dims
    are cleared, so that runtimes infer them anew; all are where an input gets other dims
    than the file fixes. External data is hard-linked beside the file under plain names, or
    copied once where links are not possible.
    """
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(source.model)
    rewritten = False
    for value in graph_inputs(model):
        dims = value.type.tensor_type.shape.dim
        fixed = zip(dims, shapes[value.name], strict=False)
        rewritten |= any(dim.dim_value > 0 and dim.dim_value != size for dim, size in fixed)
        del dims[:]
        for size in shapes[value.name]:
            dims.add().dim_value = int(size)
    _clear_shapes(model.graph, outer=True, all_of_them=rewritten)
    out.mkdir(parents=True, exist_ok=True)
    # pnnx looks for this name alone.
    places = [f"weights-{i}.bin" for i in range(len(source.data))]
    places = ["model.onnx.data"] if len(places) == 1 else places
    names = dict(zip(sorted(source.data), places, strict=True))
    for tensor in tensors(model):
        for entry in tensor.external_data if tensor.data_location == tensor.EXTERNAL else ():
            if entry.key == "location":
                entry.value = names[entry.value]
    for location, name in names.items():
        _place(source.data[location].resolve(), out / name)
    target = out / "model.onnx"
    partial = target.with_name("model.onnx.part")
    partial.write_bytes(model.SerializeToString())
    partial.replace(target)
    return target


def forget_output_shapes(path: Path, found: Mapping[str, Sequence[int]]) -> list[str]:
    """Clear the output shapes in the bound file at ``path`` that ``found`` contradicts.

    Returns their names. External data stays where it is.
    """
    model = parse(path)
    wrong = []
    for value in model.graph.output:
        dims = value.type.tensor_type.shape.dim
        declared = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in dims]
        shape = list(found.get(value.name, declared))
        pairs = zip(declared, shape, strict=False)
        if not value.type.tensor_type.HasField("shape") or (
            len(shape) == len(declared) and all(d in (-1, n) for d, n in pairs)
        ):
            continue
        value.type.tensor_type.ClearField("shape")
        wrong.append(value.name)
    if wrong:
        partial = path.with_name("model.onnx.part")
        partial.write_bytes(model.SerializeToString())
        partial.replace(path)
    return wrong


def _clear_shapes(graph: Any, *, outer: bool, all_of_them: bool) -> None:
    kept = [value for value in graph.value_info if _is_static(value) and not all_of_them]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    for value in [*graph.output, *([] if outer else graph.input)]:
        for dim in value.type.tensor_type.shape.dim:
            if all_of_them or not dim.HasField("dim_value") or dim.dim_value < 0:
                dim.Clear()
    for node in graph.node:
        for attribute in node.attribute:
            for inner in attribute_graphs(attribute):
                _clear_shapes(inner, outer=False, all_of_them=all_of_them)


def _is_static(value: ValueInfoProto) -> bool:
    if not value.type.HasField("tensor_type"):
        return True
    dims = value.type.tensor_type.shape.dim
    return all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims)


def _place(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        # Another file system: one copy in the workload folder serves every batch size.
        shared = target.parent.parent / target.name
        if not shared.exists():
            partial = shared.with_name(shared.name + ".part")
            shutil.copyfile(source, partial)
            partial.replace(shared)
        try:
            os.link(shared, target)
        except OSError:
            shutil.copyfile(shared, target)
