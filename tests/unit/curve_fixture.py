"""Runs whose times are known: one model over batch sizes, or blocks over depth."""

from __future__ import annotations

from collections.abc import Mapping

from run_fixture import Run, model

from ngraphbench.analysis.tables import Evidence
from ngraphbench.case import ModelRef
from ngraphbench.profiles import PROFILES
from ngraphbench.types import Json

Times = Mapping[str, Mapping[int, "float | str"]]
"""By candidate, ms per call by batch size or depth, or the status of a cell without."""


def batch_run(times: Times, *, noise: float = 0.0, rounds: int = 6, apart: bool = False) -> Run:
    """Return a run of one model; ``apart`` measures every batch size in its own session."""
    run = Run(PROFILES["default"], noise=noise, rounds=rounds)
    shared = run.session()
    for batch in sorted({batch for by_batch in times.values() for batch in by_batch}):
        session = run.session(f"b{batch}") if apart else shared
        for text, by_batch in times.items():
            if batch in by_batch:
                _cell(run, session, model("net"), text, batch=batch, value=by_batch[batch])
    return run.summarise()


def depth_run(times: Times, *, noise: float = 0.0, rounds: int = 6, **costs: Json) -> Run:
    """Return a run of one family of blocks at batch 1; ``costs`` are by depth."""
    run = Run(PROFILES["default"], noise=noise, rounds=rounds)
    session = run.session()
    for depth in sorted({depth for by_depth in times.values() for depth in by_depth}):
        ref = ModelRef(
            source=f"block:vit?depth={depth}&width=64",
            label=f"vit?depth={depth}&width=64",
            kind="block",
            content=f"sha-{depth}",
            args={"depth": depth, "width": 64, "resolution": 56},
        )
        for text, by_depth in times.items():
            record = _cell(run, session, ref, text, batch=1, value=by_depth[depth])
            record["costs"].update({key: by[depth] for key, by in costs.items()})
    return run.summarise()


def evidence(run: Run) -> Evidence:
    return Evidence(*run.parts)


def _cell(
    run: Run, session: str, ref: ModelRef, text: str, *, batch: int, value: float | str
) -> Json:
    if isinstance(value, str):
        return run.cell(session, ref, text, batch, status=value)
    return run.cell(session, ref, text, batch, ms=value)
