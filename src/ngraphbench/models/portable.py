"""Torch modules as portable programs: ``torch.export`` files with weights and fixed shapes.

A compiler that takes torch graphs needs no timm or torchvision then, nor the user's code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ngraphbench.models.modules import arrange_inputs, flatten_outputs

__all__ = ["export_program", "flat_module", "run_program"]


def flat_module(module: Any, tensors: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """Return a module that takes and returns plain tensors, and its outputs' names."""
    import torch

    names = list(tensors)
    positional, by_name = arrange_inputs(module, {name: name for name in names})

    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *values: Any) -> Any:
            given = dict(zip(names, values, strict=True))
            result = self.module(
                *(given[name] for name in positional),
                **{key: given[name] for key, name in by_name.items()},
            )
            return tuple(tensor for _, tensor in flatten_outputs(result))

    args, kwargs = arrange_inputs(module, {name: value.clone() for name, value in tensors.items()})
    with torch.no_grad():
        result = module(*args, **kwargs)
    return Flat().eval(), [name for name, _ in flatten_outputs(result)]


def export_program(module: Any, tensors: Mapping[str, Any], *, path: Path) -> None:
    """Write ``module`` to ``path`` as a program of the shapes in ``tensors``, whole or not at all.

    Inputs are positional in the order of ``tensors``; outputs are one tuple in the order of
    ``flatten_outputs``. Raises whatever ``torch.export`` raises.
    """
    import torch

    flat, _ = flat_module(module, tensors)
    program = torch.export.export(flat, tuple(value.clone() for value in tensors.values()))
    # Torch wants the ending.
    partial = path.with_name(f"part-{path.name}")
    torch.export.save(program, str(partial))
    partial.replace(path)


def run_program(path: Path, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Return the outputs of the program in ``path`` as it is read back from there."""
    import torch

    module = torch.export.load(str(path)).module()
    with torch.no_grad():
        return tuple(module(*(tensor.clone() for tensor in tensors)))
