"""PyTorch: eager execution, the uncompiled baseline, and Inductor behind ``torch.compile``."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Mapping
from typing import Any, ClassVar

from ngraphbench.compilers.checks import probe_vendor
from ngraphbench.compilers.dynamo import captured_share, dynamo_counts, recompile_limit
from ngraphbench.compilers.torchprogram import (
    ACCELERATORS,
    Call,
    TorchProgram,
    check_build,
    prepared_module,
    torch_version,
    warmed,
)
from ngraphbench.errors import Unavailable
from ngraphbench.plugin import PRESET, Compiler
from ngraphbench.types import VENDOR_DEFAULT, Arrays, Device, Json, Option, OptionValue, Support
from ngraphbench.workload import Workload

__all__ = ["Eager", "Inductor"]

INSTALL = "pip install 'ngraphbench[torch]'"


class InductorProgram(TorchProgram):
    """A compiled module that can say how much of it Dynamo took in."""

    def __init__(
        self, call: Call, *, module: Any, workload: Workload, device: Device | None = None
    ) -> None:
        super().__init__(call, module=module, workload=workload, device=device)
        self._before = dynamo_counts()
        self._graphs = self._breaks = self._settling = self._at_rest = 0
        self._share: float | None = None
        self._known = False

    def warm(self, inputs: Arrays) -> None:
        super().warm(inputs)
        seen = dynamo_counts()
        self._graphs = seen["graphs"] - self._before["graphs"]
        # Dynamo does not count a break at a branch on data, only its second graph.
        self._breaks = max(seen["breaks"] - self._before["breaks"], self._graphs - 1, 0)
        self._settle()
        self._at_rest = dynamo_counts()["graphs"]
        self._settling = self._at_rest - seen["graphs"]
        self.load(inputs)

    def _settle(self) -> None:
        """Run until a call compiles nothing: by Dynamo's limit at the latest it goes to eager."""
        for _ in range(recompile_limit() + 1):
            graphs = dynamo_counts()["graphs"]
            self.run()
            self.sync()
            if dynamo_counts()["graphs"] == graphs:
                return

    @property
    def _hit_limit(self) -> bool:
        return dynamo_counts()["limits"] > self._before["limits"]

    def coverage(self) -> Json:
        recompiles = self._settling + dynamo_counts()["graphs"] - self._at_rest
        if not self._known:
            self._share, self._known = self._captured(), True
        told = super().coverage() | {
            "share": self._share,
            "unit": "flops",
            "graphs": self._graphs,
            "graph_breaks": self._breaks,
            "recompiles": recompiles,
            "recompile_limit_hit": self._hit_limit,
            "fell_back_to_eager": self._graphs == 0 or self._share == 0.0,
        }
        if self._share is None and self._hit_limit:
            told["partly"] = "a part of unknown size was left to eager at Dynamo's recompile limit"
        return told

    def _captured(self) -> float | None:
        if self._hit_limit:
            # One graph was the whole module, and eager runs it now; of several it is not told
            # which, and to count them would make Dynamo forget its limit.
            return None if self._breaks else 0.0
        if not self._graphs or not self._breaks:
            return 1.0 if self._graphs else 0.0
        try:
            return captured_share(self._module, self._args, self._kwargs)
        except Exception:
            return None  # a module that cannot be counted has its breaks told all the same
        finally:
            self.run()
            self._at_rest = dynamo_counts()["graphs"]


class Eager(Compiler):
    """PyTorch as it is, without a compiler."""

    name: ClassVar[str] = "eager"
    accepts: ClassVar[tuple[str, ...]] = ("torch",)
    packages: ClassVar[tuple[str, ...]] = ("torch",)
    environment: ClassVar[str] = "torch"
    accelerators: ClassVar[tuple[str, ...]] = tuple(ACCELERATORS)
    accelerators_not_yet_run: ClassVar[tuple[str, ...]] = ("cuda",)
    threads_env: ClassVar[tuple[str, ...]] = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

    def probe(self, device: Device) -> Support:
        def look() -> str:
            check_build(device)
            return torch_version()

        return probe_vendor(self, device, look=look, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> TorchProgram:
        module = prepared_module(self, workload, device)
        program = TorchProgram(module, module=module, workload=workload, device=device)
        return warmed(program, workload=workload, what="The module")


class Inductor(Compiler):
    """TorchInductor, the compiler behind ``torch.compile``."""

    name: ClassVar[str] = "inductor"
    accepts: ClassVar[tuple[str, ...]] = ("torch",)
    packages: ClassVar[tuple[str, ...]] = ("torch",)
    environment: ClassVar[str] = "torch"
    accelerators: ClassVar[tuple[str, ...]] = tuple(ACCELERATORS)
    accelerators_not_yet_run: ClassVar[tuple[str, ...]] = ("cuda",)
    threads_env: ClassVar[tuple[str, ...]] = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    cache_env: ClassVar[tuple[str, ...]] = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="mode",
            type="str",
            default="default",
            choices=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
            help="torch.compile's mode",
        ),
        Option(
            name="fullgraph",
            type="bool",
            default=False,
            help="refuse a model that needs more than one graph",
        ),
        Option(
            name="freezing",
            type="bool",
            default=False,
            presets={"recommended": True},
            help="make weights constants, as PyTorch's CPU inference guide advises",
        ),
    )

    def probe(self, device: Device) -> Support:
        def look() -> str:
            check_build(device)
            if not _cxx():
                raise Unavailable(
                    "Inductor needs a C++ compiler.", hint="Install g++ or clang++, or set CXX."
                )
            return torch_version()

        return probe_vendor(self, device, look=look, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> InductorProgram:
        import torch

        module = prepared_module(self, workload, device)
        inductor: Any = importlib.import_module("torch._inductor.config")
        # As many compiling processes as the program may use threads; see _stop_workers.
        if device.threads != VENDOR_DEFAULT:
            inductor.compile_threads = device.threads
        try:
            compiled = torch.compile(
                module,
                dynamic=False,
                fullgraph=bool(options.get("fullgraph", False)),
                mode=str(options.get("mode", "default")),
            )
            program = InductorProgram(compiled, module=module, workload=workload, device=device)
            with inductor.patch(freezing=bool(options.get("freezing", False))):
                return warmed(program, workload=workload, what="Inductor")
        finally:
            _stop_workers()


def _stop_workers() -> None:
    """End Inductor's compiling processes, which would idle beside the measurement."""
    importlib.import_module("torch._inductor.async_compile").shutdown_compile_workers()


def _cxx() -> str:
    wanted = (os.environ.get("CXX", ""), "g++", "clang++")
    return next((found for name in wanted if name and (found := shutil.which(name))), "")
