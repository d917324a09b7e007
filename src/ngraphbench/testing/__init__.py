"""For authors of compiler plugins: ``CompilerContract``, and workloads made by hand.

Names are imported when first used: only ``contract`` needs pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ngraphbench.testing.contract import CompilerContract as CompilerContract
    from ngraphbench.testing.workloads import fake_workload as fake_workload
    from ngraphbench.testing.workloads import write_workload as write_workload

__all__ = ["CompilerContract", "fake_workload", "write_workload"]


def __getattr__(name: str) -> Any:
    if name == "CompilerContract":
        from ngraphbench.testing.contract import CompilerContract

        return CompilerContract
    if name in __all__:
        from ngraphbench.testing import workloads

        return getattr(workloads, name)
    raise AttributeError(f"module 'ngraphbench.testing' has no attribute {name!r}")
