"""Inputs that are almost right: bytes and trees with a few things changed in them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

__all__ = ["ODD", "mutated_bytes", "mutated_tree"]

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**70), 0.5, 1e308, -0.0, 1e-320),
    *(float("nan"), float("inf"), "", " ", "0", "1", "x" * 300, "\x00", "\x1b[31m", "\u202e"),
    *("é", "\ud800", "../..", "/", "/dev/null", "=1+1", "a.b", "a:b=c", "nan", "1e999", "null"),
    *([], {}, [[]], [None], [0], {"": None}, {"a": {"b": []}}, [1, "1"], ["x"] * 50),
)
"""Values that somebody forgot."""

BYTES = (b"\x00", b"\xff", b"\xc3", b"\n", b"\r", b"\t", b" ", b"{", b"}", b"[", b"]", b":", b'"')
BYTES += (b"'", b"&a", b"*a", b"<<: ", b"!!python/object:os.system ", b"- ", b"? ", b"|\n", b"%")
BYTES += (
    b"#",
    b"---\n",
    b"...",
    b"1e999",
    b"-1",
    b"NaN",
    b"null",
    b"\x7f\xff\xff\xff",
    b"\x80" * 9,
)


@st.composite
def mutated_bytes(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """Draw one of ``seeds`` with up to five pieces cut, doubled, swapped, flipped or put in."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 5))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.sampled_from((1, 2, 4, 16, 64, 512))))
        edit = draw(st.sampled_from(("cut", "double", "put", "flip", "truncate", "splice")))
        if edit == "cut":
            data = data[:start] + data[end:]
        elif edit == "double":
            data = data[:end] + data[start:]
        elif edit == "put":
            piece = draw(st.sampled_from(BYTES) | st.binary(max_size=8))
            data = data[:start] + piece + data[start:]
        elif edit == "flip" and start < len(data):
            changed = data[start] ^ (1 << draw(st.integers(0, 7)))
            data = data[:start] + bytes([changed]) + data[start + 1 :]
        elif edit == "truncate":
            data = data[:start]
        elif edit == "splice":
            other = draw(st.sampled_from(seeds))
            data = data[:start] + other[min(start, len(other)) :]
    return data


@st.composite
def mutated_tree(draw: st.DrawFn, seeds: Sequence[Any]) -> Any:
    """Draw a tree of dicts and lists with one to four nodes replaced, removed or renamed."""
    tree = copy.deepcopy(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        places = list(_places(tree))
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        edit = draw(st.sampled_from(("replace", "replace", "remove", "rename", "move")))
        if edit == "replace":
            holder[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
        elif edit == "remove":
            del holder[key]
        elif edit == "rename" and isinstance(holder, dict):
            name = draw(st.sampled_from([k for v in ODD if isinstance(k := v, str)]))
            holder[name] = holder.pop(key)
        elif edit == "move":
            other, other_key = draw(st.sampled_from(places))
            # Of two values at places that both are still there.
            if _has(other, other_key):
                holder[key] = copy.deepcopy(other[other_key])
    return tree


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def _places(tree: Any) -> Any:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(items):
        yield tree, key
        if isinstance(value, (dict, list)):
            yield from _places(value)
