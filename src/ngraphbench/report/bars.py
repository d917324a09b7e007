"""Bars and intervals out of characters, for terminals."""

from __future__ import annotations

import math

__all__ = ["bar", "span"]

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(value: float, most: float, width: int) -> str:
    """Return a bar of ``value`` out of ``most``, in eighths of a character, padded to ``width``.

    >>> bar(3.0, 4.0, 8)
    '██████  '
    """
    if not (math.isfinite(value) and most > 0.0):
        return " " * width
    eighths = round(8 * width * min(1.0, max(0.0, value / most)))
    text = "█" * (eighths // 8)
    if eighths % 8:
        text += _EIGHTHS[eighths % 8]
    return f"{text:<{width}}"


def span(low: float, estimate: float, high: float, *, reach: float, width: int) -> str:
    """Return an interval of ratios on a log scale from 1 / ``reach`` to ``reach``, 1 in the middle.

    ``●`` is the estimate and ``│`` stands where 1 is; what goes beyond an end is ``‹`` or ``›``.

    >>> span(0.9, 0.95, 1.0, reach=1.2, width=11)
    '  ──●│     '
    """
    middle = (width - 1) / 2

    def place(value: float) -> int:
        share = math.log(value) / math.log(reach) if value > 0.0 and math.isfinite(value) else 0.0
        return round(middle * (1.0 + min(1.0, max(-1.0, share))))

    cells = [" "] * width
    first, last = place(low), place(high)
    for i in range(first, last + 1):
        cells[i] = "─"
    one = place(1.0)
    cells[one] = "┼" if first < one < last else "│"
    if low < 1.0 / reach:
        cells[first] = "‹"
    if high > reach:
        cells[last] = "›"
    cells[place(estimate)] = "●"
    return "".join(cells)
