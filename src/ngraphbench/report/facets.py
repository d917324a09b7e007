"""What the page can be filtered by: each value of a dimension has a number in the markup."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ngraphbench.report.charts import Tags

__all__ = ["Facet", "Facets"]

DIMENSIONS = (
    ("m", "model", "Model"),
    ("c", "compiler", "Compiler"),
    ("d", "device", "Device"),
    ("b", "batch", "Batch size"),
    ("s", "shape", "Shape"),
)
"""The key in the markup, the field of ``Tags``, and the title of each."""


@dataclass(frozen=True, slots=True)
class Facet:
    """One dimension: ``key`` as in ``data-KEY``, and its values in order."""

    key: str
    title: str
    values: tuple[str, ...]


class Facets:
    """The dimensions of a run; those with a single value need no filter."""

    def __init__(self, tags: Iterable[Tags]) -> None:
        # Few tags are different, so what is the same is looked at once.
        known = list(dict.fromkeys(tags))
        self._numbers: dict[str, dict[str, int]] = {}
        for key, name, _ in DIMENSIONS:
            values = dict.fromkeys(value for one in known if (value := getattr(one, name)))
            ordered = sorted(values, key=lambda text: (len(text), text)) if key == "b" else values
            self._numbers[key] = {value: i for i, value in enumerate(ordered)}
        self._known: dict[Tags, str] = {}

    @property
    def filters(self) -> list[Facet]:
        """The dimensions that have a choice."""
        return [
            Facet(key, title, tuple(self._numbers[key]))
            for key, _, title in DIMENSIONS
            if len(self._numbers[key]) > 1
        ]

    def attributes(self, tags: Tags) -> str:
        """Return the ``data-`` attributes that say what a thing is, safe as they are: numbers."""
        if tags not in self._known:
            told = (
                f' data-{key}="{numbers[value]}"'
                for key, name, _ in DIMENSIONS
                if (value := getattr(tags, name)) in (numbers := self._numbers[key])
                and len(numbers) > 1
            )
            self._known[tags] = "".join(told)
        return self._known[tags]
