"""A bad plugin: its module imports its vendor."""

from __future__ import annotations

from typing import ClassVar

import onnx.reference

from ngraphbench.compilers.fake import FakeCompiler


class ImportsItsVendor(FakeCompiler):
    name: ClassVar[str] = "imports-its-vendor"
    packages: ClassVar[tuple[str, ...]] = ("onnx",)
    evaluator = onnx.reference.ReferenceEvaluator
