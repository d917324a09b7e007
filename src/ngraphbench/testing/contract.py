"""The conformance suite for compiler plugins.

Subclass it in a test file::

    class TestMine(CompilerContract):
        compiler = MyCompiler()

A known gap is data: ``known_gaps = {"test_rows_match_batch_one": "normalises over the batch"}``.
It is strict: a gap that passes fails the suite, so that gaps do not outlive their cause.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngraphbench.errors import CompileFailed, RunFailed, SpecError, Unsupported
from ngraphbench.plugin import ReportsCoverage, resolve_options
from ngraphbench.testing import observe
from ngraphbench.testing.costs import CostChecks
from ngraphbench.testing.lanes import LaneChecks
from ngraphbench.testing.workloads import move_weights_out
from ngraphbench.types import Arrays, Device, Support, storage_dtype
from ngraphbench.workload import INPUT_SETS, PORTABLE_FILE

__all__ = ["CompilerContract"]


class CompilerContract(CostChecks, LaneChecks):
    """Checks that a plugin keeps the contract; subclass it with ``compiler`` set.

    ``models`` names the small models of ``testing.samples`` it is run on, ``heavy`` the one
    for timing and threads. ``options`` are given to each compile, ``heavy_options`` on top
    for the heavy model, on ``accelerator``. ``rtol`` bounds the relative L2 error against float64.
    What a program costs is checked in ``testing.costs``, several requests in flight in
    ``testing.lanes``.
    """

    # What the plugin declares

    def test_import_needs_no_vendor(self) -> None:
        answer = observe.ask(self.compiler, "imports")
        assert not answer["vendors"], (
            f"Importing the plugin imported {answer['vendors']}; import them inside the methods."
        )

    def test_probe_never_raises(self) -> None:
        assert self.accelerator in self.compiler.accelerators, "The plugin declares what it takes."
        for device in (Device(), Device(threads=64), Device(accelerator="no-such-accelerator")):
            support = self.compiler.probe(device)
            assert isinstance(support, Support)
            assert support.version if support.ok else support.hint, (
                "A probe gives the version, or a hint on what to do."
            )
            assert json.loads(json.dumps(support.to_json())) == support.to_json()

    def test_options_are_declared(self) -> None:
        names = [option.name for option in self.compiler.options]
        assert len(names) == len(set(names)), f"Options are declared twice: {names}."
        for option in self.compiler.options:
            assert option.help, f"Option {option.name} has no help."
            for choice in (option.default, *option.choices, *option.presets.values()):
                resolved = resolve_options(self.compiler, {option.name: choice})
                assert resolved[option.name] == choice

    def test_unknown_option_is_refused(self) -> None:
        with pytest.raises(SpecError):
            resolve_options(self.compiler, {"no_such_option": 1})

    # What a program computes

    def test_outputs_have_names_shapes_and_dtypes(self, tmp_path: Path) -> None:
        for root in self._roots(tmp_path):
            with self._program(root, batch=2) as (program, workload):
                outputs = self._outputs(program, workload.input_arrays("a"))
                names = sorted(spec.name for spec in workload.outputs)
                assert sorted(outputs) == names, f"Outputs {sorted(outputs)}, not {names}."
                for spec in workload.outputs:
                    found = outputs[spec.name]
                    assert isinstance(found, np.ndarray)
                    assert found.shape == spec.shape, (
                        f"{root.name}: {spec.name} has shape {found.shape}, not {spec.shape}."
                    )
                    assert found.dtype == storage_dtype(spec.dtype), (
                        f"{root.name}: {spec.name} is {found.dtype}, not {spec.dtype}."
                    )

    def test_outputs_match_the_reference(self, tmp_path: Path) -> None:
        for root in self._roots(tmp_path):
            with self._program(root, batch=2) as (program, workload):
                outputs = self._outputs(program, workload.input_arrays("a"))
                self._check(outputs, root, batch=2)

    def test_outputs_follow_the_inputs(self, tmp_path: Path) -> None:
        for root in self._roots(tmp_path):
            with self._program(root, batch=2) as (program, workload):
                for which in (*INPUT_SETS, "a"):
                    outputs = self._outputs(program, workload.input_arrays(which))
                    self._check(outputs, root, batch=2, which=which)

    def test_outputs_outlive_the_next_run(self, tmp_path: Path) -> None:
        root = self._root(tmp_path)
        with self._program(root, batch=2) as (program, workload):
            first = self._outputs(program, workload.input_arrays("a"))
            for value in first.values():
                assert value.flags.writeable, "The caller owns outputs, and may write to them."
            kept = {name: value.copy() for name, value in first.items()}
            self._outputs(program, workload.input_arrays("b"))
            _check_equal(first, kept, "Outputs changed with the next run; return copies.")
            for value in first.values():
                value[...] = 0
            self._check(program.outputs(), root, batch=2, which="b")
            again = program.outputs()
        self._check(again, root, batch=2, which="b")

    def test_inputs_are_left_alone(self, tmp_path: Path) -> None:
        for root in self._roots(tmp_path):
            with self._program(root, batch=2) as (program, workload):
                inputs = workload.input_arrays("a")
                kept = {name: value.copy() for name, value in inputs.items()}
                self._outputs(program, inputs)
                _check_equal(inputs, kept, "Running changed the caller's inputs; copy in load.")

    def test_inputs_are_copied(self, tmp_path: Path) -> None:
        root = self._root(tmp_path)
        with self._program(root, batch=2) as (program, workload):
            inputs = workload.input_arrays("a")
            program.load(inputs)
            for value in inputs.values():
                value[...] = 0
            program.run()
            program.sync()
            self._check(program.outputs(), root, batch=2)

    def test_wrong_inputs_are_refused(self, tmp_path: Path) -> None:
        root = self._root(tmp_path)
        with self._program(root, batch=2) as (program, workload):
            with pytest.raises(RunFailed):
                program.load({})
            other = observe.open_workload(root, batch=3).input_arrays("a")
            with pytest.raises(RunFailed):
                program.load(other)
            self._check(self._outputs(program, workload.input_arrays("a")), root, batch=2)

    def test_runs_repeat(self, tmp_path: Path) -> None:
        root = self._root(tmp_path)
        with self._program(root, batch=2) as (program, workload):
            program.load(workload.input_arrays("a"))
            for _ in range(10):
                program.run()
                program.sync()
                self._check(program.outputs(), root, batch=2)

    def test_every_batch_size_is_honoured(self, tmp_path: Path) -> None:
        root = self._root(tmp_path)
        for batch in self.batches:
            with self._program(root, batch=batch) as (program, workload):
                outputs = self._outputs(program, workload.input_arrays("a"))
                for name, value in outputs.items():
                    assert value.shape[:1] == (batch,), f"Batch {batch}: {name} {value.shape}"
                self._check(outputs, root, batch=batch)

    def test_rows_match_batch_one(self, tmp_path: Path) -> None:
        root, batch = self._root(tmp_path), max(self.batches)
        with self._program(root, batch=batch) as (program, workload):
            inputs = workload.input_arrays("a")
            whole = self._outputs(program, inputs)
        with self._program(root, batch=1) as (program, _):
            for i in range(batch):
                row = {name: value[i : i + 1] for name, value in inputs.items()}
                for name, value in self._outputs(program, row).items():
                    error = observe.relative_error(whole[name][i : i + 1], value)
                    assert error <= self.rtol, f"Row {i} of {name} is off by {error:.2e}."

    def test_weights_beside_the_file_are_read(self, tmp_path: Path) -> None:
        if "onnx" not in self.compiler.accepts:
            pytest.skip("It takes no ONNX files.")
        pytest.importorskip("onnx")
        root = self._root(tmp_path)
        move_weights_out(root, batch=2)
        with self._program(root, batch=2) as (program, workload):
            self._check(self._outputs(program, workload.input_arrays("a")), root, batch=2)

    # How it fails

    def test_foreign_form_is_unsupported(self, tmp_path: Path) -> None:
        workload = observe.open_workload(self._root(tmp_path), batch=1)
        foreign = dataclasses.replace(workload, forms=("no-such-form",))
        with pytest.raises(Unsupported):
            self.compiler.compile(foreign, self._device(), self._resolved())

    def test_broken_model_fails_with_its_cause(self, tmp_path: Path) -> None:
        root = self._root(tmp_path)
        for file in ("model.onnx", PORTABLE_FILE):
            (root / "b1" / file).write_bytes(b"this is no model")
        (root / "model.py").write_text("raise ValueError('this is no model')\n")
        workload = observe.open_workload(root, batch=1)
        # A module that cannot be imported is the user's mistake, told as such.
        with pytest.raises((CompileFailed, SpecError)) as caught:
            self.compiler.compile(workload, self._device(), self._resolved())
        assert len(str(caught.value)) > len("failed"), "Say what the vendor said."

    def test_close_is_final(self, tmp_path: Path) -> None:
        with self._program(self._root(tmp_path), batch=1) as (program, workload):
            self._outputs(program, workload.input_arrays("a"))
            program.close()
            program.close()
            with pytest.raises(RunFailed):
                program.run()
            with pytest.raises(RunFailed):
                program.outputs()

    def test_programs_share_no_state(self, tmp_path: Path) -> None:
        roots = [self._write(tmp_path / str(seed), self.models[0], seed=seed) for seed in (0, 1)]
        with self._program(roots[0], batch=2) as (left, one):
            with self._program(roots[1], batch=2) as (right, two):
                left.load(one.input_arrays("a"))
                right.load(two.input_arrays("b"))
                for program in (left, right):
                    program.run()
                    program.sync()
                self._check(left.outputs(), roots[0], batch=2, which="a")
                self._check(right.outputs(), roots[1], batch=2, which="b")
            left.run()
            left.sync()
            self._check(left.outputs(), roots[0], batch=2, which="a")

    # What it reports

    def test_report_survives_json(self, tmp_path: Path) -> None:
        with self._program(self._root(tmp_path), batch=1) as (program, workload):
            self._outputs(program, workload.input_arrays("a"))
            report: dict[str, Any] = {"options": self._resolved()}
            if isinstance(program, ReportsCoverage):
                report["coverage"] = program.coverage()
            assert json.loads(json.dumps(report, allow_nan=False)) == report


def _check_equal(found: Arrays, kept: Arrays, message: str) -> None:
    for name, value in kept.items():
        assert np.array_equal(found[name], value), f"{name}: {message}"
