"""Flags: what disturbed a measurement, said rather than hidden. Pure functions of samples.

Trigger values are start values; each flag's detail says what was seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ngraphbench.records import PARTLY_COMPILED
from ngraphbench.summary import Comparison, Samples
from ngraphbench.types import VENDOR_DEFAULT, Array, Json

__all__ = [
    "LEAK_BYTES",
    "batch_flag",
    "case_flags",
    "coverage_flag",
    "is_disturbed",
    "leak_bytes_per_1000_calls",
    "quantised_flag",
    "session_flags",
]

LEAK_BYTES = 16 * 1024**2

COVERAGE_MIN = 0.95
"""Share of a model's work below which a number is not the compiler's."""

SWITCHES_FACTOR = 10
QUIET_SWITCHES_PER_S = 20.0
"""Involuntary switches that even a quiet machine makes: one in a slot of 50 ms."""


def flag(name: str, detail: str) -> Json:
    return {"flag": name, "detail": detail}


def case_flags(
    samples: Samples,
    *,
    threads: int | None,
    rounds_min: int,
    rss_bytes: Sequence[int] = (),
    interrupted: bool = False,
) -> list[Json]:
    """Return the flags of one candidate from its slots.

    ``threads`` is how many were asked for, None where an accelerator computes. ``rss_bytes``
    holds the resident memory after each slot, oldest first; ``interrupted`` says that the user
    cut an epoch short.
    """
    wall = np.asarray(samples["slot_ns"], dtype=float)
    if len(wall) == 0:
        return []
    usage = np.asarray(samples["cpu_ns"], dtype=float) / wall
    found = [
        _interference(samples),
        None if threads is None else _threads(usage, threads),
        _leak(rss_bytes, samples),
    ]
    rounds = len(set(zip(samples["epoch"].tolist(), samples["round"].tolist(), strict=True)))
    epochs = len(np.unique(samples["epoch"]))
    if rounds < rounds_min * epochs:
        why = "it was interrupted" if interrupted else "the budget ran out"
        found.append(flag("few-rounds", f"{rounds} rounds in {epochs} epoch(s): {why}"))
    return [item for item in found if item]


def coverage_flag(coverage: Json | None) -> Json | None:
    """Return what must be said of a program of which too little was compiled."""
    told = coverage or {}
    share = told.get("share")
    if share is None:
        return flag(PARTLY_COMPILED, str(told["partly"])) if told.get("partly") else None
    if share >= COVERAGE_MIN:
        return None
    work = {"flops": "FLOPs"}.get(str(told.get("unit")), "nodes")
    return flag(PARTLY_COMPILED, f"{1 - share:.0%} of its {work} ran outside what was compiled")


def quantised_flag(coverage: Json | None) -> Json | None:
    """Return what must be said of a quantised program of which part ran in wider numbers."""
    products = (coverage or {}).get("products") or {}
    int8, wider = products.get("int8", 0), products.get("wider", 0)
    if not wider:
        return None
    detail = f"{int8} of {int8 + wider} products and convolutions ran in int8"
    return flag("partly-quantised", detail)


def batch_flag(coverage: Json | None, batch: int) -> Json | None:
    """Return what must be said of a program that computes more items than asked for.

    One that computes fewer has outputs of another shape, and is wrong.
    """
    items = (coverage or {}).get("items")
    if not isinstance(items, int) or items <= batch:
        return None
    return flag("batch-padded", f"a call computes {items} items where {batch} were asked for")


def is_disturbed(samples: Samples) -> bool:
    """Return whether something else took the CPU in so many slots that it is flagged."""
    return _interference(samples) is not None


def _interference(samples: Samples) -> Json | None:
    """In more than 20 % of slots, cpu/wall is 5 % below the candidate's own p90, or it is
    switched out 10 times as often as in its quietest tenth.
    """
    wall = np.asarray(samples["slot_ns"], dtype=float)
    usage = np.asarray(samples["cpu_ns"], dtype=float) / wall
    switches_per_s = np.asarray(samples["nivcsw"], dtype=float) / wall * 1e9
    if len(usage) < 5:
        return None
    told = []
    share = float(np.mean(usage < 0.95 * float(np.quantile(usage, 0.9))))
    if share > 0.2:
        told.append(f"something else took the CPU in {share:.0%} of slots (cpu/wall fell)")
    quiet = max(float(np.quantile(switches_per_s, 0.1)), QUIET_SWITCHES_PER_S)
    share = float(np.mean(switches_per_s > SWITCHES_FACTOR * quiet))
    if share > 0.2:
        told.append(f"it was switched out over {SWITCHES_FACTOR}x as often in {share:.0%} of slots")
    return flag("interference", "; ".join(told)) if told else None


def _threads(usage: Array, threads: int) -> Json | None:
    used = float(np.quantile(usage, 0.9))
    if threads == VENDOR_DEFAULT:
        return flag("thread-unfair", f"the vendor's default decided: {used:.1f} CPUs were used")
    if 0.75 * threads <= used <= 1.1 * threads:
        return None
    return flag("thread-unfair", f"used {used:.1f} CPUs, {threads} threads were asked for")


def _leak(rss_bytes: Sequence[int], samples: Samples) -> Json | None:
    """Memory grew by ``LEAK_BYTES`` in the second half of the last launch, in most slots."""
    slope = leak_bytes_per_1000_calls(rss_bytes, samples)
    if slope is None:
        return None
    count = int(np.count_nonzero(np.asarray(samples["epoch"]) == np.max(samples["epoch"])))
    late = np.asarray(rss_bytes[-count:], dtype=float)[count // 2 :]
    if late[-1] - late[0] < LEAK_BYTES or float(np.mean(np.diff(late) > 0)) < 0.6:
        return None
    return flag("leak", f"memory grew by {slope / 2**20:.1f} MiB/1000 calls")


def leak_bytes_per_1000_calls(rss_bytes: Sequence[int], samples: Samples) -> float | None:
    """Return how resident memory goes with calls, or None for fewer than six slots.

    The median slope of all pairs of slots (Theil-Sen) in the second half of the last launch:
    the first half may still fill caches, and one step must not pass for a leak.
    """
    last = np.asarray(samples["epoch"]) == np.max(samples["epoch"])
    count = int(np.count_nonzero(last))
    own = np.asarray(rss_bytes[-count:], dtype=float)
    if len(own) < max(6, count):
        return None
    half = count // 2
    calls = np.cumsum(np.asarray(samples["calls"], dtype=float)[last])[half:]
    first, second = np.triu_indices(len(calls), 1)
    late = own[half:]
    slopes = (late[second] - late[first]) / (calls[second] - calls[first])
    return float(np.median(slopes)) * 1000.0


def session_flags(
    *,
    canaries: Mapping[str, Json],
    sentinel: Comparison | None,
    launch_sd: float | None,
    deferred: tuple[int, int] = (0, 0),
) -> list[Json]:
    """Return what must be said of a whole session.

    ``sentinel`` compares two processes of the same program at 99 %, launch term included;
    ``deferred`` counts the programs that memory did not hold, of how many.
    """
    found: list[Json] = []
    if deferred[0]:
        found.append(flag("parted", "{} of {} programs did not fit into memory".format(*deferred)))
    for name, seen in canaries.items():
        if seen["spread"] > 0.10:
            found.append(
                flag("drift", f"the {name} canary moved by {seen['spread']:.0%}: ratios stand")
            )
    if sentinel is not None and not sentinel.low <= 1.0 <= sentinel.high:
        found.append(
            flag(
                "untrusted",
                f"two processes of one program differ by {sentinel.estimate - 1:+.1%}",
            )
        )
    if launch_sd is not None and launch_sd > 0.02:
        found.append(flag("launch", f"launches of one program differ by {launch_sd:.1%}"))
    return found
