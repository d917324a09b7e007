"""Which neural graph compiler runs your network best, on which device, at which batch size.

The names below are imported when first used, so that a worker in a compiler's own
environment needs nothing of the client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ngraphbench.api import bench as bench
    from ngraphbench.api import run as run
    from ngraphbench.comparing import compare as compare
    from ngraphbench.runs import Run as Run
    from ngraphbench.studies.constraints import Constraints as Constraints
    from ngraphbench.studies.deploying import deploy as deploy
    from ngraphbench.studies.verbs import design as design
    from ngraphbench.studies.verbs import develop as develop

__version__ = "0.1.0"
__all__ = [
    "Constraints",
    "Run",
    "__version__",
    "bench",
    "compare",
    "deploy",
    "design",
    "develop",
    "run",
]

_PLACES = {
    **dict.fromkeys(("bench", "run"), "ngraphbench.api"),
    "Run": "ngraphbench.runs",
    "Constraints": "ngraphbench.studies.constraints",
    "compare": "ngraphbench.comparing",
    "deploy": "ngraphbench.studies.deploying",
    "design": "ngraphbench.studies.verbs",
    "develop": "ngraphbench.studies.verbs",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'ngraphbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
