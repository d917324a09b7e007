"""What docs/json.md says of a command's keys, held against what it prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["documented", "hold"]

PAGE = Path(__file__).parents[2] / "docs" / "json.md"


def documented(heading: str) -> list[set[str]]:
    """Return the keys of each table under that heading."""
    (section,) = re.findall(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), flags=re.M | re.S
    )
    tables = section.split("|---|---|\n")[1:]
    return [set(re.findall(r"^\| `([^`]+)` \|", table, flags=re.M)) for table in tables]


def hold(printed: Any, heading: str, *, table: int = 0) -> None:
    """Hold a printed value against the page: it has all that is there, and nothing besides.

    What is inside a key is looked at where the page lists any of it.
    """
    keys = documented(heading)[table]
    entries = printed if isinstance(printed, list) else [printed]
    found = {path for entry in entries for path in _paths(entry, keys, "")}
    assert found == keys, (sorted(found - keys), sorted(keys - found))


def _paths(value: Any, keys: set[str], inside: str) -> Iterator[str]:
    by_name = _listed(f"{inside}NAME.", keys)
    for name, part in value.items():
        path = inside + ("NAME" if by_name else name)
        if not by_name:
            yield path
        for below in (f"{path}.", f"{path}[]."):
            for one in (part if isinstance(part, list) else [part]) * _listed(below, keys):
                yield from _paths(one, keys, below)


def _listed(below: str, keys: set[str]) -> bool:
    return any(key.startswith(below) for key in keys)
