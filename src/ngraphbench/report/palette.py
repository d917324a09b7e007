"""Colours and shapes: the same for a compiler wherever it is drawn, and told apart without colour.

Hues are after Okabe and Ito, darkened or lightened until they have 3:1 against their ground.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ngraphbench.analysis.tables import Evidence

__all__ = ["DARK", "LIGHT", "SERIES_DARK", "SERIES_LIGHT", "SHAPES", "Palette"]

SERIES_LIGHT = (
    "#5d6570",
    "#0072b2",
    "#c75000",
    "#00805c",
    "#a6407f",
    "#7d6100",
    "#4b46b8",
    "#007a87",
)
SERIES_DARK = (
    "#a9b1bb",
    "#5cb8f0",
    "#ff9450",
    "#35cc9c",
    "#ee97c8",
    "#e3c84b",
    "#a7a4ff",
    "#55d3e0",
)
"""By style number, 0 being every baseline's grey."""

SHAPES = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-4.2 0a4.2 4.2 0 1 0 8.4 0a4.2 4.2 0 1 0-8.4 0z",
    "M-3.8-3.8h7.6v7.6h-7.6z",
    "M0-5L4.8 3.8H-4.8z",
    "M0-5.4L5.4 0L0 5.4L-5.4 0z",
    "M0 5L4.8-3.8H-4.8z",
    "M-2.6-4.5h5.2l2.6 4.5l-2.6 4.5h-5.2l-2.6-4.5z",
    "M-1.7-5h3.4v3.3H5v3.4H1.7V5h-3.4V1.7H-5v-3.4h3.3z",
)
"""Outlines about the origin, by style number."""

LIGHT = {
    "bg": "#f6f6f3",
    "card": "#ffffff",
    "ink": "#191c20",
    "muted": "#59616b",
    "line": "#dfe2e6",
    "grid": "#e9ebee",
    "top": "#0072b2",
    "other": "#a9c3d6",
    "base": "#a3a8b0",
    "whisker": "#191c20",
    "good": "#00618f",
    "bad": "#a83a00",
    "bad-bg": "#fdf0e8",
    "warn": "#7a5600",
    "warn-bg": "#fbf4df",
    "good-bg": "#e8f3fa",
    "chip": "#eef0f2",
}
DARK = {
    "bg": "#121519",
    "card": "#1a1e24",
    "ink": "#e9ecef",
    "muted": "#a2abb6",
    "line": "#2e353e",
    "grid": "#262c34",
    "top": "#56b4e9",
    "other": "#3f6480",
    "base": "#6d757f",
    "whisker": "#f5f6f7",
    "good": "#7cc6f0",
    "bad": "#ff9d66",
    "bad-bg": "#33211a",
    "warn": "#ecc765",
    "warn-bg": "#302a17",
    "good-bg": "#162a38",
    "chip": "#272d35",
}


@dataclass(frozen=True, slots=True)
class Palette:
    """The style number of each label; 0 for baselines, then in the order of the labels."""

    numbers: dict[str, int]

    @classmethod
    def of(cls, labels: Iterable[str], baselines: Iterable[str]) -> Palette:
        """Return numbers for ``labels``; after the seventh, colours come back."""
        grey = set(baselines)
        coloured = sorted(label for label in dict.fromkeys(labels) if label not in grey)
        numbers = {label: 1 + i % (len(SHAPES) - 1) for i, label in enumerate(coloured)}
        return cls({**dict.fromkeys(sorted(grey), 0), **numbers})

    @classmethod
    def of_evidence(cls, evidence: Evidence) -> Palette:
        """Return numbers for every candidate of a run."""
        labels = (cell.label for cell in evidence.cells)
        return cls.of(labels, {group.baseline for group in evidence.groups})

    def number(self, label: str) -> int:
        """Return the style number of a label; an unknown one looks like a baseline."""
        return self.numbers.get(label, 0)
