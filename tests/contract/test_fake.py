"""The conformance suite on the compiler without a vendor."""

from __future__ import annotations

from typing import ClassVar

from ngraphbench.compilers.fake import FakeCompiler
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
