"""Bars and intervals out of characters, for terminals."""

from __future__ import annotations

import math

__all__ = ["bar", "span"]


def bar(low: float, estimate: float, high: float, *, most: float, width: int) -> str:
    """Return a bar from 0 that is solid to ``low``, shaded to ``high``, ``┃`` at the estimate.

    ``most`` is what the whole ``width`` stands for; an end beyond it is ``›``.

    >>> bar(4.0, 5.0, 6.0, most=8.0, width=8)
    '████▒┃  '
    """
    if not all(map(math.isfinite, (low, estimate, high))) or most <= 0.0:
        return " " * width

    def place(value: float) -> int:
        return min(width, max(0, round(width * value / most)))

    solid, end = place(low), place(high)
    cells = ["█"] * solid + ["▒"] * (end - solid) + [" "] * (width - end)
    if estimate > 0.0:
        cells[max(0, place(estimate) - (place(estimate) == width))] = "┃"
    if high > most:
        cells[-1] = "›"
    return "".join(cells)


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
