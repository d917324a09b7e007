"""Inputs that tell how long others are: one number for each item of a padded batch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ngraphbench.models.batch import BATCH

__all__ = ["LENGTH", "length_symbol"]

LENGTH = "length:"
"""How values of such an input are made: all as long as the dim whose name follows."""

_WORDS = ("len", "lens", "length", "lengths")


def length_symbol(name: str, shapes: Mapping[str, Sequence[int | str]]) -> str:
    """Return the free dim that input ``name`` gives the length of; nothing if it gives none.

    It is called so, holds one number an item, and the dim is the only free one beside the
    batch, or that of the input whose name it carries.

    >>> length_symbol("audio_len", {"audio": ["batch", "n"], "audio_len": ["batch"]})
    'n'
    """
    words = re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    if not set(words) & set(_WORDS) or any(dim not in (BATCH, 1) for dim in shapes[name]):
        return ""
    others = {other: shape for other, shape in shapes.items() if other != name}
    named = {other: shape for other, shape in others.items() if name.startswith(other)}
    for group in (named, others):
        symbols = {
            dim
            for shape in group.values()
            for dim in shape
            if isinstance(dim, str) and dim != BATCH
        }
        if len(symbols) == 1:
            return symbols.pop()
    return ""
