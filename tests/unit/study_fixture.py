"""Runs for studies: ms per call (or a status) by archetype, candidate and batch size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from run_fixture import Run, model

from ngraphbench.profiles import PROFILES
from ngraphbench.records import PARTLY_COMPILED

Table = Mapping[str, Mapping[str, "float | str"]]
"""By archetype and candidate: ms per call at every batch size, or a status.

``partly MS`` is measured and only partly compiled, ``unstable MS`` measured and not steady.
"""


def study_run(
    table: Table,
    *,
    batches: tuple[int, ...] = (1,),
    noise: float = 0.002,
    profile: str = "default",
    session: str = "s0",
    run: Run | None = None,
    **changes: Any,
) -> Run:
    """Return a run of ``table`` in one session; ``run`` gets it as one more session."""
    run = run or Run(PROFILES[profile], noise=noise, rounds=8)
    run.profile, run.noise = PROFILES[profile], noise
    session_id = run.session(session, **changes)
    for name, by_label in table.items():
        for label, value in by_label.items():
            for batch in batches:
                add(run, session_id, name, label, batch=batch, value=value)
    return run.summarise()


def add(
    run: Run, session_id: str, name: str, label: str, *, batch: int, value: float | str
) -> None:
    """Add one cell; a time is per item, so that batch sizes scale perfectly."""
    words = str(value).split()
    if isinstance(value, str) and len(words) == 1:
        run.cell(session_id, model(name), label, batch, status=value)
        return
    changes: dict[str, Any] = {}
    if words[0] == "partly":
        changes["flags"] = [{"flag": PARTLY_COMPILED, "detail": "60 %"}]
    if words[0] == "unstable":
        changes["status"] = "unstable"
    run.cell(session_id, model(name), label, batch, ms=float(words[-1]) * batch, **changes)
