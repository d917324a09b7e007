"""Which solo blocks a session holds, and how long: pure functions of its method and profile."""

from __future__ import annotations

from ngraphbench.case import Method
from ngraphbench.profiles import SECOND, Profile
from ngraphbench.worker.blocks import BlockRequest

__all__ = ["blocks_of", "blocks_s", "describe"]

SHORTEST_S = 2.0
PACED_REQUESTS = 680
"""Enough for a p99, which needs 662, with a few to spare."""
PACED_S = 30.0
CONCURRENT_SHARE = 0.2
CONCURRENT_CALLS = 50_000


def blocks_of(method: Method, profile: Profile, epoch: int) -> list[BlockRequest]:
    """Return the blocks of one launch, those that heat the device last.

    ``tails_s`` is shared out over the launches. Paced blocks of all launches together last
    until a p99 may be told, but at most 30 s or the profile's budget, and 2 s per launch at
    least. Each number in flight gets a fifth of the budget. Sustained blocks run in the
    first launch alone: heat does not differ from launch to launch.
    """
    epochs, budget_s = profile.epochs, profile.budget_ns / SECOND
    tails_s = profile.tails_s if method.tails_s is None else method.tails_s
    blocks: list[BlockRequest] = []
    if tails_s:
        blocks.append(BlockRequest("tails", tails_s / epochs))
    if method.rate_per_s is not None:
        wanted_s = min(PACED_REQUESTS / method.rate_per_s, max(PACED_S, budget_s))
        seconds = max(SHORTEST_S, wanted_s / epochs)
        blocks.append(BlockRequest("paced", seconds, rate_per_s=method.rate_per_s))
    seconds = max(SHORTEST_S, CONCURRENT_SHARE * budget_s / epochs)
    blocks += [
        BlockRequest("concurrent", seconds, in_flight=n, calls_max=CONCURRENT_CALLS)
        for n in method.in_flight
    ]
    if method.sustained_s and epoch == 0:
        blocks.append(
            BlockRequest("sustained", method.sustained_s, slot_s=min(1.0, method.sustained_s / 60))
        )
    return blocks


def blocks_s(method: Method, profile: Profile) -> float:
    """Return the seconds of all blocks of one candidate, over all launches."""
    return sum(
        block.seconds
        for epoch in range(profile.epochs)
        for block in blocks_of(method, profile, epoch)
    )


def describe(block: BlockRequest) -> str:
    """Return a block in words, such as ``paced at 30/s``."""
    if block.kind == "paced":
        return f"paced at {block.rate_per_s:g}/s"
    return f"{block.in_flight} in flight" if block.kind == "concurrent" else block.kind
