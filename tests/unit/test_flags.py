"""Flags: each is raised by what it names, and not when quiet."""

from __future__ import annotations

import numpy as np
import pytest

from ngraphbench.session.flags import (
    batch_flag,
    case_flags,
    coverage_flag,
    leak_bytes_per_1000_calls,
    session_flags,
)
from ngraphbench.summary import Comparison

MIB = 2**20


def samples(usage: np.ndarray, *, epochs: int = 1) -> dict[str, np.ndarray]:
    count = len(usage)
    wall = np.full(count, 100_000_000)
    return {
        "epoch": np.arange(count) % epochs,
        "round": np.arange(count) // epochs,
        "slot_ns": wall,
        "cpu_ns": (wall * usage).astype(np.int64),
        "calls": np.full(count, 100),
        "nivcsw": np.ones(count, dtype=np.int64),
    }


def names(usage: np.ndarray, **more: object) -> list[str]:
    settings = {"threads": 2, "rounds_min": 12, **more}
    return [f["flag"] for f in case_flags(samples(usage), **settings)]


def test_a_quiet_candidate_has_no_flag():
    assert names(np.full(24, 1.98)) == []


def test_a_hog_beside_is_interference():
    usage = np.full(24, 1.98)
    usage[::3] = 1.4
    assert names(usage) == ["interference"]


def test_being_switched_out_often_is_interference():
    slots = samples(np.full(24, 1.98))
    # Slots are 100 ms: 10 a second at its quietest, 25 times as many when disturbed.
    slots["nivcsw"][::3] = 25
    (flag,) = case_flags(slots, threads=2, rounds_min=12)
    assert flag["flag"] == "interference" and "33% of slots" in flag["detail"]
    slots["nivcsw"][:] = 25
    # Always so is how this program is: more threads than CPUs, perhaps.
    assert case_flags(slots, threads=2, rounds_min=12) == []
    slots["nivcsw"][:] = 0
    slots["nivcsw"][::3] = 9
    # Few enough that a machine at rest makes them.
    assert case_flags(slots, threads=2, rounds_min=12) == []


def test_one_bad_slot_is_not_interference():
    usage = np.full(24, 1.98)
    usage[3] = 1.0
    assert names(usage) == []


def test_fewer_or_more_threads_than_asked_for_are_said():
    assert names(np.full(24, 1.0)) == ["thread-unfair"]
    assert names(np.full(24, 2.0), threads=1) == ["thread-unfair"]


def test_threads_are_not_counted_where_an_accelerator_computes():
    assert case_flags(samples(np.full(24, 0.3)), threads=None, rounds_min=12) == []


def test_the_vendors_choice_is_said_and_not_judged():
    for used in (0.5, 2.0, 16.0):
        (flag,) = case_flags(samples(np.full(24, used)), threads=0, rounds_min=12)
        assert flag["flag"] == "thread-unfair"
        assert f"default decided: {used:.1f} CPUs" in flag["detail"]


def test_too_few_rounds_are_said():
    assert names(np.full(7, 1.98)) == ["few-rounds"]
    for interrupted, why in ((False, "budget"), (True, "interrupt")):
        (flag,) = case_flags(
            samples(np.full(7, 1.98)), threads=2, rounds_min=8, interrupted=interrupted
        )
        assert why in flag["detail"]


def test_growing_memory_is_a_leak_and_a_filled_cache_is_not():
    growing = [100 * MIB + i * 4 * MIB for i in range(24)]
    filled = [100 * MIB] + [400 * MIB] * 23
    assert names(np.full(24, 1.98), rss_bytes=growing) == ["leak"]
    assert names(np.full(24, 1.98), rss_bytes=filled) == []


def test_a_leak_is_told_by_the_last_launch_alone():
    launch = [100 * MIB + i * 4 * MIB for i in range(12)]
    slots = {**samples(np.full(36, 1.98)), "epoch": np.repeat(np.arange(3), 12)}
    (flag,) = case_flags(slots, threads=2, rounds_min=1, rss_bytes=launch * 3)
    # 4 MiB from each slot of 100 calls to the next.
    assert (flag["flag"], flag["detail"]) == ("leak", "memory grew by 40.0 MiB/1000 calls")
    restarted = [100 * MIB] * 24 + [300 * MIB] * 12
    assert case_flags(slots, threads=2, rounds_min=1, rss_bytes=restarted) == []


def comparison(low: float, high: float) -> Comparison:
    return Comparison(
        estimate=(low + high) / 2,
        low=low,
        high=high,
        within_low=low,
        within_high=high,
        rounds=24,
        epochs=1,
        confidence=0.99,
    )


def test_session_flags():
    calm = {"compute": {"spread": 0.02}, "memory": {"spread": 0.05}}
    assert session_flags(canaries=calm, sentinel=comparison(0.98, 1.02), launch_sd=0.01) == []
    wild = {"compute": {"spread": 0.3}}
    found = session_flags(canaries=wild, sentinel=comparison(1.05, 1.1), launch_sd=0.03)
    assert [f["flag"] for f in found] == ["drift", "untrusted", "launch"]


@pytest.mark.parametrize("bytes_per_call", [0.0, 250.0, -40.0])
def test_growth_is_a_number(bytes_per_call: float):
    slots = samples(np.full(40, 1.98))
    calls = np.cumsum(np.asarray(slots["calls"], dtype=float))
    caches = np.where(np.arange(40) < 15, 0, 10**8)
    rss = [int(value) for value in 10**9 + caches + bytes_per_call * calls]
    found = leak_bytes_per_1000_calls(rss, slots)
    assert found == pytest.approx(1000 * bytes_per_call, abs=1.0)
    assert leak_bytes_per_1000_calls(rss[:5], slots) is None


@pytest.mark.parametrize(
    ("coverage", "detail"),
    [
        (None, None),
        ({"graphs": 1}, None),
        ({"share": None}, None),
        ({"share": None, "partly": "it gave up"}, "it gave up"),
        ({"share": 0.95, "unit": "flops"}, None),
        ({"share": 0.94, "unit": "flops"}, "6% of its FLOPs ran outside what was compiled"),
        ({"share": 0.0, "unit": "nodes"}, "100% of its nodes ran outside what was compiled"),
    ],
)
def test_too_little_compiled_is_said(
    coverage: dict[str, object] | None, detail: str | None
) -> None:
    found = coverage_flag(coverage)
    assert (found["detail"] if found else None) == detail


@pytest.mark.parametrize(
    ("items", "name"),
    [(8, "batch-padded"), (1, None), (2, None), (None, None), ("?", None)],
)
def test_more_items_than_asked_for_are_said(items: object, name: str | None) -> None:
    found = batch_flag({"items": items}, 2)
    assert (found["flag"] if found else None) == name
    assert batch_flag(None, 2) is None
