"""Input values: seeded ones, or the user's own arrays."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ngraphbench.errors import SpecError, Unsupported, first_line
from ngraphbench.types import BFLOAT16, Array, Arrays, TensorSpec, storage_dtype

__all__ = [
    "array_names",
    "dims_of",
    "from_bfloat16",
    "generate",
    "load_user_inputs",
    "read_array",
    "to_bfloat16",
]


def generate(spec: TensorSpec, *, seed: int, which: str) -> Array:
    """Return values for ``spec``, every dim an int; bfloat16 as uint16 bits.

    The values depend on the seed, the set and the input's name alone; the first rows are
    the same at every batch size. Integers and booleans are never all zero.
    Raises Unsupported for a generator that cannot be read or does not fit the dtype.
    """
    shape = tuple(int(dim) for dim in spec.shape)
    text = f"{seed}/{which}/{spec.name}".encode("utf-8", "surrogatepass")
    random = np.random.default_rng(int.from_bytes(hashlib.sha256(text).digest()[:16], "big"))
    kind, numbers = _generator(spec)
    values: Array
    if kind == "normal":
        values = random.standard_normal(shape, dtype=np.float32)
    elif kind == "uniform":
        values = random.uniform(numbers[0], numbers[1], shape)
    elif kind == "const":
        values = np.full(shape, numbers[0])
    else:
        values = random.integers(math.ceil(numbers[0]), math.ceil(numbers[1]), shape)
        values = np.asarray(values)
        if values.size and not values.any() and numbers[1] > 1:
            values.reshape(-1)[0] = 1
    return _stored(np.asarray(values), spec.dtype)


def _generator(spec: TensorSpec) -> tuple[str, list[float]]:
    kind, _, rest = spec.generator.partition(":")
    wanted = {"normal": 0, "uniform": 2, "int": 2, "const": 1}
    try:
        numbers = [float(number) for number in rest.split(":")] if rest else []
    except ValueError:
        numbers = []
    if wanted.get(kind) != len(numbers) or (len(numbers) == 2 and numbers[0] >= numbers[1]):
        raise Unsupported(
            f"Input {spec.name!r} has the generator {spec.generator!r}.",
            reason="input",
            hint="Use normal, uniform:LO:HI, int:LO:HI (HI excluded) or const:V.",
        )
    is_float = spec.dtype == BFLOAT16 or storage_dtype(spec.dtype).kind == "f"
    if kind in ("normal", "uniform") and not is_float:
        raise Unsupported(
            f"Input {spec.name!r} is {spec.dtype}; {spec.generator!r} makes floats.",
            reason="input",
            hint="Use int:LO:HI.",
        )
    return kind, numbers


def _stored(values: Array, dtype: str) -> Array:
    if dtype == BFLOAT16:
        return to_bfloat16(values)
    return values.astype(storage_dtype(dtype))


def to_bfloat16(values: Array) -> Array:
    """Return ``values`` as bfloat16 bits in uint16, rounded to nearest, ties to even."""
    single = np.ascontiguousarray(values, dtype=np.float32).reshape(np.shape(values))
    bits = single.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    # Adding to the bits of a NaN may carry it over into a zero.
    return np.where(np.isnan(single), 0x7FC0, rounded).astype(np.uint16)


def from_bfloat16(bits: Array) -> Array:
    """Return bfloat16 bits held in uint16 as float32 values, exactly."""
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32)


def load_user_inputs(path: Path, specs: Sequence[TensorSpec], batch: int) -> Arrays:
    """Return the arrays of the user's ``.npz`` file by input name, in the order of ``specs``.

    Dims of ``specs`` that are names take any size; ``batch`` must be as asked for.
    Raises SpecError for a file that is not ``.npz`` or lacks an input, Unsupported for an
    array of another batch size (``batch-fixed``), shape or kind of dtype (``input``).
    """
    found = _read(path)
    missing = [spec.name for spec in specs if spec.name not in found]
    if missing:
        raise SpecError(
            f"{path.name} has no array for input {missing[0]!r}; it has: {', '.join(found)}.",
            reason="inputs-file",
            hint="Save it with numpy.savez(file, **{input_name: array}).",
        )
    return {spec.name: _fitted(spec, found[spec.name], batch, path=path) for spec in specs}


def array_names(path: Path) -> list[str]:
    """Return the names of the arrays in an ``.npz`` file. Raises SpecError for another file."""
    return list(_read(path, wanted=()))


def read_array(path: Path, name: str) -> Array:
    """Return one array of an ``.npz`` file that has it. Raises SpecError for another file."""
    return _read(path, wanted=(name,))[name]


def _read(path: Path, *, wanted: Sequence[str] | None = None) -> Arrays:
    """Return every array, or an empty one in place of those that are not ``wanted``."""
    try:
        with np.load(path, allow_pickle=False) as data:
            found = {
                name: data[name] if wanted is None or name in wanted else np.empty(0)
                for name in data.files
            }
        if other := [name for name, array in found.items() if not isinstance(array, np.ndarray)]:
            raise ValueError(f"{other[0]} is no array")
        return found
    # What a broken archive makes numpy, zipfile, zlib and tokenize raise has no common base.
    except Exception as error:
        raise SpecError(
            f"{path.name} cannot be read as an .npz file of arrays: {first_line(error)}.",
            reason="inputs-file",
            hint="Save it with numpy.savez(file, **{input_name: array}).",
        ) from error


def _fitted(spec: TensorSpec, array: Array, batch: int, *, path: Path) -> Array:
    shape = "x".join(map(str, array.shape)) or "scalar"
    fits = len(array.shape) == len(spec.shape)
    for have, want in zip(array.shape, spec.shape, strict=False):
        if want == "batch" and have != batch and fits:
            raise Unsupported(
                f"Batch {batch} was asked for; input {spec.name!r} in {path.name} is {shape}.",
                reason="batch-fixed",
                hint=f"Give a file with {batch} rows, or use -b {have}.",
            )
        fits = fits and (want == have or isinstance(want, str))
    if not fits:
        raise Unsupported(
            f"Input {spec.name!r} in {path.name} is {shape}; the model takes"
            f" {'x'.join(map(str, spec.shape)) or 'scalar'}.",
            reason="input",
        )
    target = storage_dtype(spec.dtype)
    if spec.dtype == BFLOAT16 and array.dtype != np.uint16:
        if array.dtype.kind == "f":
            return to_bfloat16(array)
    elif array.dtype == target or _keeps_values(array, target):
        return array.astype(target)
    raise Unsupported(
        f"Input {spec.name!r} in {path.name} is {array.dtype}; the model takes {spec.dtype}.",
        reason="input",
        hint=f"Save it as {spec.dtype}.",
    )


def _keeps_values(array: Array, target: np.dtype[np.generic]) -> bool:
    if array.dtype.kind == "f" and target.kind == "f":
        return True
    return array.dtype.kind in "iub" and bool(np.array_equal(array, array.astype(target)))


def dims_of(specs: Sequence[TensorSpec], arrays: Mapping[str, Array]) -> tuple[TensorSpec, ...]:
    """Return ``specs`` with the dims of ``arrays``, which came from the user's file."""
    return tuple(
        TensorSpec(spec.name, spec.dtype, tuple(arrays[spec.name].shape), "file") for spec in specs
    )
