"""Torch-TensorRT: what TensorRT takes of a torch module, the rest left to torch.

Not yet run on hardware: written after its documentation, tested over a fake of its API.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from ngraphbench.compilers.checks import cause, probe_vendor
from ngraphbench.compilers.dynamo import counted_flops
from ngraphbench.compilers.torchprogram import (
    TorchProgram,
    check_build,
    prepared_module,
    warmed,
)
from ngraphbench.errors import CompileFailed, Unsupported
from ngraphbench.plugin import PRESET, Compiler
from ngraphbench.types import Device, Json, Option, OptionValue, Support
from ngraphbench.workload import Workload

__all__ = ["TorchTensorRt"]

NAME = "torch_tensorrt"
INSTALL = "pip install torch-tensorrt, beside the CUDA build of torch that it was made for"
TORCH_DTYPES: Mapping[str, str] = {"fp16": "half", "bf16": "bfloat16"}
ENGINE, LEFT = "_run_on_acc", "_run_on_gpu"
"""How it names the parts of a compiled module: engines, and what torch still runs."""


class TorchTensorRtProgram(TorchProgram):
    """A compiled module that can say how much of it lies in engines."""

    def coverage(self) -> Json:
        compiled: Any = self._call
        names = [name for name, _ in compiled.named_children()]
        engines = sum(name.startswith(ENGINE) for name in names)
        left = sum(name.startswith(LEFT) for name in names)
        return super().coverage() | {
            "share": self._share(engines=engines, left=left),
            "unit": "flops",
            "parts": {"TensorRT": engines, "torch": left},
            "notes": [] if engines else ["TensorRT took nothing: torch runs the whole module"],
        }

    def _share(self, *, engines: int, left: int) -> float | None:
        if not engines or not left:
            return float(bool(engines))
        # What runs in engines is hidden from torch's counter: it sees the rest.
        total = counted_flops(self._module, self._args, self._kwargs)
        outside = counted_flops(self._call, self._args, self._kwargs)
        return max(0.0, 1.0 - outside / total) if total else None


class TorchTensorRt(Compiler):
    """Torch-TensorRT's ahead-of-time path, ``torch.export`` to engines."""

    name: ClassVar[str] = NAME
    accepts: ClassVar[tuple[str, ...]] = ("torch",)
    packages: ClassVar[tuple[str, ...]] = ("torch-tensorrt", "torch", "tensorrt")
    accelerators: ClassVar[tuple[str, ...]] = ("cuda",)
    default: ClassVar[bool] = False
    not_yet_run_on_hardware: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="optimization_level",
            type="int",
            default=3,
            minimum=0,
            presets={"recommended": 5},
            help="TensorRT's, 0 to 5; higher looks longer for better kernels",
        ),
        Option(
            name="min_block_size",
            type="int",
            default=5,
            minimum=1,
            help="operators that an engine needs at least; fewer stay in torch",
        ),
        Option(
            name="require_full_compilation",
            type="bool",
            default=False,
            help="refuse a module of which anything would stay in torch",
        ),
    )

    def probe(self, device: Device) -> Support:
        def look() -> str:
            check_build(device)
            return str(importlib.import_module(NAME).__version__)

        return probe_vendor(self, device, look=look, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> TorchTensorRtProgram:
        module = prepared_module(self, workload, device)
        vendor = importlib.import_module(NAME)
        program = TorchTensorRtProgram(module, module=module, workload=workload, device=device)
        program.load(workload.input_arrays("a"))
        arguments, named = program.arguments
        settings = _settings(vendor, workload.precision, options)
        try:
            exported = importlib.import_module("torch").export.export(module, arguments, named)
            compiled = vendor.dynamo.compile(
                exported, arg_inputs=arguments, kwarg_inputs=named, **settings
            )
        except Exception as error:
            program.close()
            raise _translated(error) from error
        program.replace(compiled)
        return warmed(program, workload=workload, what="Torch-TensorRT's program")


def _settings(vendor: Any, precision: str, options: Mapping[str, OptionValue]) -> Json:
    settings: Json = {
        "disable_tf32": precision != "tf32",
        "optimization_level": int(options.get("optimization_level", 3)),
        "min_block_size": int(options.get("min_block_size", 5)),
        "require_full_compilation": bool(options.get("require_full_compilation", False)),
    }
    known = inspect.signature(vendor.dynamo.compile).parameters
    if "use_explicit_typing" in known:
        # Layers keep the types of the module, which was cast.
        settings["use_explicit_typing"] = True
    else:
        torch: Any = importlib.import_module("torch")
        settings["enabled_precisions"] = {getattr(torch, TORCH_DTYPES.get(precision, "float"))}
    return settings


def _translated(error: Exception) -> Unsupported | CompileFailed:
    text = f"Torch-TensorRT: {cause(error)}"
    if "require_full_compilation" in str(error) or "not supported" in str(error).lower():
        return Unsupported(text, reason="operator")
    return CompileFailed(text, reason="compile")
