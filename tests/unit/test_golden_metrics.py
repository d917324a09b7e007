"""The metrics of a stored run: a quick look at two models, beside other work on the machine.

After a wanted change: ``python tests/unit/test_golden_metrics.py`` writes what is found now.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ngraphbench.api import Run
from ngraphbench.report.metrics import print_metrics

STORED = Path(__file__).parents[1] / "golden" / "quickstart"


def found() -> tuple[Any, str]:
    """Return the metrics of the stored run as JSON and as printed."""
    metrics, text = Run.open(STORED).metrics(), io.StringIO()
    print_metrics(Console(width=100, file=text), metrics)
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    return json.loads(json.dumps(metrics.to_json())), "\n".join(lines) + "\n"


def same(have: Any, want: Any, place: str = "") -> None:
    """Check that two JSON values are the same, but for rounding."""
    if isinstance(want, dict):
        assert list(have) == list(want), place
        for key in want:
            same(have[key], want[key], f"{place}.{key}")
    elif isinstance(want, list):
        assert len(have) == len(want), place
        for i, item in enumerate(want):
            same(have[i], item, f"{place}[{i}]")
    elif isinstance(want, float):
        assert have == pytest.approx(want, rel=1e-6, abs=1e-12), place
    else:
        assert have == want, place


def test_metrics_of_a_stored_run() -> None:
    data, text = found()
    same(data, json.loads((STORED / "metrics.json").read_text(encoding="utf-8")))
    assert text == (STORED / "metrics.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    new, printed = found()
    (STORED / "metrics.json").write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")
    (STORED / "metrics.txt").write_text(printed, encoding="utf-8")
