"""The conformance suite on eager PyTorch and on Inductor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ngraphbench.compilers.pytorch import Eager, Inductor
from ngraphbench.testing import CompilerContract


class TestEager(CompilerContract):
    compiler = Eager()


@pytest.mark.slow
class TestInductor(CompilerContract):
    compiler = Inductor()
    models = ("mlp",)

    @pytest.fixture(autouse=True)
    def _forget_compiled_code(self) -> Iterator[None]:
        yield
        # Dynamo stops compiling after eight versions of one forward in a process.
        pytest.importorskip("torch")._dynamo.reset()
