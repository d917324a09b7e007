"""Percentiles, deadlines and throughput of known truth."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ngraphbench.blocksummary import (
    PERCENTILES,
    fewest_calls,
    percentile_interval,
    percentiles_ms,
    summarise_blocks,
    sustained_summary,
    tail_percentiles,
)
from ngraphbench.stats import Launch
from ngraphbench.types import Json

MS = 1_000_000
QUIET = Launch(sd=1e-9, degrees=4.0)


@pytest.mark.parametrize(("name", "calls"), [("p50", 11), ("p90", 64), ("p99", 662)])
def test_a_percentile_needs_calls(name: str, calls: int) -> None:
    assert fewest_calls(PERCENTILES[name]) == calls
    values = np.arange(calls, dtype=float) * MS
    assert name in percentiles_ms(values, 0.95)
    assert name not in percentiles_ms(values[1:], 0.95)


@pytest.mark.parametrize("confidence", [0.90, 0.95, 0.99])
@pytest.mark.parametrize(("quantile", "count"), [(0.5, 11), (0.9, 64), (0.99, 662), (0.99, 3000)])
def test_intervals_cover_the_true_quantile(quantile: float, count: int, confidence: float) -> None:
    rng = np.random.default_rng(5)
    truth, covered, repeats = -np.log(1 - quantile), 0, 300
    for _ in range(repeats):
        found = percentile_interval(rng.exponential(1.0, count), quantile, confidence)
        assert found is not None and found["low"] <= found["estimate"] <= found["high"]
        covered += found["low"] <= truth <= found["high"]
    # Order statistics cover by at least their confidence; four standard errors for chance.
    slack = 4 * np.sqrt(confidence * (1 - confidence) / repeats)
    assert covered / repeats >= confidence - slack


def test_an_interval_is_no_wider_than_it_must_be() -> None:
    values = np.arange(1.0, 1001.0)
    found = percentile_interval(values, 0.5, 0.95)
    assert found is not None
    # Known for n = 1000: the 469th and the 532nd.
    assert (found["low"], found["estimate"], found["high"]) == (469.0, 500.0, 532.0)


def outcome(kind: str, epoch: int = 0, **changes: object) -> Json:
    base: Json = {
        "epoch": epoch,
        "kind": kind,
        "rate_per_s": 100.0 if kind == "paced" else None,
        "in_flight": 2 if kind == "concurrent" else None,
        "status": "ok",
        "reason": "",
        "message": "",
        "note": "",
        "requests": 0,
        "window_ns": 1000 * MS,
        "cpu_ns": 0,
        "start_celsius": 41.0 if kind == "sustained" else None,
    }
    return {**base, **changes}


def rows(kind: str, start: np.ndarray, end: np.ndarray, **changes: object) -> Json:
    count = len(start)
    base: Json = {
        "epoch": np.zeros(count, dtype=int),
        "kind": np.full(count, kind),
        "in_flight": np.full(count, 2 if kind == "concurrent" else 0),
        "calls": np.ones(count, dtype=int),
        "due_ns": start,
        "start_ns": start,
        "end_ns": end,
    }
    return {**base, **changes}


def joined(*parts: Json) -> Json:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def summarised(outcomes: list[Json], samples: Json | None, *, batch: int = 1) -> list[Json]:
    found = summarise_blocks(outcomes, samples, batch=batch, confidence=0.95, launch=QUIET)
    assert json.loads(json.dumps(found)) == found
    return found


def test_throughput_counts_the_share_within_the_window() -> None:
    """Two lanes of 30 ms calls for 1 s: 66.67 requests/s, not 68."""
    start = np.tile(np.arange(34) * 30 * MS, 2)
    (found,) = summarised(
        [outcome("concurrent")], rows("concurrent", start, start + 30 * MS), batch=8
    )
    assert found["throughput_per_s"]["estimate"] == pytest.approx(8 * 2 / 0.030, rel=1e-9)
    assert found["requests"] == 68 and found["in_flight"] == 2
    assert found["response_ms"] is None and found["service_ms"]["p50"]["estimate"] == 30.0


def test_noise_within_and_between_launches_widens_throughput() -> None:
    start = np.arange(100) * 10 * MS
    steady = rows("tails", start, start + 10 * MS)
    halves = np.where(np.arange(100) < 50, 10 * MS, 20 * MS)
    ends = np.cumsum(halves)
    uneven = rows("tails", ends - halves, ends)
    widths = []
    for samples, launch in ((steady, QUIET), (uneven, QUIET), (steady, Launch(0.01, 4.0))):
        (found,) = summarise_blocks(
            [outcome("tails")], samples, batch=1, confidence=0.95, launch=launch
        )
        rate = found["throughput_per_s"]
        widths.append(rate["high"] / rate["low"] - 1)
    assert widths[0] < 1e-6
    assert widths[1] > 0.1
    assert widths[2] == pytest.approx(np.expm1(2 * 2.776 * 0.01), rel=0.01)


def test_deadlines_count_from_when_a_request_was_due() -> None:
    due = np.arange(200) * 10 * MS
    start = due + np.where(np.arange(200) < 20, 7 * MS, 0)
    (found,) = summarised([outcome("paced")], rows("paced", start, start + 4 * MS, due_ns=due))
    assert (found["missed"], found["deadline_ms"]) == (20, 10.0)
    share = found["missed_share"]
    # Clopper and Pearson for 20 of 200 at 95 %.
    assert share["estimate"] == 0.1
    assert (share["low"], share["high"]) == (
        pytest.approx(0.0622, abs=1e-4),
        pytest.approx(0.1503, abs=1e-4),
    )
    assert found["response_ms"]["p50"]["estimate"] == 4.0
    assert found["response_ms"]["p90"]["high"] == 11.0
    assert "p99" not in found["response_ms"]
    assert found["throughput_per_s"] is None


def test_no_missed_deadline_is_not_proof_of_none() -> None:
    due = np.arange(100) * 10 * MS
    (found,) = summarised([outcome("paced")], rows("paced", due, due + MS))
    assert found["missed"] == 0
    assert found["missed_share"]["low"] == 0.0
    assert found["missed_share"]["high"] == pytest.approx(0.0362, abs=1e-4)


def test_an_overloaded_block_tells_no_response_times() -> None:
    due = np.arange(100) * 10 * MS
    start = np.arange(100) * 25 * MS
    (found,) = summarised(
        [outcome("paced", status="overloaded", reason="overloaded")],
        rows("paced", start, start + 25 * MS, due_ns=due),
    )
    assert found["status"] == "overloaded" and found["response_ms"] is None
    assert found["service_ms"]["p50"]["estimate"] == 25.0
    assert found["missed"] == 100


def test_a_launch_that_failed_is_left_out_and_said() -> None:
    start = np.arange(20) * 10 * MS
    good, bad = rows("tails", start, start + 10 * MS), rows("tails", start, start + 99 * MS)
    bad["epoch"] = bad["epoch"] + 1
    (found,) = summarised(
        [outcome("tails"), outcome("tails", 1, status="crashed", reason="signal:SIGSEGV")],
        joined(good, bad),
    )
    assert (found["status"], found["reason"]) == ("crashed", "signal:SIGSEGV")
    assert found["launches"] == 1 and found["service_ms"]["p50"]["estimate"] == 10.0


def test_a_block_without_figures_keeps_its_reason() -> None:
    (found,) = summarised([outcome("concurrent", status="unsupported", reason="concurrent")], None)
    assert (found["status"], found["reason"]) == ("unsupported", "concurrent")
    assert found["launches"] == found["requests"] == 0
    assert found["throughput_per_s"] is None


def test_percentiles_of_a_case_are_those_of_its_tails() -> None:
    start = np.arange(70) * 10 * MS
    samples = joined(
        rows("tails", start, start + 9 * MS), rows("concurrent", start, start + 50 * MS)
    )
    found = tail_percentiles(samples, 0.9)
    assert set(found) == {"p50", "p90"} and found["p50"]["estimate"] == 9.0
    assert tail_percentiles(None, 0.9) == {}


def slots(means_ms: np.ndarray) -> Json:
    calls = np.full(len(means_ms), 100)
    end = np.cumsum(means_ms * MS * 100).astype(np.int64)
    start = np.concatenate([[0], end[:-1]])
    return {"start_ns": start, "end_ns": end, "calls": calls}


def test_heat_is_found_where_it_begins() -> None:
    rng = np.random.default_rng(2)
    noise = np.exp(rng.normal(0, 0.01, 300))
    hot = np.where(np.arange(300) < 100, 10.0, 11.5) * noise
    found = sustained_summary(slots(hot), 0.95)
    assert found["throttled_after_s"] == pytest.approx(100.0, rel=0.05)
    assert found["slowdown"] == pytest.approx(1.15, rel=0.01)
    equilibrium = found["equilibrium_ms"]
    assert equilibrium["low"] < 11.5 * 1.002 and equilibrium["high"] > 11.5 * 0.998


def test_a_sustained_block_is_told_with_its_start_temperature() -> None:
    samples = rows(
        "sustained", *(slots(np.full(60, 10.0))[name] for name in ("start_ns", "end_ns"))
    )
    samples["calls"] = np.full(60, 100)
    (found,) = summarised([outcome("sustained", window_ns=60_000 * MS)], samples)
    assert found["sustained"]["start_celsius"] == 41.0
    assert found["sustained"]["start_ms"] == pytest.approx(10.0)
    assert (found["requests"], found["seconds"], found["service_ms"]) == (6000, 60.0, None)


@pytest.mark.parametrize("shape", ["steady", "spell", "late"])
def test_what_passes_is_no_throttling(shape: str) -> None:
    rng = np.random.default_rng(3)
    means = 10.0 * np.exp(rng.normal(0, 0.01, 300))
    if shape == "spell":
        means[80:160] *= 1.3
    if shape == "late":
        means[-4:] *= 1.5
    assert sustained_summary(slots(means), 0.95)["throttled_after_s"] is None
