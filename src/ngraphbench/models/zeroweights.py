"""Random weights that a library starts as zeros, where zeros would take work away."""

from __future__ import annotations

from typing import Any

__all__ = ["fill_zero_weights"]

MATRIX_STD = 0.02

BRANCH_SCALE = 0.2
"""Small enough that dozens of residual blocks, which would double the variance, stay finite."""


def fill_zero_weights(module: Any, *, seed: int) -> tuple[str, ...]:
    """Fill matrices and scales of normalisations that start as zeros; return notes of them.

    An untrained head of zeros would make every output constant, and every check pass. A
    residual branch that ends in a scale of zeros does nothing: a compiler that folds constants
    may rightly leave the whole branch out, and would be timed on a fraction of the network.
    """
    import torch

    zeros = [(name, p) for name, p in module.named_parameters() if _counts(name, p)]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in zeros:
            if parameter.ndim < 2:
                parameter.fill_(BRANCH_SCALE)
            else:
                parameter.normal_(std=MATRIX_STD, generator=generator)
    return tuple(f"zero-weights-filled: {name} starts as zeros" for name, _ in zeros[:3])


def _counts(name: str, parameter: Any) -> bool:
    # A bias of zeros adds nothing, but takes nothing away either.
    scale = parameter.ndim < 2 and name.endswith(("weight", "gamma", "scale", "gain"))
    return bool((scale or parameter.ndim in (2, 4)) and not parameter.any())
