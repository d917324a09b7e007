"""What the checks of ``CompilerContract`` share: settings, known gaps, and parts of checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ngraphbench.plugin import Compiler, Program, resolve_options
from ngraphbench.testing import observe
from ngraphbench.testing.workloads import reference_arrays, write_workload
from ngraphbench.types import Arrays, Device, OptionValue
from ngraphbench.workload import PORTABLE, Workload

__all__ = ["HEAVY_BATCH", "JUDGES_TIME", "TIMING_ATTEMPTS", "ContractParts"]

HEAVY_BATCH = 64
TIMING_ATTEMPTS = 5
JUDGES_TIME = frozenset(
    {
        "test_compile_finishes_the_program",
        "test_lanes_skip_no_work",
        "test_no_work_is_skipped",
        "test_threads_asked_for_are_used",
    }
)
"""Checks that look at times and processors: a suite may run them beside no other test."""
WITHOUT_VENDOR = ("test_probe_never_raises", "test_import_needs_no_vendor")


class ContractParts:
    """A suite without checks: what a plugin author sets, and what checks are made of.

    What each setting means is told at ``CompilerContract``.
    """

    compiler: ClassVar[Compiler]
    options: ClassVar[Mapping[str, OptionValue]] = {}
    models: ClassVar[tuple[str, ...]] = ("mlp", "conv", "tokens", "pair")
    heavy: ClassVar[str] = "wide"
    heavy_options: ClassVar[Mapping[str, OptionValue]] = {}
    accelerator: ClassVar[str] = "cpu"
    batches: ClassVar[tuple[int, ...]] = (1, 2, 3)
    rtol: ClassVar[float] = 1e-5
    known_gaps: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        unknown = sorted(name for name in cls.known_gaps if not hasattr(cls, name))
        if unknown:
            raise TypeError(f"{cls.__name__}.known_gaps names tests that do not exist: {unknown}")

    @pytest.fixture(autouse=True)
    def _apply_known_gaps(self, request: pytest.FixtureRequest) -> None:
        name = request.node.originalname
        support = self.compiler.probe(self._device())
        if not support.ok and name not in WITHOUT_VENDOR:
            pytest.skip(f"{self.compiler.name} is not available: {support.hint}")
        if name in self.known_gaps:
            request.node.add_marker(pytest.mark.xfail(reason=self.known_gaps[name], strict=True))

    def _device(self, threads: int = 1) -> Device:
        return Device(accelerator=self.accelerator, threads=threads)

    def _resolved(self, *, heavy: bool = False) -> dict[str, OptionValue]:
        given = dict(self.options) | (dict(self.heavy_options) if heavy else {})
        return resolve_options(self.compiler, given)

    def _root(self, folder: Path) -> Path:
        return self._write(folder / self.models[0], self.models[0], batches=self.batches)

    def _roots(self, folder: Path) -> Iterator[Path]:
        for model in self.models:
            yield self._write(folder / model, model, batches=self.batches)

    def _write(
        self, root: Path, model: str, *, batches: Iterable[int] = (1, 2, 3), seed: int = 0
    ) -> Path:
        """Return the workload folder of a sample, in the forms that the compiler may take."""
        portable = (PORTABLE,) if PORTABLE in self.compiler.accepts else ()
        forms = ("onnx", "torch", *portable)
        return write_workload(root, model, batches=batches, seed=seed, forms=forms)

    @contextmanager
    def _program(
        self, root: Path, *, batch: int, heavy: bool = False
    ) -> Iterator[tuple[Program, Workload]]:
        workload = observe.open_workload(root, batch=batch)
        program = self.compiler.compile(workload, self._device(), self._resolved(heavy=heavy))
        try:
            yield program, workload
        finally:
            program.close()

    def _outputs(self, program: Program, inputs: Arrays) -> Arrays:
        program.load(inputs)
        program.run()
        program.sync()
        return program.outputs()

    def _check(self, outputs: Arrays, root: Path, *, batch: int, which: str = "a") -> None:
        for name, wanted in reference_arrays(root, batch=batch, which=which).items():
            assert name in outputs, f"Output {name!r} is missing; there are {sorted(outputs)}."
            assert outputs[name].shape == wanted.shape, f"{name}: {outputs[name].shape}"
            error = observe.relative_error(outputs[name], wanted)
            assert error <= self.rtol, (
                f"{root.name}, batch {batch}, inputs {which}: {name} is off by {error:.2e}."
            )
