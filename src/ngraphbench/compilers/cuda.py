"""CUDA's runtime through NVIDIA's Python bindings. Not yet run on hardware."""

from __future__ import annotations

import importlib
from typing import Any

from ngraphbench.errors import RunFailed

__all__ = ["Cuda"]


class Cuda:
    """CUDA's runtime by its Python bindings; calls that fail raise RunFailed."""

    def __init__(self) -> None:
        try:
            self.runtime: Any = importlib.import_module("cuda.bindings.runtime")
        except ImportError:
            # Its place before cuda-python 12.6.
            self.runtime = importlib.import_module("cuda.cudart")

    def call(self, name: str, *arguments: Any) -> Any:
        """Return what the function gives besides its error code: None, or its one value."""
        code, *values = getattr(self.runtime, name)(*arguments)
        if code != self.runtime.cudaError_t.cudaSuccess:
            raise RunFailed(f"CUDA: {name} gave {code}.", reason="cuda")
        return values[0] if values else None
