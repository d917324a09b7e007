"""What a worker's answer must hold: any command may be a worker, and may answer anything.

What is checked is what the session goes on with (``docs/protocol.md``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from ngraphbench.errors import WorkerFailed
from ngraphbench.types import Arrays, Json
from ngraphbench.workload import read_arrays

__all__ = ["check_reply", "checked_rows", "taken_arrays"]

Check: TypeAlias = Callable[[Any], bool]

LARGEST = 1e18
"""Of anything a worker tells: nanoseconds of thirty years, or an exabyte."""


def check_reply(op: str, reply: Json) -> None:
    """Return None when ``reply`` holds what an answer to ``op`` must.

    Raises WorkerFailed (``protocol``) that names what is missing or of no use.
    """
    for wanted, is_right in _WANTED.get(op, {}).items():
        name = wanted.removesuffix("?")
        if name != wanted and reply.get(name) is None:
            continue
        if name not in reply:
            raise _unusable(f"The worker's answer to {op!r} lacks {name!r}.")
        if not is_right(reply[name]):
            told = repr(reply[name])[:80]
            raise _unusable(f"The worker answered {op!r} with {told} for {name!r}.")


def taken_arrays(path: Path) -> Arrays:
    """Return the arrays that a worker left at ``path``, and remove the file.

    Raises WorkerFailed when there is no such file, or none that can be read.
    """
    try:
        return read_arrays(path)
    except Exception as error:  # whatever numpy and zipfile make of what a stranger wrote
        raise _unusable(
            f"The worker left no arrays that can be read: {type(error).__name__}: {error}."
        ) from error
    finally:
        path.unlink(missing_ok=True)


def checked_rows(rows: Arrays) -> Arrays:
    """Return the rows of a solo block, when they are columns of numbers, all of one length.

    Raises WorkerFailed.
    """
    names = ("calls", "due_ns", "start_ns", "end_ns")
    columns = [rows[name] for name in names if name in rows]
    shapes = {column.shape if column.dtype.kind in "iuf" else None for column in columns}
    shape = shapes.pop() if len(columns) == len(names) and len(shapes) == 1 else None
    if shape is None or len(shape) != 1:
        raise _unusable("The worker's rows of a solo block are no columns of the same length.")
    return rows


def _unusable(message: str) -> WorkerFailed:
    return WorkerFailed(
        message,
        status="failed",
        reason="protocol",
        hint="docs/protocol.md says what a worker answers.",
    )


def _number(value: Any) -> bool:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return plain and 0 <= value <= LARGEST and math.isfinite(value)


def _finite(value: Any) -> bool:
    # Less than nothing, by a hair, where a clock's part was taken off.
    return _number(abs(value)) if isinstance(value, (int, float)) else False


def _positive(value: Any) -> bool:
    return _number(value) and value > 0


def _whole(value: Any) -> bool:
    return isinstance(value, int) and _number(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_text, value.values()))


def _times(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_number, value))


def _coverage(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    share, products = value.get("share"), value.get("products")
    return (share is None or _number(share)) and (
        products is None or (isinstance(products, Mapping) and all(map(_number, products.values())))
    )


_BUILT: Mapping[str, Check] = {
    "seconds": _finite,
    "tuning_s?": _number,
    "coverage?": _coverage,
    "device_memory_bytes?": _number,
}
_WANTED: Mapping[str, Mapping[str, Check]] = {
    "hello": {"python": _text, "binding?": lambda value: isinstance(value, Mapping)},
    "import": {"version": _text, "packages": _texts, "variables": _texts},
    "probe": {"support": lambda value: isinstance(value, Mapping)},
    "compile": _BUILT,
    "load_artifact": _BUILT,
    "save_artifact": {"bytes": lambda value: value is None or _number(value)},
    "load": {"seconds": _number},
    "run": {"ns": _times},
    "slot": {
        "calls": lambda value: _whole(value) and value > 0,
        "slot_ns": _whole,
        "call_ns": _positive,
        "first_ns": _number,
        "cpu_ns": _number,
        "nivcsw": _number,
        "sub_ns": _times,
        "rss_bytes": _number,
    },
    "block": {
        "lanes": _whole,
        "stopped": _text,
        "note": _text,
        "requests": _whole,
        "window_ns": _number,
        "cpu_ns": _number,
    },
    "busy": {"calls?": _number, "seconds?": _number},
}
