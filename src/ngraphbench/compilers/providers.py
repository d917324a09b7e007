"""ONNX Runtime's execution providers. Those besides the CPU's: not yet run on hardware."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ngraphbench.types import Device, OptionValue

__all__ = ["CPU", "CUDA", "PROVIDERS", "provider_for", "provider_list"]

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
PROVIDERS = (
    CPU,
    CUDA,
    "TensorrtExecutionProvider",
    "OpenVINOExecutionProvider",
    "DnnlExecutionProvider",
    "XnnpackExecutionProvider",
    "ACLExecutionProvider",
    "ROCMExecutionProvider",
    "CoreMLExecutionProvider",
    "QNNExecutionProvider",
)


def provider_for(device: Device, options: Mapping[str, OptionValue]) -> str:
    """Return the execution provider: that of the device where the CPU's would be taken untold."""
    asked = str(options.get("provider", CPU))
    return CUDA if device.accelerator == "cuda" and asked == CPU else asked


def provider_list(options: Mapping[str, OptionValue]) -> list[Any]:
    """Return the providers of a session with their settings, the CPU's last for what is left."""
    provider = str(options.get("provider", CPU))
    if provider == CUDA:
        # Left alone it takes TF32.
        return [(provider, {"use_tf32": "1" if options.get("tf32", False) else "0"}), CPU]
    return [provider] if provider == CPU else [provider, CPU]
