"""tinygrad: the conformance suite, and what is special to it."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from ngraphbench.compilers.tinygrad import Tinygrad
from ngraphbench.errors import Unsupported
from ngraphbench.testing import CompilerContract, observe
from ngraphbench.testing.workloads import write_workload
from ngraphbench.types import Device

TINYGRAD = Tinygrad()


class TestTinygrad(CompilerContract):
    compiler = TINYGRAD
    known_gaps: ClassVar = {
        "test_threads_asked_for_are_used": "on the CPU it runs its kernels in one thread",
    }


@pytest.fixture
def _vendor() -> None:
    support = TINYGRAD.probe(Device())
    if not support.ok:
        pytest.skip(support.hint)


def test_more_threads_than_it_has_are_refused(tmp_path: Path, _vendor: None) -> None:
    workload = observe.open_workload(write_workload(tmp_path, "mlp"), batch=1)
    with pytest.raises(Unsupported, match="one thread"):
        TINYGRAD.compile(workload, Device(threads=2), {})


@pytest.mark.parametrize("compiler", ["no-such-clang", "cat"])
def test_what_is_not_clang_is_told_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, compiler: str, _vendor: None
) -> None:
    monkeypatch.setenv("CC", compiler)
    support = TINYGRAD.probe(Device())
    assert not support.ok and "install" in support.hint


def test_kernels_are_counted(tmp_path: Path, _vendor: None) -> None:
    workload = observe.open_workload(write_workload(tmp_path, "wide"), batch=1)
    program = TINYGRAD.compile(workload, Device(), {})
    coverage = program.coverage()
    assert coverage["share"] == 1.0 and coverage["parts"]["kernels"] >= 4
    program.close()
