"""What compilers that quantise must show alike: a workload to calibrate, and its error."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ngraphbench.plugin import Compiler, resolve_options
from ngraphbench.testing import observe
from ngraphbench.testing.workloads import reference_arrays, write_workload
from ngraphbench.types import INT8, Device, Json
from ngraphbench.workload import CALIBRATION, write_arrays

ROUNDED = (1e-4, 5e-2)
"""An error of int8: not that of float32, and within the tolerance of its verdict."""


def calibrated(folder: Path, sample: str, *, items: int = 16) -> Path:
    """Return a workload of ``sample`` at batch 2, with items drawn as its inputs are."""
    root = write_workload(folder / sample, sample, batches=(2,))
    specs = observe.open_workload(root, batch=2).inputs
    random = np.random.default_rng(1)
    drawn = {
        spec.name: random.standard_normal((items, *spec.shape[1:])).astype(np.float32)
        for spec in specs
    }
    write_arrays(root / "b2" / CALIBRATION, drawn)
    return root


def error_and_coverage(compiler: Compiler, root: Path, **options: str) -> tuple[float, Json]:
    """Return the largest relative error of a program in int8, and what it says it ran."""
    workload = observe.open_workload(root, batch=2, precision=INT8)
    program = compiler.compile(workload, Device(), resolve_options(compiler, options))
    try:
        program.load(workload.input_arrays("a"))
        program.run()
        found = program.outputs()
        coverage = program.coverage()
    finally:
        program.close()
    wanted = reference_arrays(root, batch=2)
    return max(observe.relative_error(found[name], wanted[name]) for name in wanted), coverage
