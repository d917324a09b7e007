"""Checks of programs that can hold several requests in flight; part of ``CompilerContract``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ngraphbench.plugin import Program, RunsConcurrently
from ngraphbench.testing import observe
from ngraphbench.testing.parts import HEAVY_BATCH, ContractParts
from ngraphbench.worker.lanes import run_lanes
from ngraphbench.workload import INPUT_SETS

__all__ = ["LaneChecks"]

LANE_ATTEMPTS = 6


class LaneChecks(ContractParts):
    """Skipped for programs that hold one request at a time."""

    def test_lanes_have_inputs_of_their_own(self, tmp_path: Path) -> None:
        root = self._root(tmp_path)
        with self._program(root, batch=2) as (program, workload):
            lanes = _lanes(program, 3)
            for turn in range(2):
                # Every lane must follow its inputs, whatever runs beside it.
                sets = [INPUT_SETS[(place + turn) % 2] for place in range(len(lanes))]
                for lane, which in zip(lanes, sets, strict=True):
                    lane.load(workload.input_arrays(which))
                run_lanes(lanes, window_ns=10**8, calls_max=60, now=time.perf_counter_ns)
                for lane, which in zip(lanes, sets, strict=True):
                    self._check(lane.outputs(), root, batch=2, which=which)
            for lane in lanes:
                lane.close()
            self._check(self._outputs(program, workload.input_arrays("a")), root, batch=2)

    def test_lanes_skip_no_work(self, tmp_path: Path) -> None:
        root = self._write(tmp_path / "heavy", self.heavy, batches=(HEAVY_BATCH,))
        with self._program(root, batch=HEAVY_BATCH, heavy=True) as (program, workload):
            sets = [workload.input_arrays(which) for which in INPUT_SETS]
            for lane in _lanes(program, 2):
                # A busy machine slows runs, it does not skip them: one clean attempt is proof.
                faults = [observe.skipped_work(lane, sets)]
                while faults[-1] and len(faults) < LANE_ATTEMPTS:
                    faults.append(observe.skipped_work(lane, sets))
                lane.close()
                assert not faults[-1], "; ".join(faults)


def _lanes(program: Program, count: int) -> Sequence[Program]:
    if not isinstance(program, RunsConcurrently):
        pytest.skip("It holds one request at a time.")
    lanes = program.lanes(count)
    assert len(lanes) == count, f"{count} lanes were asked for, {len(lanes)} came."
    return lanes
