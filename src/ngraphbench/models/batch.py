"""Which axis is the batch, of every input and output, and whether rows stand for themselves.

Inputs: the batch is the axis that the model names so, else a first axis of free size. Where
the model fixes it, another size is only a conjecture (``conjectures``), to be proved by
running (``rows_problem``): each row must come out as it does at the size the model declares.
Outputs: declared shapes may be wrong, so their batch axis is the one that is seen to follow.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from ngraphbench.models.dims import is_expression
from ngraphbench.models.reference import Outputs, relative_error, same_values
from ngraphbench.models.rounding import ROUNDING_FACTOR, own_rounding
from ngraphbench.types import Arrays, TensorSpec

__all__ = [
    "BATCH",
    "batch_symbols",
    "conjectures",
    "contradiction",
    "differing_row",
    "is_batch_letter",
    "output_axis",
    "row_tolerance",
    "rows_problem",
    "sampled_rows",
    "take_rows",
    "windows",
]

BATCH = "batch"

ROW_RTOL = 1e-3
ROW_RTOL_HALF = 1e-2
ROW_RUNS_MAX = 16

_LETTERS = ("batch", "b", "n", "bs")
_TIME = ("time", "seq", "frame", "step", "len", "token")

Run = Callable[[Arrays], Outputs]


def is_batch_letter(symbol: str) -> bool:
    """Return whether ``symbol`` is one of the short names that mean the batch."""
    return symbol.lower() in _LETTERS


def batch_symbols(shapes: Mapping[str, Sequence[int | str]], notes: list[str]) -> set[str]:
    """Return the symbols in input ``shapes`` that mean the batch; none when there is no such dim.

    Names win over places: a dim called batch, then a letter for it (N, B) on axis 0, or on
    axis 1 behind a first axis that is time; else the first axis that has no fixed size.
    Free first axes of other inputs are the batch as well, which ``notes`` says.
    """
    symbols = [
        (axis, dim)
        for shape in shapes.values()
        for axis, dim in enumerate(shape)
        if isinstance(dim, str)
    ]
    named = [dim for axis, dim in sorted(symbols, key=lambda s: s[0] != 0) if _names(dim, axis)]
    named += [
        shape[1]
        for shape in shapes.values()
        if len(shape) > 1 and _is_time(shape[0]) and isinstance(shape[1], str) and
        is_batch_letter(shape[1])
    ]  # fmt: skip
    leading = [dim for axis, dim in symbols if axis == 0 and not is_expression(dim)]
    if not named and not leading:
        return set()
    first = str(named[0] if named else leading[0])
    beside = {dim for shape in shapes.values() if first in shape for dim in shape}
    found = {first}
    for name, shape in shapes.items():
        head = shape[0] if shape else 1
        if not isinstance(head, str) or head in found or first in shape or head in beside:
            continue
        if is_expression(head):
            continue
        if any(dim == head and axis > 0 for axis, dim in symbols):
            continue
        found.add(head)
        if not head.startswith("?"):
            notes.append(f"batch-shared: axis 0 of {name} ({head}) is taken to be the batch too")
    return found | _states(shapes, first, notes)


def _states(shapes: Mapping[str, Sequence[int | str]], first: str, notes: list[str]) -> set[str]:
    """Return the nameless second dims of states (layers x batch x width) beside a batch."""
    found: set[str] = set()
    if not any(shape and shape[0] == first for shape in shapes.values()):
        return found
    for name, shape in shapes.items():
        free = [axis for axis, dim in enumerate(shape) if isinstance(dim, str)]
        if len(shape) >= 3 and free == [1] and str(shape[1]).startswith("?"):
            found.add(str(shape[1]))
            notes.append(f"batch-shared: axis 1 of {name} is taken to be the batch too")
    return found


def _names(symbol: str, axis: int) -> bool:
    if is_expression(symbol):
        return False
    return BATCH in symbol.lower() or (axis == 0 and is_batch_letter(symbol))


def _is_time(dim: int | str) -> bool:
    return isinstance(dim, str) and (dim == "T" or any(word in dim.lower() for word in _TIME))


def conjectures(specs: Sequence[TensorSpec], declared: int) -> Iterator[dict[str, int]]:
    """Yield which axis of each input could be a batch that the model fixes to ``declared``.

    The first axis of every input that has that size, and the second of those (states of
    recurrent models) whose first has another; then the second of all states; then first
    axes alone; then that of one input. Inputs left out have none.
    """
    first = {s.name: 0 for s in specs if s.shape and s.shape[0] == declared}
    states = {s.name: 1 for s in specs[1:] if len(s.shape) == 3 and s.shape[1] == declared}
    tried: list[dict[str, int]] = []
    for axes in (states | first, first | states, first, dict([*first.items()][:1])):
        if axes and axes not in tried:
            tried.append(axes)
            yield axes


def output_axis(
    small: Sequence[int], large: Sequence[int], *, sizes: tuple[int, int]
) -> int | None:
    """Return the axis of an output that follows the batch from ``sizes[0]`` to ``sizes[1]``.

    None when no axis does, or when others change with it.

    >>> output_axis((5, 1, 4), (5, 3, 4), sizes=(1, 3))
    1
    >>> output_axis((1, 64, 6), (1, 192, 6), sizes=(1, 3)) is None
    True
    """
    if len(small) != len(large):
        return None
    pairs = list(enumerate(zip(small, large, strict=True)))
    changed = [(axis, pair) for axis, pair in pairs if pair[0] != pair[1]]
    return changed[0][0] if len(changed) == 1 and changed[0][1] == sizes else None


def contradiction(
    declared: Mapping[str, Sequence[int | str]],
    symbols: set[str],
    found: Mapping[str, Sequence[int]],
    *,
    batch: int,
) -> str:
    """Return how an output lacks the batch axis that the model declares for it, or nothing.

    ``declared`` are shapes as the model writes them, ``found`` as they came out at ``batch``.
    A batch on another axis than declared is no contradiction: declared shapes may be wrong.
    """
    for name, dims in declared.items():
        shape = found.get(name, ())
        axes = [axis for axis, dim in enumerate(dims) if dim in symbols]
        if not axes or len(dims) != len(shape) or batch in shape:
            continue
        text = "x".join(map(str, shape))
        return f"output {name!r} is {text}, without the batch that the model declares for it"
    return ""


def take_rows(inputs: Arrays, axes: Mapping[str, int | None], rows: Sequence[int]) -> Arrays:
    """Return ``inputs`` with these rows of the batch alone; inputs without batch as they are."""
    return {
        name: array if (axis := axes.get(name)) is None else np.take(array, rows, axis=axis)
        for name, array in inputs.items()
    }


def rows_problem(
    run: Run,
    inputs: Arrays,
    whole: Outputs,
    *,
    axes: Mapping[str, int | None],
    sizes: tuple[int, int],
) -> str:
    """Return why rows of ``whole`` are not what the model gives at its own size; else nothing.

    ``run`` is the model at batch ``sizes[0]``; ``whole`` came from ``inputs`` at
    ``sizes[1]``. Rows go in backwards, so that a first axis of which later entries depend
    on earlier ones, as time does, is no batch. At most 16 runs, on the rows of ``windows``.
    Raises what ``run`` raises.
    """
    size, batch = sizes
    tolerance = row_tolerance(whole)
    for rows in windows(size, batch):
        given = take_rows(inputs, axes, rows)
        alone = run(given)
        taken: Arrays = {}
        for name, array in whole.arrays.items():
            if name not in alone.arrays:
                return f"output {name!r} is not there at batch {size}"
            shape = alone.arrays[name].shape
            axis = output_axis(shape, array.shape, sizes=sizes)
            if axis is None:
                have, own = "x".join(map(str, array.shape)), "x".join(map(str, shape))
                return (
                    f"output {name!r} is {own or 'a scalar'} at batch {size}"
                    f" and {have or 'a scalar'} at batch {batch}"
                )
            taken[name] = np.take(array, rows, axis=axis)
        other = Outputs(taken, whole.dtypes)
        if same_values(alone, other, rtol=tolerance):
            continue
        # Rows may also be apart by rounding, where the model magnifies it.
        moved = ROUNDING_FACTOR * own_rounding(run, given, alone)
        if not same_values(alone, other, rtol=max(tolerance, moved)):
            return f"row {rows[-1]} of {batch} comes out with other values than at batch {size}"
    return ""


def sampled_rows(batch: int, *, seed: int = 0) -> list[int]:
    """Return which rows of a batch are looked at, in order: all up to 16, else 16.

    The first, the middle and the last are always among them; the others are drawn by
    ``seed``, one from each sixteenth of the batch.

    >>> sampled_rows(3)
    [0, 1, 2]
    >>> found = sampled_rows(64); len(found), found[0], 32 in found, found[-1]
    (16, 0, True, 63)
    """
    if batch <= ROW_RUNS_MAX:
        return list(range(batch))
    bounds = [batch * i // ROW_RUNS_MAX for i in range(ROW_RUNS_MAX + 1)]
    generator = random.Random(f"rows/{seed}/{batch}")
    rows = [generator.randrange(low, high) for low, high in pairwise(bounds)]
    rows[0], rows[ROW_RUNS_MAX // 2], rows[-1] = 0, batch // 2, batch - 1
    return rows


def windows(size: int, batch: int) -> list[list[int]]:
    """Return the rows of ``batch`` that go through the model together at its own ``size``.

    >>> windows(2, 3)
    [[1, 0], [2, 1], [0, 2]]
    """
    chosen = sampled_rows(batch)[:: max(1, size // 2)]
    return [[(start + i) % batch for i in reversed(range(size))] for start in chosen]


def differing_row(
    run: Run,
    inputs: Arrays,
    whole: Outputs,
    *,
    axes: Mapping[str, int | None],
    rows: Sequence[int],
    followed: Mapping[str, int],
) -> tuple[int | None, int]:
    """Return the first of ``rows`` that differs alone from what it is in ``whole``, or None.

    The second value is how many rows were tried. ``followed`` holds the batch axis of each
    output that has one. What rounding explains is no difference. Raises what ``run`` raises
    at batch 1.
    """
    tolerance = row_tolerance(whole)
    for tried, row in enumerate(rows, start=1):
        given = take_rows(inputs, axes, [row])
        alone = run(given)
        taken = {name: np.take(whole.arrays[name], [row], axis=ax) for name, ax in followed.items()}
        single = {name: alone.arrays[name] for name in followed}
        far = relative_error(Outputs(single, alone.dtypes), Outputs(taken, whole.dtypes))
        if far > tolerance and far > ROUNDING_FACTOR * own_rounding(run, given, alone):
            return row, tried
    return None, len(rows)


def row_tolerance(outputs: Outputs) -> float:
    """Return how far a row may be from what it is alone, relative to its size."""
    return ROW_RTOL_HALF if outputs.half else ROW_RTOL
