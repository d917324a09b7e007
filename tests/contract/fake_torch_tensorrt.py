"""A fake of Torch-TensorRT, and a CUDA device that is the CPU.

Engines run with torch's counters switched off, as TensorRT's are hidden from them.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from ngraphbench.compilers import torchprogram

SETTINGS: list[dict[str, Any]] = []
"""What each compile was given."""


def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the CPU pass for a CUDA device; return what is synchronised, as it happens."""
    torch = pytest.importorskip("torch")
    synced: list[str] = []
    monkeypatch.setattr(torchprogram, "ACCELERATORS", {"cpu": "cpu", "cuda": "cpu"})
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: synced.append("cuda"))
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 4096)
    return synced


def install(monkeypatch: pytest.MonkeyPatch, *, takes: str = "all") -> None:
    """Put the fake in place; it takes ``all`` of a module, or ``nothing``; ``half``: both run."""
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import _disable_current_modes

    class Engine(torch.nn.Module):
        def __init__(self, part: Any) -> None:
            super().__init__()
            self.part = part

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            with _disable_current_modes():
                return self.part(*args, **kwargs)

    class Compiled(torch.nn.Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            if takes != "nothing":
                self._run_on_acc_0 = Engine(module)
            if takes != "all":
                self._run_on_gpu_1 = module

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            if takes == "half":
                self._run_on_acc_0(*args, **kwargs)
            last = self._run_on_acc_0 if takes == "all" else self._run_on_gpu_1
            return last(*args, **kwargs)

    def compile(exported: Any, *, arg_inputs: Any, kwarg_inputs: Any, **settings: Any) -> Any:
        SETTINGS.append(settings)
        if settings["require_full_compilation"] and takes != "all":
            raise RuntimeError("require_full_compilation=True was specified, but ...")
        return Compiled(exported.module())

    def typed(exported: Any, use_explicit_typing: bool = False, **rest: Any) -> Any:
        return compile(exported, use_explicit_typing=use_explicit_typing, **rest)

    vendor = types.ModuleType("torch_tensorrt")
    vars(vendor).update(__version__="2.10.0", dynamo=types.SimpleNamespace(compile=typed))
    monkeypatch.setitem(sys.modules, "torch_tensorrt", vendor)
