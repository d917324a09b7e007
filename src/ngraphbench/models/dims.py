"""Dims that a model writes as sums of others: ``past + seq``, ``floor(height/2) + 1``."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

__all__ = ["derived_size", "dim_text", "is_expression", "sizes_text"]

_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_CALLS: Mapping[str, Callable[..., float]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "ceiling": math.ceil,
    "max": max,
    "min": min,
}


def is_expression(symbol: str) -> bool:
    """Return whether a dim's name is written like a sum or a product of others.

    >>> is_expression("past + seq"), is_expression("seq_len"), is_expression("?x.0")
    (True, False, False)
    """
    return any(sign in symbol for sign in "+*/(") and not symbol.startswith("?")


def derived_size(symbol: str, sizes: Mapping[str, int]) -> int | None:
    """Return the size that ``symbol`` stands for; None where that cannot be told.

    >>> derived_size("floor(height/2 - 1/2) + 1", {"height": 224})
    112
    >>> derived_size("past + seq", {"seq": 4}) is None
    True
    """
    try:
        value = _value(ast.parse(symbol.strip(), mode="eval").body, sizes)
    except (SyntaxError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
        return None
    return int(value) if value == int(value) and value > 0 else None


def dim_text(name: str) -> str:
    """Return the name of a dim for a reader; one without is called by input and axis."""
    if not name.startswith("?"):
        return name
    owner, _, axis = name[1:].rpartition(".")
    return f"axis {axis} of {owner}"


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Return sizes of dims for a reader; a dim without name is called by input and axis.

    >>> sizes_text({"width": 64, "?x.2": 32})
    'width=64, axis 2 of x=32'
    """
    return ", ".join(f"{dim_text(name)}={size}" for name, size in sizes.items())


def _value(node: ast.expr, sizes: Mapping[str, int]) -> float:
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](_value(node.left, sizes), _value(node.right, sizes))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _CALLS[node.func.id](*(_value(argument, sizes) for argument in node.args))
    raise ValueError(f"{ast.dump(node)} is no size")
