"""The conformance suite on OpenVINO."""

from __future__ import annotations

from ngraphbench.compilers.openvino import OpenVino
from ngraphbench.testing import CompilerContract


class TestOpenVino(CompilerContract):
    compiler = OpenVino()
