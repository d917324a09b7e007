"""How groups of cells are called, so that no two of one run read the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from ngraphbench.types import VENDOR_THREADS, Json

__all__ = ["SETTINGS", "Titles", "setting_text", "shape_text"]

SETTINGS = ("precision", "shapes", "device", "threads")
"""What tells groups of one model and batch size from each other."""


def shape_text(shapes: Json) -> str:
    """Return the shapes a case gives its inputs as a person writes them; "" where it gives none.

    >>> shape_text({"ids": ["batch", 128], "mask": ["batch", 128]})
    'ids batch×128, mask batch×128'
    """
    parts = [part for name, sizes in shapes.items() for part in (name, *sizes)]
    if not all(str(part).replace("_", "").isalnum() for part in parts):
        # Nothing but these marks tells one odd name from another.
        return json.dumps(shapes)
    return ", ".join(f"{name} {'×'.join(map(str, sizes))}" for name, sizes in shapes.items())


def setting_text(case: Json, key: str) -> str:
    """Return one of ``SETTINGS`` of a case as a person writes it; "" where it has none."""
    return shape_text(case["shapes"]) if key == "shapes" else Titles.setting(case, key)


class Titles:
    """Titles of groups: the model's label, plus whatever else varies among ``records``.

    ``models`` are the identities of the models, in the order of the records.
    """

    def __init__(self, records: Sequence[Json]) -> None:
        cases = [record["case"] for record in records]
        self.models = list(dict.fromkeys(case["model"]["content"] for case in cases))
        labels = {case["model"]["content"]: case["model"]["label"] for case in cases}
        self._shared = {label for label, n in Counter(labels.values()).items() if n > 1}
        self._settings = {id(record): self._read(record["case"]) for record in records}
        columns = list(zip(*self._settings.values(), strict=True))[2:]
        varies = [len(set(column)) > 1 for column in columns]
        self._several = dict(zip(SETTINGS, varies, strict=False))
        self._parts: dict[tuple[object, ...], list[str]] = {}
        for record, settings in zip(records, self._settings.values(), strict=True):
            parts = self._parts.setdefault(settings, [])
            if record["session_id"] not in parts:
                parts.append(record["session_id"])

    def settings(self, record: Json) -> tuple[object, ...]:
        """Return what a group has in common, whichever the session."""
        return self._settings[id(record)]

    def _read(self, case: Json) -> tuple[object, ...]:
        return case["model"]["content"], case["batch"], *_settings(case)

    def title(self, record: Json) -> str:
        case = record["case"]
        label = str(case["model"]["label"])
        if case["model"]["label"] in self._shared:
            label += f"~{case['model']['content'][:4]}"
        extra = [setting_text(case, key) for key, several in self._several.items() if several]
        parts = self._parts[self.settings(record)]
        if len(parts) > 1:
            extra.append(f"part {parts.index(record['session_id']) + 1}")
        extra = [text for text in extra if text]
        return f"{label} [{', '.join(extra)}]" if extra else label

    @staticmethod
    def device(case: Json) -> str:
        device = case["device"]
        return f"{device['name']}/{device['accelerator']}"

    @staticmethod
    def setting(case: Json, key: str) -> str:
        return _settings(case)[SETTINGS.index(key)]


def _settings(case: Json) -> tuple[str, str, str, str]:
    """Return the values of ``SETTINGS`` of a case, each as one string."""
    device, shapes = case["device"], case["shapes"]
    return (
        case["precision"],
        json.dumps(shapes) if shapes else "",
        f"{device['name']}/{device['accelerator']}",
        f"{device['threads'] or VENDOR_THREADS} threads",
    )
