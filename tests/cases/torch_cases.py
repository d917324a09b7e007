"""Small torch modules, one per kind of fault; each docstring says the right behaviour.

``tests/cases/torch_cases.py:FACTORY`` is a model for the command line. Every factory returns
the module and a function from batch size to example inputs.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MODULES"]

Examples = Callable[[int], tuple[Tensor, ...]]


class FunctionalDropout(nn.Module):
    """Dropout that eval() does not stop: found by running the reference twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(self.layer(x), 0.5)


class LeftInTrainMode(nn.Module):
    """Fails at batch 1 and changes its buffers in train mode: call eval()."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class InPlaceInput(nn.Module):
    """Changes its input: fresh copies for the check, no drift to Inf in the timed loop."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2).relu()


class DictOut(nn.Module):
    """Nested outputs with None and a number: flattened under stable names."""

    def forward(self, x: Tensor) -> dict[str, Any]:
        return {"b": x, "a": {"c": x + 1, "none": None}, "l": [x * 2, 3]}


class NoTensorOut(nn.Module):
    """Returns no tensor: one clear message."""

    def forward(self, x: Tensor) -> float:
        return float(x.sum())


class DataDependent(nn.Module):
    """Branches on values: eager and torch.compile go on, export is reported as unsupported."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class HardBatch(nn.Module):
    """Folds any batch into one without an error: warn that the output has no batch axis."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(1, -1, 8).mean(1)


class BatchInPython(nn.Module):
    """Is traced anew for each batch size: an export must not keep the batch of its example."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x[i] * i for i in range(x.shape[0])])


class AliasOut(nn.Module):
    """Outputs are views of the input, one of them not contiguous: copy them at once."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x, x[:, :2], x.t()


class HangsOnLarge(nn.Module):
    """Never ends above batch 2: killed at its deadline, the next cell goes on."""

    def forward(self, x: Tensor) -> Tensor:
        while x.shape[0] > 2:
            pass
        return x


class Exits(nn.Module):
    """Ends the process: status crashed, exit code 3."""

    def forward(self, x: Tensor) -> Tensor:
        os._exit(3)
        return x


class Segfaults(nn.Module):
    """Reads address 0: status crashed, SIGSEGV named."""

    def forward(self, x: Tensor) -> Tensor:
        ctypes.string_at(0)
        return x


class PrintsALot(nn.Module):
    """Writes to stdout: the protocol does not travel there."""

    def forward(self, x: Tensor) -> Tensor:
        print("y" * 200_000)
        return x


class ChangesThreads(nn.Module):
    """Sets the thread count of its process: other cases keep theirs."""

    def forward(self, x: Tensor) -> Tensor:
        torch.set_num_threads(1)
        return x


class AllocatesWithoutEnd(nn.Module):
    """Holds more memory at each step: stopped at the memory limit, status oom."""

    def forward(self, x: Tensor) -> Tensor:
        held = []
        while True:
            held.append(torch.ones(16 * 1024**2))
        return x


def _examples(batch: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, 8),)


def _factory(module: type[nn.Module]) -> Callable[[], tuple[nn.Module, Examples]]:
    return lambda: (module(), _examples)


functional_dropout = _factory(FunctionalDropout)
left_in_train_mode = _factory(LeftInTrainMode)
in_place_input = _factory(InPlaceInput)
dict_out = _factory(DictOut)
no_tensor_out = _factory(NoTensorOut)
data_dependent = _factory(DataDependent)
hard_batch = _factory(HardBatch)
batch_in_python = _factory(BatchInPython)
alias_out = _factory(AliasOut)
hangs_on_large = _factory(HangsOnLarge)
exits = _factory(Exits)
segfaults = _factory(Segfaults)
prints_a_lot = _factory(PrintsALot)
changes_threads = _factory(ChangesThreads)
allocates_without_end = _factory(AllocatesWithoutEnd)

MODULES = (
    *("functional_dropout", "left_in_train_mode", "in_place_input", "dict_out", "no_tensor_out"),
    *("data_dependent", "hard_batch", "batch_in_python", "alias_out", "hangs_on_large"),
    *("exits", "segfaults", "prints_a_lot", "changes_threads", "allocates_without_end"),
)
