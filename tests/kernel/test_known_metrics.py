from __future__ import annotations

import pytest
from known_metrics import tally
from sessions import too_often

from ngraphbench import stats

DRIFTS = ("quiet", "ar-slow")


@pytest.mark.parametrize("drift", DRIFTS)
def test_depth_fits_hold_the_lines(drift: str) -> None:
    found = tally("depth", drift, sessions=10, launch_sd=0.01)
    for name in ("beta", "bend", "repeat gain", "S(d)"):
        assert not found.too_low(name), (name, found.coverage(name))
    assert not too_often(found.bent, found.verdicts, 0.05)


@pytest.mark.parametrize("drift", DRIFTS)
def test_orders_are_not_told_wrongly(drift: str) -> None:
    found = tally("orders", drift, sessions=10, launch_sd=0.01)
    assert not too_often(found.wrong, found.verdicts, 0.01)
    assert found.right > 0.5 * found.verdicts


@pytest.mark.parametrize("drift", DRIFTS)
def test_batch_metrics_hold_the_truth(drift: str) -> None:
    found = tally("batches", drift, sessions=10, launch_sd=0.01)
    for name in ("RTR", "ASE", "BSR", "mean ASE"):
        assert not found.too_low(name), (name, found.coverage(name))
        assert abs(found.bias[name] / found.seen[name]) < 0.02


def test_these_checks_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals without what launches add miss the truth, and that is seen."""
    monkeypatch.setattr(stats, "launch_half_width", lambda *_, **__: 0.0)
    found = tally("batches", "quiet", sessions=10, launch_sd=0.02)
    assert found.too_low("BSR")
    assert found.too_low("ASE")
