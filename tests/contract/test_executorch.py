"""The conformance suite on ExecuTorch."""

from __future__ import annotations

from delegates import DelegateContract

from ngraphbench.compilers.executorch import ExecuTorch


class TestExecuTorch(DelegateContract):
    compiler = ExecuTorch()
    cumsum = "aten.cumsum"
