"""The toy compiler keeps the contract, and is found by its entry point."""

from __future__ import annotations

from typing import ClassVar

import pytest

from ngraphbench.plugin import discover, load_compiler
from ngraphbench.testing import CompilerContract

toy = pytest.importorskip("ngb_toy", reason="pip install -e tests/plugin_package")


class TestToy(CompilerContract):
    compiler: ClassVar = toy.Toy()


def test_entry_point_leads_to_the_compiler() -> None:
    target = discover().get("toy")
    if target is None:
        pytest.skip("ngb-toy is importable, but not installed.")
    assert isinstance(load_compiler(target), toy.Toy)
