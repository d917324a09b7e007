"""Task metrics on a labelled set: ``top1``, or a function of the user's.

The function takes the outputs, by name and with items along the first axis, and the labels;
it returns a number. It runs where the user's other code does: in the exporter's process.
"""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ngraphbench.errors import SpecError, first_line
from ngraphbench.models.values import from_bfloat16
from ngraphbench.types import BFLOAT16, Array, Arrays

__all__ = ["TOP1", "decoded", "is_metric", "score"]

TOP1 = "top1"

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_metric(text: str) -> bool:
    """Return whether ``text`` has the form of a metric.

    >>> [is_metric(text) for text in ("top1", "my.metrics:f1", "metrics.py:f1", "top5")]
    [True, True, True, False]
    """
    before, _, name = text.rpartition(":")
    in_file = before.endswith(".py") and name.isidentifier()
    return text == TOP1 or in_file or bool(_DOTTED.fullmatch(text))


def score(outputs: Arrays, labels: Array, metric: str, *, folder: Path) -> float:
    """Return the metric of ``outputs`` against ``labels``; items run along the first axes.

    ``folder`` is where the user's module or file is looked for first. Raises SpecError
    (``metric``) for what cannot be found, raises, or gives no finite number.
    """
    if metric == TOP1:
        return _top1(outputs, labels)
    function = _found(metric, folder)
    try:
        value = float(function(dict(outputs), labels))
    except Exception as error:
        raise SpecError(
            f"The metric {metric} failed: {type(error).__name__}: {first_line(error)}",
            reason="metric",
            hint="It takes the outputs by name and the labels, and returns a number.",
        ) from error
    if not math.isfinite(value):
        raise SpecError(f"The metric {metric} gave {value}.", reason="metric")
    return value


def decoded(outputs: Arrays, dtypes: dict[str, str]) -> Arrays:
    """Return outputs with bfloat16 bits as float32 numbers."""
    return {
        name: from_bfloat16(array)
        if dtypes.get(name) == BFLOAT16 and array.dtype == np.uint16
        else array
        for name, array in outputs.items()
    }


def _top1(outputs: Arrays, labels: Array) -> float:
    """Return the share of items whose largest score is that of their label.

    Scores are the first output with one axis more than the labels, classes last; labels
    with as many axes as the scores are scores themselves.
    """
    for array in outputs.values():
        for wanted in (labels, labels.argmax(-1) if labels.ndim > 1 else labels):
            if array.ndim > 1 and array.shape[:-1] == wanted.shape and array.shape[-1] > 1:
                return float(np.mean(array.argmax(-1) == wanted))
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
    raise SpecError(
        f"top1 needs an output of scores by class for labels of shape {list(labels.shape)};"
        f" there is {shapes}.",
        reason="metric",
        hint="Give --metric module:function for another task.",
    )


def _found(metric: str, folder: Path) -> Callable[..., Any]:
    place, _, name = metric.rpartition(":")
    with _search_path(folder):
        try:
            module = _file(folder / place) if place.endswith(".py") else import_module(place)
        except Exception as error:
            raise SpecError(
                f"The metric {metric} cannot be imported: {type(error).__name__}:"
                f" {first_line(error)}",
                reason="metric",
                hint=f"It is looked for in {str(folder)!r} first.",
            ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise SpecError(f"{place} has no function {name!r} for a metric.", reason="metric")
    found: Callable[..., Any] = function
    return found


def _file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"ngraphbench_metric_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _search_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
