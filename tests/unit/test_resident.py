"""A resident program whose process does not start, or does not stop."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from ngraphbench.case import Case, CompilerRef, Limits, ModelRef
from ngraphbench.errors import Unavailable, WorkerFailed
from ngraphbench.session.resident import Resident, Stopped
from ngraphbench.session.state import CaseState
from ngraphbench.session.verify import Reference
from ngraphbench.session.workers import Worker
from ngraphbench.types import Device, Json, TensorSpec
from ngraphbench.workload import write_arrays

CASE = Case(ModelRef("m", "m", "onnx", "c"), CompilerRef("x", "m:X"), Device(), 1)


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

    state = CaseState()
    resident = Resident(CASE, state, Limits(), spawn, tmp_path, tmp_path, {})
    with pytest.raises(Stopped) as caught:
        resident.prepare()
    resident.kill()
    state.fail(caught.value.error, caught.value.stage)
    assert (state.status, state.reason, state.stage) == (status, reason, "environment")


class Restless:
    """A worker that answers rightly and cannot be suspended."""

    peak_rss_bytes = 0
    origin: ClassVar[dict] = {}
    log_truncated = False
    leftovers = ""
    outputs = np.ones(2, np.float32)

    def request(self, op: str, *, deadline_s: float, **fields: object) -> Json:
        if op == "outputs":
            write_arrays(Path(str(fields["path"])), {"y": self.outputs})
        about = {"python": "3", "version": "1", "packages": {}, "variables": {}}
        return {**about, "seconds": 0.1, "ns": [1_000_000_000]}

    def suspend(self) -> None:
        raise WorkerFailed("It did not stop.", status="failed", reason="suspend")

    def resume(self) -> None: ...

    def close(self) -> None: ...

    def kill(self) -> None: ...


def test_a_process_that_cannot_be_suspended_stops_its_cell_alone(tmp_path: Path) -> None:
    reference = Reference("r", {"y": np.ones(2)}, (TensorSpec("y", "float32", (2,)),))
    references = {"a": reference, "b": reference}
    resident = Resident(CASE, CaseState(), Limits(), Restless, tmp_path, tmp_path, references)
    with pytest.raises(Stopped) as caught:
        resident.prepare()
    assert (caught.value.stage, caught.value.error.reason) == ("measure", "suspend")


def test_denormal_outputs_are_flagged_once(tmp_path: Path) -> None:
    class Tiny(Restless):
        outputs = np.array([1, 1e-40], np.float32)

        def suspend(self) -> None: ...

    reference = Reference("r", {"y": Tiny.outputs}, (TensorSpec("y", "float32", (2,)),))
    references = {"a": reference, "b": reference}
    resident = Resident(CASE, CaseState(), Limits(), Tiny, tmp_path, tmp_path, references)
    resident.prepare()
    found = "1 of 2 outputs are denormal numbers"
    assert resident.state.flags == [{"flag": "denormals", "detail": found}]


class Tuner(Restless):
    """A worker whose compile tunes for a while, unless it did before."""

    def request(self, op: str, *, deadline_s: float, **fields: object) -> Json:
        reply = super().request(op, deadline_s=deadline_s, **fields)
        return {**reply, "tuning_s": 30.0} if op == "compile" else reply

    def kill(self) -> None: ...


def test_what_tuning_took_is_kept_from_the_first_compile(tmp_path: Path) -> None:
    for cold, kept in ((True, 30.0), (False, None)):
        state = CaseState()
        worker = Tuner()
        Resident(
            CASE, state, Limits(), lambda worker=worker: worker, tmp_path, tmp_path, {}, cold=cold
        ).compile_only()
        assert state.costs.get("tuning_s") == kept
        assert state.costs["compile_cold_s" if cold else "compile_warm_s"] == 0.1
