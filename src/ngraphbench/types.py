"""Small frozen values that everything else is made of. Standard library and numpy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BFLOAT16",
    "DTYPES",
    "FLOATS",
    "INT8",
    "INTEGERS",
    "VENDOR_DEFAULT",
    "VENDOR_THREADS",
    "Array",
    "Arrays",
    "Device",
    "Json",
    "Option",
    "OptionValue",
    "Support",
    "TensorSpec",
    "storage_dtype",
]

Json: TypeAlias = dict[str, Any]
Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = dict[str, Array]
OptionValue: TypeAlias = bool | int | float | str

BFLOAT16 = "bfloat16"
FLOATS = ("float32", "float64", "float16", BFLOAT16)
INTEGERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")
DTYPES = (*FLOATS, *INTEGERS, "bool")
"""What an input may be made of."""

INT8 = "int8"
"""The precision of models that are quantised, by a compiler or before it."""

VENDOR_THREADS = "vendor-default"
"""The thread policy under which each vendor decides; otherwise all use equally many."""

VENDOR_DEFAULT = 0
"""``Device.threads`` under that policy."""


def storage_dtype(dtype: str) -> np.dtype[Any]:
    """Return the numpy dtype that holds values of ``dtype`` in arrays and ``.npz`` files.

    Numpy has no bfloat16, so its 16 bits travel as ``uint16``.

    >>> storage_dtype("bfloat16")
    dtype('uint16')
    """
    return np.dtype("uint16") if dtype == BFLOAT16 else np.dtype(dtype)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output: ``shape`` holds ints, or names for dims that are not fixed.

    ``generator`` says how values are made: ``normal``, ``uniform:LO:HI``,
    ``int:LO:HI`` (HI excluded), ``const:V``, or ``file`` (the user's own arrays).
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    generator: str = "normal"

    def to_json(self) -> Json:
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "generator": self.generator,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TensorSpec:
        return cls(
            name=data["name"],
            dtype=data["dtype"],
            shape=tuple(data["shape"]),
            generator=data.get("generator", "normal"),
        )


@dataclass(frozen=True, slots=True)
class Device:
    """Where a program runs: ``name`` as the user wrote it, ``accelerator`` such as ``cpu``.

    ``threads`` is how many threads a program may use, ``VENDOR_DEFAULT`` (0) where the
    vendor's own default decides; ``cpus`` is the CPU set it is bound to (empty: whatever
    the process has).
    """

    name: str = "local"
    accelerator: str = "cpu"
    threads: int = 1
    cpus: tuple[int, ...] = ()

    def to_json(self) -> Json:
        return {
            "name": self.name,
            "accelerator": self.accelerator,
            "threads": self.threads,
            "cpus": list(self.cpus),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Device:
        return cls(
            name=data.get("name", "local"),
            accelerator=data.get("accelerator", "cpu"),
            threads=int(data.get("threads", 1)),
            cpus=tuple(data.get("cpus", ())),
        )


@dataclass(frozen=True, slots=True)
class Option:
    """A declared option of a compiler.

    ``presets`` maps a preset's name (``shipped``, ``recommended``) to this option's
    value under it; a preset that is not listed leaves the default. The value of one that is
    a ``database`` is the absolute path of a folder that searches read and add to: where a
    session runs on another device, a copy goes along and what was added comes back.
    """

    name: str
    type: Literal["bool", "int", "float", "str"]
    default: OptionValue
    help: str
    choices: Sequence[OptionValue] = ()
    minimum: float | None = None
    presets: Mapping[str, OptionValue] = field(default_factory=dict)
    database: bool = False


@dataclass(frozen=True, slots=True)
class Support:
    """The answer of a probe: usable or not, which version, and the cure when not."""

    ok: bool
    version: str = ""
    hint: str = ""

    def to_json(self) -> Json:
        return {"ok": self.ok, "version": self.version, "hint": self.hint}
