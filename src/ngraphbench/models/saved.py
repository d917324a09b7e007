"""Modules from files that hold their code: ``torch.export`` programs and TorchScript.

Part of the kit, like ``modules``: a compiler's worker reads the file again.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ngraphbench.errors import CompileFailed, Unsupported, first_line

__all__ = ["SAVED_SUFFIXES", "load_saved"]

SAVED_SUFFIXES = (".pt2", ".pt", ".ts", ".torchscript")

Resize = Callable[[Any, int], Any]


def load_saved(path: Path, resize: Resize) -> tuple[Any, Callable[[int], Any] | None]:
    """Return the module in the file and its example inputs by batch size, where it has any.

    ``resize`` cuts or repeats examples to a batch size; programs that fix their batch give
    their own whatever is asked for. Raises CompileFailed for a file that holds neither.
    """
    try:
        if path.suffix == ".pt2":
            return _program(path, resize)
        return _script(path), None
    except (CompileFailed, Unsupported):
        raise
    except Exception as error:
        kind = "a torch.export program" if path.suffix == ".pt2" else "TorchScript"
        raise CompileFailed(
            f"{path.name} cannot be read as {kind}: {type(error).__name__}: {first_line(error)}",
            reason="model",
            hint="A file of weights alone is a checkpoint of a model, not a model.",
        ) from error


def _program(path: Path, resize: Resize) -> tuple[Any, Callable[[int], Any]]:
    import torch

    with _data_only():
        program = torch.export.load(str(path))
    args, kwargs = program.example_inputs or ((), {})
    names = list(program.graph_signature.user_inputs)
    if kwargs or len(args) != len(names):
        raise Unsupported(
            f"{path.name} takes nested or keyword inputs, which cannot be fed.",
            reason="input",
            hint="Export it with tensors as positional inputs.",
        )
    examples = dict(zip(names, args, strict=True))
    shapes = {
        node.name: node.meta["val"].shape
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in names
    }
    fixed = any(not len(shape) or isinstance(shape[0], int) for shape in shapes.values())
    module = _wrapped(program.module(), names)
    return module, lambda batch: examples if fixed else resize(examples, batch)


@contextmanager
def _data_only() -> Iterator[None]:
    # torch.export.load falls back to a full unpickling of the example inputs, which runs code.
    forced, free = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    before = {name: os.environ.pop(name, None) for name in (forced, free)}
    os.environ[forced] = "1"
    try:
        yield
    finally:
        del os.environ[forced]
        os.environ.update({name: value for name, value in before.items() if value is not None})


def _script(path: Path) -> Any:
    import torch

    module = torch.jit.load(str(path), map_location="cpu").eval()
    names = [argument.name for argument in module.forward.schema.arguments[1:]]
    return _wrapped(module, names)


def _wrapped(inner: Any, names: Sequence[str]) -> Any:
    """Return a module that calls ``inner`` and says which inputs it takes."""
    import torch

    class Saved(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *inputs: Any) -> Any:
            return self.inner(*inputs)

        def train(self, mode: bool = True) -> Any:
            # Exported programs are what they were exported as, and raise when told otherwise.
            return self

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in ("self", *names)]
    forward: Any = Saved.forward
    forward.__signature__ = inspect.Signature(parameters)
    return Saved()
