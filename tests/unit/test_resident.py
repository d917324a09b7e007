"""A resident program whose process never comes to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngraphbench.case import Case, CompilerRef, Limits, ModelRef
from ngraphbench.errors import Unavailable, WorkerFailed
from ngraphbench.session.resident import Resident, Stopped, Worker
from ngraphbench.session.state import CaseState
from ngraphbench.types import Device


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (WorkerFailed("no fork", status="failed", reason="spawn"), "failed", "spawn"),
        (Unavailable("no plugin", reason="plugin-import"), "unavailable", "plugin-import"),
        (OSError("no file"), "failed", "spawn"),
    ],
)
def test_a_process_that_cannot_start_stops_its_cell_alone(
    tmp_path: Path, error: Exception, status: str, reason: str
) -> None:
    def spawn() -> Worker:
        raise error

    case = Case(ModelRef("m", "m", "onnx", "c"), CompilerRef("x", "m:X"), Device(), 1)
    state = CaseState()
    resident = Resident(case, state, Limits(), spawn, tmp_path, tmp_path, {})
    with pytest.raises(Stopped) as caught:
        resident.prepare()
    resident.kill()
    state.fail(caught.value.error, caught.value.stage)
    assert (state.status, state.reason, state.stage) == (status, reason, "environment")
