"""The conformance suite on every compiler that comes with the package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from ngraphbench.compilers.fake import FakeCompiler
from ngraphbench.compilers.onnxruntime import OnnxRuntime
from ngraphbench.compilers.openvino import OpenVino
from ngraphbench.compilers.pytorch import Eager, Inductor
from ngraphbench.testing import CompilerContract


class TestFake(CompilerContract):
    compiler = FakeCompiler()
    models = ("fake",)
    heavy = "fake"
    heavy_options: ClassVar = {"work_us": 2000}
    known_gaps: ClassVar = {
        "test_broken_model_fails_with_its_cause": "it never reads the model",
        "test_threads_asked_for_are_used": "it computes in one thread",
    }


class TestEager(CompilerContract):
    compiler = Eager()


class TestOnnxRuntime(CompilerContract):
    compiler = OnnxRuntime()


class TestOnnxRuntimeUnoptimised(CompilerContract):
    compiler = OnnxRuntime()
    options: ClassVar = {"level": "none", "spin": False}
    models = ("mlp",)


class TestOpenVino(CompilerContract):
    compiler = OpenVino()


@pytest.mark.slow
class TestInductor(CompilerContract):
    compiler = Inductor()
    models = ("mlp",)

    @pytest.fixture(autouse=True)
    def _forget_compiled_code(self) -> Iterator[None]:
        yield
        # Dynamo stops compiling after eight versions of one forward in a process.
        pytest.importorskip("torch")._dynamo.reset()
