"""The conformance suite on ONNX Runtime."""

from __future__ import annotations

from typing import ClassVar

from ngraphbench.compilers.onnxruntime import OnnxRuntime
from ngraphbench.testing import CompilerContract


class TestOnnxRuntime(CompilerContract):
    compiler = OnnxRuntime()


class TestOnnxRuntimeUnoptimised(CompilerContract):
    compiler = OnnxRuntime()
    options: ClassVar = {"level": "none", "spin": False}
    models = ("mlp",)
