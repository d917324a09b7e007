"""The conformance suite on LiteRT."""

from __future__ import annotations

from delegates import DelegateContract

from ngraphbench.compilers.litert import LiteRt


class TestLiteRt(DelegateContract):
    compiler = LiteRt()
    cumsum = "CUMSUM"
