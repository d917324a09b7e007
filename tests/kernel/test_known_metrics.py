from __future__ import annotations

import pytest
from known_metrics import Conditions, tally
from sessions import too_often

from ngraphbench import stats
from ngraphbench.analysis import depth
from ngraphbench.profiles import PROFILES

CONDITIONS = (
    Conditions("quiet", 0.01),
    Conditions("ar-slow", 0.01),
    # One launch, of which 90 % intervals believe that it is a percent fast or slow.
    Conditions("quiet", 0.01, PROFILES["quick"]),
)
WANTED = {"default": 0.93, "quick": 0.88}
LINE = ("alpha", "beta", "bend", "repeat gain", "S(d)")

given = pytest.mark.parametrize("given", CONDITIONS, ids=lambda c: f"{c.drift}-{c.profile.name}")


@given
def test_depth_fits_hold_the_lines(given: Conditions) -> None:
    found = tally("depth", given, sessions=10)
    for name in LINE:
        assert not found.too_low(name, WANTED[given.profile.name]), (name, found.coverage(name))
    assert not too_often(found.bent, found.verdicts, 0.05)


@given
def test_orders_are_not_told_wrongly(given: Conditions) -> None:
    found = tally("orders", given, sessions=10)
    assert not too_often(found.wrong, found.verdicts, 0.01)
    # A session of one launch leaves orders of 3 % open.
    assert found.right > (0.5 if given.profile.epochs > 1 else 0.3) * found.verdicts


@given
def test_batch_metrics_hold_the_truth(given: Conditions) -> None:
    found = tally("batches", given, sessions=10)
    for name in ("RTR", "ASE", "BSR", "mean ASE"):
        assert not found.too_low(name, WANTED[given.profile.name]), (name, found.coverage(name))
        assert abs(found.bias[name] / found.seen[name]) < 0.02


@pytest.fixture
def no_launch_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out of intervals what launches add to them."""
    monkeypatch.setattr(stats, "launch_half_width", lambda *_, **__: 0.0)


@pytest.mark.usefixtures("no_launch_term")
def test_batch_checks_can_fail() -> None:
    found = tally("batches", Conditions("quiet", 0.02), sessions=10)
    assert found.too_low("BSR")
    assert found.too_low("ASE")


@pytest.mark.usefixtures("no_launch_term")
def test_order_checks_can_fail() -> None:
    # Two programs without an order are given one by their launches.
    found = tally("orders", Conditions("quiet", 0.03, PROFILES["quick"]), sessions=20)
    assert too_often(found.wrong, found.verdicts, 0.01)


def test_depth_checks_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    true_slope = depth._Line.beta_ns.fget
    assert true_slope is not None
    monkeypatch.setattr(depth._Line, "beta_ns", property(lambda line: 1.1 * true_slope(line)))
    found = tally("depth", Conditions("quiet", 0.01), sessions=6)
    assert found.too_low("beta")
    assert not found.too_low("alpha")
