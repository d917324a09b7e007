"""Errors that say how a worker came to its end: too late, for memory, or of its own accord."""

from __future__ import annotations

import os

from ngraphbench.errors import WorkerFailed
from ngraphbench.session import proctree
from ngraphbench.session.wording import ended_by, said

__all__ = ["death", "late", "over_memory"]

RAISE_OR_SHRINK = "Raise the memory limit, or use a smaller batch."


def late(op: str, deadline_s: float, *, log_tail: str) -> WorkerFailed:
    """Return the error of an operation that took longer than it may."""
    return WorkerFailed(
        f"{said(op)} did not finish within {round(deadline_s, 1):g} s.",
        status="timeout",
        reason="deadline",
        hint="Raise the time limit, if that may be a matter of patience.",
        detail={"log_tail": log_tail},
    )


def over_memory(op: str, *, found_bytes: int, limit_bytes: int) -> WorkerFailed:
    """Return the error of a worker that was seen to use more memory than it may."""
    return WorkerFailed(
        f"{said(op)} used {_mib(found_bytes)} MiB of memory; the limit is {_mib(limit_bytes)} MiB.",
        status="oom",
        reason="memory",
        hint=RAISE_OR_SHRINK,
        detail={"found_bytes": found_bytes, "limit_bytes": limit_bytes},
    )


def death(
    op: str,
    fate: tuple[int, int] | None,
    *,
    limit_bytes: int | None,
    starved: bool,
    log_tail: str,
) -> WorkerFailed:
    """Return the error of a worker that ended while it was asked for something.

    ``fate`` is its (si_code, si_status), None where it lives and only closed its connection.
    ``limit_bytes`` is the limit for which the kernel killed in its group, None where it did
    not; ``starved``: the kernel killed somebody for lack of memory meanwhile.
    """
    status, reason, hint = "crashed", "closed", "Its log may tell why."
    if fate is not None and fate[0] == os.CLD_EXITED:
        reason = f"exit:{fate[1]}"
    elif fate is not None:
        reason = f"signal:{proctree.signal_name(fate[1])}"
    words = f"{said(op)} ended the process: {ended_by(reason)}."
    if reason == "signal:SIGKILL":
        hint = "It was killed from outside, or by the kernel for memory."
        if limit_bytes is not None:
            status, reason, hint = "oom", "memory", RAISE_OR_SHRINK
            words = f"{said(op)} took more memory at once than the limit allows, which is"
            words += f" {_mib(limit_bytes)} MiB."
        elif starved:
            status, reason, hint = "oom", "kernel-oom", "Use a smaller batch or limit."
    return WorkerFailed(
        words, status=status, reason=reason, hint=hint, detail={"log_tail": log_tail}
    )


def _mib(size_bytes: int) -> int:
    return round(size_bytes / 1024**2)
