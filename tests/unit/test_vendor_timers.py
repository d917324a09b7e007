"""The table of benchmarks/vendor_timers.py says what its turns say."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from vendor_sides import ROWS
from vendor_timers import Found, Launch, check_same, summarise

ROW = ROWS["onnxruntime"]


def turns(ratio: float, *, spread: float, launch_spread: float = 0.0) -> list[Launch]:
    """Return five launches of 20 pairs on a machine whose speed wanders by 30 %."""
    draw = random.Random(7)
    launches = []
    for _ in range(5):
        own = ratio * (1 + draw.gauss(0, launch_spread))
        ours, theirs = [], []
        for _ in range(20):
            speed = 1e-3 * draw.uniform(0.85, 1.15)
            ours.append({"mean_s": own * speed * (1 + draw.gauss(0, spread)), "median_s": None})
            theirs.append({"mean_s": speed * (1 + draw.gauss(0, spread)), "median_s": None})
        launches.append(Launch(ours=ours, theirs=theirs))
    return launches


def line(launches: list[Launch]) -> Found:
    return summarise("timm:resnet18", ROW, launches, "mean_s")


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.0, "inside"), (1.05, "differs"), (0.95, "differs")]
)
def test_a_common_drift_hides_no_difference(ratio: float, verdict: str) -> None:
    found = line(turns(ratio, spread=0.01))
    assert found.ratio == pytest.approx(ratio, abs=0.005)
    assert found.launches[0] < found.ratio < found.launches[1]
    assert found.verdict == verdict
    assert found.model == "resnet18"
    assert found.what == "mean"


def test_a_wide_interval_is_not_called_agreement() -> None:
    found = line(turns(1.0, spread=0.01, launch_spread=0.05))
    assert found.verdict == "meets"
    # Within a launch nothing is seen of what differs from launch to launch.
    assert found.within[1] - found.within[0] < found.launches[1] - found.launches[0]


def test_sides_that_are_set_up_differently_are_not_compared() -> None:
    check_same(ROW, theirs={"threads": 2, "mode": "x"}, ours={"threads": 2, "nodes": 9})
    with pytest.raises(SystemExit, match="threads"):
        check_same(ROW, theirs={"threads": 1}, ours={"threads": 2})
