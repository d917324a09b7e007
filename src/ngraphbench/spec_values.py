"""The small notations of an experiment: compilers, durations, sizes, shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ngraphbench.case import CompilerRef
from ngraphbench.errors import SpecError
from ngraphbench.types import VENDOR_THREADS, OptionValue

__all__ = [
    "CompilerSpec",
    "compiler_entry",
    "dim_entry",
    "generator_entry",
    "in_flight_entry",
    "name_entry",
    "parse_bytes",
    "parse_compiler",
    "parse_seconds",
    "rate_entry",
    "setting_entry",
    "split_device",
    "sustained_entry",
    "threads_entry",
]

IN_FLIGHT_MAX = 256
SUSTAINED_S_MIN = 10.0

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_GENERATOR = re.compile(rf"normal|(?:uniform|int|range):{_NUMBER}:{_NUMBER}|const:{_NUMBER}")
_QUANTITY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]+)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_BYTES = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_COMPILER = re.compile(r"([A-Za-z0-9][\w.+-]*)(?:@([^:]+))?(?::(.*))?", re.DOTALL)
_OPTION = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
# Values may hold commas and equals signs; a new option starts at ",name=".
_NEXT_OPTION = re.compile(r",(?=[A-Za-z_][\w.-]*=)")


@dataclass(frozen=True, slots=True)
class CompilerSpec:
    """A compiler as the user named it; option values are text when they came from text."""

    name: str
    version: str = ""
    options: dict[str, OptionValue] = field(default_factory=dict)

    @property
    def head(self) -> str:
        """Name and version: ``onnxruntime@1.31.1``."""
        return f"{self.name}@{self.version}" if self.version else self.name

    @property
    def text(self) -> str:
        """The compiler as the command line takes it, options sorted."""
        return CompilerRef(self.name, "", given=self.options, version=self.version).text


def parse_compiler(text: str) -> CompilerSpec:
    """Return the compiler in ``NAME[@VERSION][:opt=val,...]``; values stay text.

    Raises SpecError for any other form and for an option given twice.

    >>> parse_compiler("openvino@2026.4:num_streams=2").options
    {'num_streams': '2'}
    """
    match = _COMPILER.fullmatch(text.strip())
    if match is None:
        raise SpecError(
            f"{text!r} is not a compiler.",
            reason="compiler-form",
            hint="Write NAME, NAME@VERSION or NAME:option=value,option=value.",
        )
    name, version, rest = match.groups()
    options: dict[str, OptionValue] = {}
    for item in [] if rest is None else _NEXT_OPTION.split(rest):
        option = _OPTION.fullmatch(item.strip())
        if option is None:
            raise SpecError(
                f"{text!r}: {item!r} is not option=value.",
                reason="compiler-form",
                hint=f"Write {name}:option=value; `ngb list compilers --options` shows them.",
            )
        if option[1] in options:
            raise SpecError(
                f"{text!r}: option {option[1]!r} is given twice.",
                reason="compiler-form",
                hint="Keep one; to try several values use `sweep`.",
            )
        options[option[1]] = option[2].strip()
    return CompilerSpec(name, (version or "").strip(), options)


def split_device(text: str) -> tuple[str, str]:
    """Return the name of a device's machine, and its accelerator or nothing.

    >>> split_device("orin-1/cuda"), split_device("ssh://me@orin-1:22/cuda?python=/p")
    (('orin-1', 'cuda'), ('ssh://me@orin-1:22', 'cuda'))
    """
    scheme, mark, rest = text.partition("://")
    place = rest.partition("?")[0] if mark else scheme
    host, _, accelerator = place.partition("/")
    return (f"{scheme}://{host}" if mark else host), accelerator


def parse_seconds(value: object) -> float:
    """Return a duration in seconds: a number, or text such as ``60s`` or ``10min``.

    Raises ValueError for anything else, and for what is not above zero.
    """
    return _quantity(value, _SECONDS, what="a duration such as 60s, 10min or 1h")


def parse_bytes(value: object) -> int:
    """Return a size in bytes: a number, or text such as ``8GiB`` or ``512MB``.

    Raises ValueError for anything else, and for what is below one byte.
    """
    size = int(_quantity(value, _BYTES, what="a size such as 8GiB or 512MiB"))
    if size < 1:
        raise ValueError(f"takes at least 1 byte, not {value!r}")
    return size


def _quantity(value: object, units: Mapping[str, float], *, what: str) -> float:
    number: float | None = None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    elif isinstance(value, str) and (match := _QUANTITY.fullmatch(value.strip())):
        factor = units.get(match[2])
        number = None if factor is None else float(match[1]) * factor
    if number is None:
        raise ValueError(f"takes {what}, not {value!r}; units are {', '.join(units)}")
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"takes a value above zero, not {value!r}")
    return number


def compiler_entry(value: object) -> CompilerSpec:
    """Return a compiler from its text or its one-key mapping ``{NAME: {option: value}}``.

    Raises ValueError.
    """
    if isinstance(value, CompilerSpec):
        return value
    if isinstance(value, str):
        try:
            return parse_compiler(value)
        except SpecError as error:
            raise ValueError(str(error)) from error
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ValueError("takes NAME, or one NAME with its options: {NAME: {option: value}}")
    ((head, options),) = value.items()
    spec = compiler_entry(head)
    if spec.options:
        raise ValueError(f"takes the options of {spec.head!r} as a mapping, not in its name")
    if not isinstance(options, (Mapping, type(None))):
        raise ValueError(f"takes the options of {spec.head!r} as a mapping, not {options!r}")
    for name, setting in (options or {}).items():
        if not isinstance(setting, (bool, int, float, str)):
            raise ValueError(
                f"option {name} of {spec.head} takes one value, not {setting!r};"
                " to try several values use `sweep`"
            )
    return CompilerSpec(spec.name, spec.version, dict(options or {}))


def setting_entry(value: object) -> OptionValue:
    """Return one value of an option. Raises ValueError for lists, mappings and null."""
    if isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"takes a single value, not {value!r}")


def name_entry(value: str) -> str:
    """Return a name that may be that of a folder. Raises ValueError for any other."""
    if not value.strip() or value in (".", "..") or re.search(r"[/\x00-\x1f]", value):
        raise ValueError(f"takes a name without '/' and line breaks, not {value!r}")
    return value


def dim_entry(value: object) -> int | str:
    """Return one dim of a shape: a whole number, or ``batch``. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if value == "batch":
        return "batch"
    raise ValueError(f"takes a whole number or the word batch, not {value!r}")


def generator_entry(value: str) -> str:
    """Return how an input's values are made. Raises ValueError for an unknown form.

    ``range`` is ``uniform`` for floats and ``int`` for whole numbers.
    """
    if not _GENERATOR.fullmatch(value):
        forms = "normal, uniform:LO:HI, int:LO:HI, range:LO:HI or const:V"
        raise ValueError(f"takes {forms}, not {value!r}")
    return value


def rate_entry(value: object) -> object:
    """Return requests per second. Raises ValueError for what is not between 0 and 1e6."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and 0 < float(str(value)) < 1e6):
        raise ValueError(f"takes requests per second above 0 and below 1e6, not {value!r}")
    return float(str(value))


def in_flight_entry(value: object) -> object:
    """Return numbers of requests in flight as a list; a single number is a list of one.

    Raises ValueError above 256: each request has a thread of its own.
    """
    numbers = [value] if isinstance(value, int) else value
    if isinstance(numbers, list) and any(isinstance(n, int) and n > IN_FLIGHT_MAX for n in numbers):
        raise ValueError(f"takes up to {IN_FLIGHT_MAX} requests, each of which has a thread")
    return numbers


def sustained_entry(value: object) -> float:
    """Return seconds. Raises ValueError below ten: heat and power take longer to show."""
    seconds = parse_seconds(value)
    if seconds < SUSTAINED_S_MIN:
        raise ValueError(
            f"takes at least {SUSTAINED_S_MIN:g}s, better 5min, not {value!r}: heat takes time"
        )
    return seconds


def threads_entry(value: object) -> object:
    """Return a policy or a number of at least 1. Raises ValueError for anything else."""
    if value in ("auto", VENDOR_THREADS):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError(f"takes auto, {VENDOR_THREADS} or a whole number of at least 1, not {value!r}")
