"""How slots are cut and when rounds end: pure functions of the profile and what was seen."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ngraphbench import summary
from ngraphbench.profiles import MS, Profile
from ngraphbench.summary import Samples
from ngraphbench.worker.timing import SlotRequest

__all__ = [
    "FEWEST_ROUNDS",
    "SUSPECT_ROUNDS",
    "Pair",
    "SlotRequest",
    "epoch_budget_ns",
    "is_look",
    "precise_enough",
    "round_order",
    "slot_request",
]

FEWEST_ROUNDS = 6
"""Below this no signed-rank interval exists at 95 %; the budget does not cut deeper."""

SUSPECT_ROUNDS = 120
"""Rounds of an epoch with a candidate whose slots spread suspiciously wide, if the budget allows.

At 5 % between two modes and 1.5 % of noise, three epochs of these tell two modes from one.
"""

GROUP_NS = 10 * MS
REWARM_NS = 10 * MS


@dataclass(frozen=True, slots=True)
class Pair:
    """A candidate and the baseline it is compared with, by key."""

    candidate: str
    baseline: str


def slot_request(profile: Profile, *, mode: str, call_ns: float) -> SlotRequest:
    """Return the slot for a program whose call takes about ``call_ns``.

    At least three calls, unless one call is longer than the slot: then one, since the
    budget wins. Re-warm covers 10 ms and at least one call, three for short ones: the first
    call after a pause is 3 to 10 % slow.
    """
    call_ns = max(call_ns, 1.0)
    long_call = call_ns >= profile.slot_ns
    rewarm = max(math.ceil(REWARM_NS / call_ns), 1 if call_ns >= REWARM_NS else 3)
    return SlotRequest(
        mode=mode,
        slot_ns=profile.slot_ns,
        calls_min=1 if long_call else 3,
        calls_max=max(16, math.ceil(20 * profile.slot_ns / call_ns)),
        rewarm_calls=min(rewarm, 100_000),
        group_ns=GROUP_NS,
        budget_ns=4 * profile.slot_ns,
    )


def epoch_budget_ns(profile: Profile, candidates: int) -> int:
    """Return the measuring time of one epoch for that many candidates."""
    return profile.budget_ns * max(1, candidates) // profile.epochs


def round_order(
    keys: Sequence[str], repeats: Mapping[str, int], generator: random.Random
) -> list[str]:
    """Return one round: every key as often as ``repeats`` says (once if unnamed), shuffled.

    The same state of ``generator`` gives the same order.
    """
    order = [key for key in keys for _ in range(repeats.get(key, 1))]
    generator.shuffle(order)
    return order


def is_look(rounds: int, rounds_min: int) -> bool:
    """Return whether precision is looked at after that many rounds: about every 15 % more.

    >>> [n for n in range(1, 30) if is_look(n, 12)]
    [12, 14, 17, 20, 23, 27]
    """
    look = rounds_min
    while look < rounds:
        look = math.ceil(look * 1.15)
    return look == rounds


def precise_enough(
    samples: Mapping[str, Samples], pairs: Sequence[Pair], *, profile: Profile
) -> bool:
    """Return whether every pair's within-launch interval is as narrow as the profile asks."""
    for pair in pairs:
        if pair.candidate not in samples or pair.baseline not in samples:
            continue
        found = summary.compare(
            samples[pair.baseline], samples[pair.candidate], confidence=profile.confidence
        )
        if found is None:
            return False
        if math.log(found.within_high / found.within_low) / 2 > profile.half_width:
            return False
    return bool(pairs)
