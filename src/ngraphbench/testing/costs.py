"""Checks of what a program costs, and that it costs what was asked; part of the contract."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ngraphbench.errors import Unsupported
from ngraphbench.plugin import LoadsArtifact, SavesArtifact
from ngraphbench.testing import observe
from ngraphbench.testing.parts import HEAVY_BATCH, TIMING_ATTEMPTS, ContractParts
from ngraphbench.testing.workloads import reference_arrays
from ngraphbench.types import VENDOR_DEFAULT
from ngraphbench.workload import INPUT_SETS

__all__ = ["CostChecks"]

FP32_ERROR = 1e-5
LOW_PRECISION_ERROR = 0.1
LAZY_FLOOR_NS = 50_000_000
LAZY_RATIO = 20


class CostChecks(ContractParts):
    """Work is done once, where it is timed: with the threads, precision and build asked for."""

    def test_compile_finishes_the_program(self, tmp_path: Path) -> None:
        root = self._root(tmp_path)
        with self._program(root, batch=1) as (program, workload):
            inputs = workload.input_arrays("a")
            with observe.hidden(root):
                program.load(inputs)
                first_ns = observe.time_runs(program, 1)[0]
                steady_ns = float(np.median(observe.time_runs(program, 10)))
            self._check(program.outputs(), root, batch=1)
        assert first_ns < max(LAZY_FLOOR_NS, LAZY_RATIO * steady_ns), (
            f"The first run took {first_ns / 1e6:.0f} ms, later ones {steady_ns / 1e6:.3f} ms:"
            " something is built in run; build it in compile."
        )

    def test_no_work_is_skipped(self, tmp_path: Path) -> None:
        root = self._write(tmp_path / "heavy", self.heavy, batches=(HEAVY_BATCH,))
        with self._program(root, batch=HEAVY_BATCH, heavy=True) as (program, workload):
            sets = [workload.input_arrays(which) for which in INPUT_SETS]
            faults: list[str] = []
            # A busy machine slows runs, it does not skip them: one clean attempt is proof.
            for _ in range(TIMING_ATTEMPTS):
                fault = observe.skipped_work(program, sets)
                if not fault:
                    return
                faults.append(fault)
        raise AssertionError("; ".join(faults))

    def test_threads_asked_for_are_used(self, tmp_path: Path) -> None:
        if not observe.TASKS.exists():
            pytest.skip("Threads are seen through /proc, which is not here.")
        root = self._write(tmp_path / "heavy", self.heavy, batches=(HEAVY_BATCH,))
        for threads in (1, 2):
            busy = 0
            # On a busy machine a pool's helpers may find nothing left to do: look again.
            for _ in range(TIMING_ATTEMPTS):
                busy = self._busy_threads(root, threads)
                if busy >= threads:
                    break
            assert busy == threads, f"Asked for {threads} threads, {busy} were busy."

    def test_threads_may_be_left_to_the_vendor(self, tmp_path: Path) -> None:
        root = self._root(tmp_path)
        workload = observe.open_workload(root, batch=1)
        device = self._device(threads=VENDOR_DEFAULT)
        program = self.compiler.compile(workload, device, self._resolved())
        try:
            outputs = self._outputs(program, workload.input_arrays("a"))
            self._check(outputs, root, batch=1)
        finally:
            program.close()

    def test_precision_asked_for_is_executed(self, tmp_path: Path) -> None:
        root = self._write(tmp_path / "heavy", self.heavy, batches=(HEAVY_BATCH,))
        exact = reference_arrays(root, batch=HEAVY_BATCH)
        for precision in ("fp32", "fp16", "bf16"):
            workload = observe.open_workload(root, batch=HEAVY_BATCH, precision=precision)
            try:
                program = self.compiler.compile(
                    workload, self._device(), self._resolved(heavy=True)
                )
            except Unsupported:
                assert precision != "fp32", "Every compiler must run fp32."
                continue
            outputs = self._outputs(program, workload.input_arrays("a"))
            program.close()
            error = max(observe.relative_error(outputs[name], exact[name]) for name in exact)
            if precision == "fp32":
                assert error < FP32_ERROR, f"fp32 was asked for; the error is {error:.1e}."
            else:
                assert FP32_ERROR < error < LOW_PRECISION_ERROR, (
                    f"{precision} was asked for; an error of {error:.1e} is not {precision}'s."
                )

    def test_no_process_is_left_behind(self, tmp_path: Path) -> None:
        before = observe.child_processes()
        with self._program(self._root(tmp_path), batch=1) as (program, workload):
            self._outputs(program, workload.input_arrays("a"))
            left = observe.child_processes() - before
            assert not left, f"{len(left)} child processes live on beside the measurement."

    def test_a_loaded_artefact_is_the_program(self, tmp_path: Path) -> None:
        if not isinstance(self.compiler, LoadsArtifact):
            pytest.skip(f"{self.compiler.name} loads no artefacts: each launch compiles.")
        for root in self._roots(tmp_path):
            folder = tmp_path / f"{root.name}-artefact"
            folder.mkdir()
            with self._program(root, batch=2) as (program, workload):
                sets = {which: workload.input_arrays(which) for which in INPUT_SETS}
                wanted = {which: self._outputs(program, inputs) for which, inputs in sets.items()}
                assert isinstance(program, SavesArtifact), "It loads artefacts and saves none."
                program.save(folder)
            options = self._resolved()
            found = observe.loaded_outputs(
                self.compiler, folder, root, batch=2, device=self._device(), options=options
            )
            for which, arrays in wanted.items():
                for name, value in arrays.items():
                    error = observe.relative_error(found[which][name], value)
                    assert error <= self.rtol, (
                        f"{root.name}, inputs {which}: {name} of the loaded artefact is off by"
                        f" {error:.2e} from the program that was saved."
                    )

    def _busy_threads(self, root: Path, threads: int) -> int:
        answer = observe.ask(
            self.compiler,
            "threads",
            variables=dict.fromkeys(self.compiler.threads_env, str(threads)),
            root=str(root),
            batch=HEAVY_BATCH,
            device=self._device(threads).to_json(),
            options=self._resolved(heavy=True),
        )
        return int(answer["busy"])
