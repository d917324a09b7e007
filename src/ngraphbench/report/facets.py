"""What the page can be filtered by: each value of a dimension has a number in the markup."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ngraphbench.report.charts import Tags

__all__ = ["Facet", "Facets"]


@dataclass(frozen=True, slots=True)
class Facet:
    """One dimension: ``key`` as in ``data-KEY``, and its values in order."""

    key: str
    title: str
    values: tuple[str, ...]


class Facets:
    """The dimensions of a run; those with a single value need no filter."""

    def __init__(self, tags: Iterable[Tags]) -> None:
        found: tuple[dict[str, int], ...] = ({}, {}, {}, {})
        for one in tags:
            for values, value in zip(found, _values(one), strict=True):
                if value:
                    values.setdefault(value, len(values))
        batches = sorted(found[3], key=lambda text: (len(text), text))
        self._numbers = (*found[:3], {value: i for i, value in enumerate(batches)})
        self._known: dict[Tags, str] = {}

    @property
    def filters(self) -> list[Facet]:
        """The dimensions that have a choice."""
        names = zip("mcdb", ("Model", "Compiler", "Device", "Batch size"), strict=True)
        return [
            Facet(key, title, tuple(numbers))
            for (key, title), numbers in zip(names, self._numbers, strict=True)
            if len(numbers) > 1
        ]

    def attributes(self, tags: Tags) -> str:
        """Return the ``data-`` attributes that say what a thing is, safe as they are: numbers."""
        if tags not in self._known:
            pairs = zip("mcdb", self._numbers, _values(tags), strict=True)
            told = (
                f' data-{key}="{numbers[value]}"'
                for key, numbers, value in pairs
                if value in numbers and len(numbers) > 1
            )
            self._known[tags] = "".join(told)
        return self._known[tags]


def _values(tags: Tags) -> tuple[str, str, str, str]:
    return tags.model, tags.compiler, tags.device, tags.batch
