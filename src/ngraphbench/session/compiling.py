"""Compiles that are done for their cost alone, each in a process of its own.

They run in the first launches while the others are suspended, and serve no timing: a
compile is timed once per process, so one number says little of how much it varies.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

from ngraphbench.session.resident import Resident, Stopped
from ngraphbench.session.state import CaseState

__all__ = ["COLD_COMPILES", "compile_cold_again", "compile_warm"]

COLD_COMPILES = 3
LONGEST_S = 30.0
"""Longer compiles are done once."""


def compile_cold_again(
    make: Callable[[int], Resident],
    state: CaseState,
    *,
    budget_s: float,
    interrupted: Callable[[], bool],
) -> None:
    """Compile from fresh caches until there are three times, or until ``budget_s`` is spent.

    ``make(number)`` gives a resident in an empty folder, which is removed afterwards;
    ``state`` holds the first time, and gets the others. A compile that fails ends this.
    """
    for number in range(1, COLD_COMPILES):
        costs = state.costs
        # An empty cache would have it tune again as well.
        compile_s = costs["compile_cold_s"] + (costs.get("tuning_s") or 0.0)
        each_s = costs["import_s"] + compile_s
        if interrupted() or compile_s > LONGEST_S or number * each_s > budget_s:
            return
        again = make(number)
        compiled = _compiled(again)
        shutil.rmtree(again.scratch, ignore_errors=True)
        if not compiled:
            return
        state.add_cold_compile(again.state.costs["compile_cold_s"])


def compile_warm(again: Resident, state: CaseState) -> None:
    """Compile once with the caches of the first launch, for what loads its artefact instead."""
    if _compiled(again):
        state.costs["compile_warm_s"] = again.state.costs["compile_warm_s"]


def _compiled(resident: Resident) -> bool:
    try:
        resident.compile_only()
        resident.close()
    except Stopped:
        return False
    finally:
        resident.kill()
    return True
