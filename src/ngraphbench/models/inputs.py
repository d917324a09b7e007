"""Which inputs a model takes: declared dims, the user's overrides, and the batch axis.

The result is an ``InputPlan``. The batch dim is named ``batch`` in it; other dims that
are not fixed keep a name, and get guessed sizes until the user gives them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ngraphbench.errors import SpecError, Unsupported
from ngraphbench.models.batch import BATCH, batch_symbols, conjectures, is_batch_letter
from ngraphbench.models.dims import derived_size, is_expression, sizes_text
from ngraphbench.models.lengths import LENGTH, length_symbol
from ngraphbench.types import DTYPES, FLOATS, INTEGERS, Json, TensorSpec

__all__ = [
    "BATCH",
    "Declared",
    "InputPlan",
    "default_generator",
    "merge_overrides",
    "parse_input_option",
    "plan_inputs",
]

_SIZES = (256, 128, 48, 64, 512, 32, 16)
_HOW = "Give --input {name}=SHAPE:DTYPE:LO..HI, for example {name}=batchx3x224x224:float32."


@dataclass(frozen=True, slots=True)
class Declared:
    """One input as the model declares it.

    ``shape`` is None when there is none; a dim is an int, a symbol, or ``""`` for one
    without a name. ``strict`` inputs cannot be given other dims than the fixed ones.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None
    generator: str = ""
    strict: bool = True


@dataclass(frozen=True, slots=True)
class InputPlan:
    """The inputs of a model for every batch size.

    ``fixed_batch`` is the only batch size possible, or None for any; ``declared`` says
    that the model's own shapes fix it, and not what the user gave. ``symbols`` are the
    names that the model has for the batch. ``guesses`` maps each dim that is neither fixed
    nor given to its first size, ``given`` those that are given to theirs. A dim written as
    a sum of others gets that.
    """

    specs: tuple[TensorSpec, ...]
    fixed_batch: int | None = None
    declared: bool = False
    symbols: frozenset[str] = frozenset()
    guesses: Mapping[str, int] = field(default_factory=dict)
    given: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def attempts(self) -> int:
        """How many sets of sizes there are to try, the best guess first."""
        return 1 + len(_SIZES) if any(size != 3 for size in self.guesses.values()) else 1

    def sizes(self, attempt: int = 0) -> dict[str, int]:
        """Return the size of every guessed dim in the given attempt."""
        if attempt == 0:
            return dict(self.guesses)
        return {k: v if v == 3 else _SIZES[attempt - 1] for k, v in self.guesses.items()}

    def bound(self, batch: int, *, attempt: int = 0) -> tuple[TensorSpec, ...]:
        """Return the inputs with every dim an int.

        Raises Unsupported (``batch-fixed``) when the model has another batch size.
        """
        if self.fixed_batch is not None and batch != self.fixed_batch:
            raise Unsupported(
                f"Batch {batch} was asked for; the model is fixed to batch {self.fixed_batch}.",
                reason="batch-fixed",
                hint=f"Export it with a dynamic batch, or use -b {self.fixed_batch}.",
            )
        known = {**self.sizes(attempt), BATCH: batch, **dict.fromkeys(self.symbols, batch)}
        known |= self.given
        return tuple(
            replace(
                spec,
                shape=tuple(_size(dim, known) for dim in spec.shape),
                generator=_with_length(spec.generator, known),
            )
            for spec in self.specs
        )

    def rewritten(self) -> Iterator[InputPlan]:
        """Yield plans of any batch size, in place of the size that the model declares.

        They are conjectures, the likeliest first; each must be proved by running.
        """
        if self.fixed_batch is None or not self.declared:
            return
        for axes in conjectures(self.specs, self.fixed_batch):
            specs = tuple(
                replace(s, shape=_with(s.shape, axes[s.name])) if s.name in axes else s
                for s in self.specs
            )
            yield replace(self, specs=specs, fixed_batch=None, declared=False)

    def batch_axes(self) -> dict[str, int | None]:
        """Return the batch axis of every input by name; None for an input without."""
        return {s.name: s.shape.index(BATCH) if BATCH in s.shape else None for s in self.specs}


def _size(dim: int | str, known: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    written = derived_size(dim, known) if is_expression(dim) else None
    return known[dim] if written is None else written


def _with_length(generator: str, known: Mapping[str, int]) -> str:
    """Return a generator of lengths as that of the whole size of the dim that they measure."""
    if not generator.startswith(LENGTH):
        return generator
    return f"const:{_size(generator.removeprefix(LENGTH), known)}"


def _with(shape: tuple[int | str, ...], axis: int) -> tuple[int | str, ...]:
    return (*shape[:axis], BATCH, *shape[axis + 1 :])


def plan_inputs(declared: Sequence[Declared], overrides: Mapping[str, Any]) -> InputPlan:
    """Return the plan for ``declared`` inputs, where the user's ``overrides`` win.

    Raises Unsupported for an input without shape (``input-shape``) and for overrides
    that name no input or contradict fixed dims (``input``).
    """
    notes: list[str] = []
    _check_names([one.name for one in declared], overrides)
    shapes = {one.name: list(_dims(one, overrides.get(one.name, {}))) for one in declared}
    symbols = batch_symbols(shapes, notes)
    fixed: set[int] = set()
    bound: dict[str, int] = {}
    for one in declared:
        given = overrides.get(one.name, {}).get("shape")
        shape = shapes[one.name]
        shapes[one.name] = [BATCH if dim in symbols else dim for dim in shape]
        if given is not None:
            _apply_shape(one, given, shape=shapes[one.name], fixed=fixed, bound=bound)
    resolved = {
        name: [bound.get(dim, dim) if isinstance(dim, str) else dim for dim in shape]
        for name, shape in shapes.items()
    }
    fixed_batch = _fixed_batch(resolved, fixed, notes)
    declares = not any(BATCH in shape for shape in resolved.values()) and fixed_batch is not None
    guesses = _guesses(resolved)
    free = {name: size for name, size in guesses.items() if not is_expression(name)}
    if free:
        text = sizes_text(free)
        notes.append(f"dims-guessed: {text} (or others if these fail); give --input to choose")
    specs = tuple(
        _spec(one, overrides.get(one.name, {}), resolved[one.name], shapes=shapes)
        for one in declared
    )
    return InputPlan(
        specs=specs,
        fixed_batch=fixed_batch,
        declared=declares,
        symbols=frozenset(symbols),
        guesses=guesses,
        given=bound,
        notes=tuple(notes),
    )


def _check_names(names: Sequence[str], overrides: Mapping[str, Any]) -> None:
    for name in overrides:
        if name not in names:
            raise Unsupported(
                f"An input {name!r} was given; the model has {', '.join(names) or 'no inputs'}.",
                reason="input",
                hint="Use the model's own input names.",
            )


def _dims(one: Declared, override: Mapping[str, Any]) -> Iterable[int | str]:
    given = override.get("shape")
    if one.shape is None and given is None:
        raise Unsupported(
            f"Input {one.name!r} has no declared shape.",
            reason="input-shape",
            hint=_HOW.format(name=one.name),
        )
    if one.shape is None or (given is not None and not one.strict):
        return [_soft(dim, axis) for axis, dim in enumerate(given or ())]
    return [dim if dim != "" else f"?{one.name}.{axis}" for axis, dim in enumerate(one.shape)]


def _soft(dim: int | str, axis: int) -> int | str:
    """Return a dim as given where nothing is declared; a leading 1 stands for the batch."""
    if axis == 0 and dim == 1:
        return BATCH
    return BATCH if isinstance(dim, str) and is_batch_letter(dim) else dim


def _apply_shape(
    one: Declared,
    given: Sequence[int | str],
    *,
    shape: list[int | str],
    fixed: set[int],
    bound: dict[str, int],
) -> None:
    """Note what the user's shape fixes: dims by symbol in ``bound``, the batch in ``fixed``."""
    if len(given) != len(shape):
        raise Unsupported(
            f"Input {one.name!r} was given {len(given)} dims; the model declares {_text(shape)}.",
            reason="input",
        )
    for axis, (want, have) in enumerate(zip(given, shape, strict=True)):
        if isinstance(want, str):
            if isinstance(have, str) and have != BATCH and is_batch_letter(want):
                shape[axis] = BATCH
        elif have == BATCH:
            # People write 1x3x320x320 for the shape of one item.
            if want != 1:
                fixed.add(want)
        elif isinstance(have, str):
            bound[have] = want
        elif want != have:
            raise Unsupported(
                f"Input {one.name!r} was given {_text(given)}; the model is fixed to"
                f" {_text(shape)}.",
                reason="input",
                hint="Export the model with dynamic dims, or leave this shape out.",
            )


def _fixed_batch(
    shapes: Mapping[str, Sequence[int | str]], fixed: set[int], notes: list[str]
) -> int | None:
    if any(BATCH in shape for shape in shapes.values()):
        if len(fixed) > 1:
            raise Unsupported(
                f"The given shapes have different batch sizes: {sorted(fixed)}.", reason="input"
            )
        return next(iter(fixed), None)
    leading = [shape[0] for shape in shapes.values() if shape]
    if not leading:
        notes.append("no-batch: the model has no input with a batch axis; only batch 1 is run")
        return 1
    size = leading[0]
    return size if isinstance(size, int) else 1


def _guesses(shapes: Mapping[str, Sequence[int | str]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for shape in shapes.values():
        for axis, dim in enumerate(shape):
            if isinstance(dim, str) and dim != BATCH and dim not in found:
                image = len(shape) == 4
                found[dim] = 224 if image and axis >= 2 else 3 if image and axis == 1 else 64
    return found


def _spec(
    one: Declared,
    override: Mapping[str, Any],
    shape: Sequence[int | str],
    *,
    shapes: Mapping[str, Sequence[int | str]],
) -> TensorSpec:
    dtype = str(override.get("dtype") or one.dtype)
    if dtype not in DTYPES:
        raise Unsupported(
            f"Input {one.name!r} has dtype {dtype!r}, which cannot be fed.",
            reason="dtype",
            hint=f"Dtypes: {', '.join(DTYPES)}.",
        )
    if one.strict and dtype != one.dtype:
        raise Unsupported(
            f"Input {one.name!r} was given as {dtype}; the model takes {one.dtype}.",
            reason="input",
            hint="Leave the dtype out.",
        )
    generator = str(override.get("generator") or "")
    if not generator and not one.generator and one.dtype in INTEGERS:
        length = length_symbol(one.name, shapes)
        generator = f"{LENGTH}{length}" if length else ""
    if not generator:
        same = dtype == one.dtype
        generator = one.generator if one.generator and same else default_generator(dtype)
    kind, _, rest = generator.partition(":")
    if kind == "range":
        generator = f"{'uniform' if dtype in FLOATS else 'int'}:{rest}"
    return TensorSpec(name=one.name, dtype=dtype, shape=tuple(shape), generator=generator)


def default_generator(dtype: str) -> str:
    """Return how values of ``dtype`` are made where nothing more is known.

    >>> default_generator("int64")
    'int:0:2'
    """
    if dtype in FLOATS:
        return "normal"
    return {"uint8": "int:0:256", "int8": "int:-128:128"}.get(dtype, "int:0:2")


def merge_overrides(inputs: Mapping[str, Any], shapes: Mapping[str, Any]) -> Json:
    """Return the overrides by input name, the shapes of one case winning."""
    merged: Json = {name: dict(value) for name, value in inputs.items()}
    for name, shape in shapes.items():
        merged[name] = {**merged.get(name, {}), "shape": list(shape)}
    return merged


def parse_input_option(text: str) -> tuple[str, Json]:
    """Return input name and override of ``NAME=SHAPE:DTYPE:VALUES``; every part is optional.

    NAME may hold ``=`` and ``:``. SHAPE is ``1x3x224x224``, with names for dims that
    vary (``batchx3x224x224``), or ``scalar``. VALUES are ``LO..HI``, ``normal`` or
    ``const(V)``; HI is excluded for integers: ``0..9`` gives 0 to 8. Raises SpecError for
    what cannot be read.

    >>> parse_input_option("ids=batchx64:int64:0..9")
    ('ids', {'shape': ['batch', 64], 'dtype': 'int64', 'generator': 'int:0:9'})
    """
    name, equals, rest = text.rpartition("=")
    if not equals or not name or not rest:
        raise _option_error(text, "there is no NAME=")
    override: Json = {}
    for part in rest.split(":"):
        key: str
        value: Any
        if part in DTYPES:
            key, value = "dtype", part
        elif match := re.fullmatch(r"(.+?)\.\.(.+)", part):
            key, value = "generator", _range(match.group(1), match.group(2), text=text)
        elif match := re.fullmatch(r"const\((.+)\)", part):
            key, value = "generator", f"const:{match.group(1)}"
        elif part == "normal":
            key, value = "generator", part
        else:
            key, value = "shape", _shape(part, text=text)
        if key in override:
            dtypes = f", and no dtype ({', '.join(DTYPES)})" if key == "shape" else ""
            raise _option_error(text, f"{part!r} is a second {key}{dtypes}")
        override[key] = value
    if str(override.get("generator", "")).startswith("range:") and "dtype" in override:
        kind = "uniform" if override["dtype"] in FLOATS else "int"
        override["generator"] = kind + str(override["generator"]).removeprefix("range")
    return name, override


def _range(low: str, high: str, *, text: str) -> str:
    try:
        if not float(low) < float(high):
            raise _option_error(text, f"{low}..{high} is empty")
    except ValueError:
        raise _option_error(text, f"{low}..{high} is not a range of numbers") from None
    return f"range:{low}:{high}"


def _shape(part: str, *, text: str) -> list[int | str]:
    if part == "scalar":
        return []
    dims: list[int | str] = []
    for dim in re.split(r"[x,]", part):
        if dim.isdecimal():
            dims.append(int(dim))
        elif dim.isidentifier():
            dims.append(dim)
        else:
            raise _option_error(text, f"{part!r} is neither a shape, a dtype nor a range")
    return dims


def _option_error(text: str, found: str) -> SpecError:
    return SpecError(
        f"--input {text!r}: {found}.",
        reason="input-option",
        hint="Write NAME=SHAPE:DTYPE:LO..HI, for example x=batchx3x224x224:float32:0..1.",
    )


def _text(shape: Sequence[int | str]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
