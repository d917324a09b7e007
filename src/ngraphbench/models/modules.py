"""Torch modules from a model reference: built the same way in the exporter and in a worker.

Torch, timm and torchvision are imported inside the functions.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ngraphbench.errors import (
    CompileFailed,
    RunFailed,
    SpecError,
    Unavailable,
    Unsupported,
    nearest,
)
from ngraphbench.models.blocks import build_block
from ngraphbench.models.configured import configured_module
from ngraphbench.models.saved import load_saved
from ngraphbench.types import Json
from ngraphbench.workload import Workload

__all__ = [
    "WEIGHTS_FILE",
    "ExampleInputs",
    "arrange_inputs",
    "build_module",
    "check_names",
    "create_module",
    "flatten_inputs",
    "flatten_outputs",
]

WEIGHTS_FILE = "weights.pt"

ExampleInputs = Callable[[int], Any]


def build_module(workload: Workload) -> Any:
    """Return the workload's torch module in eval mode, on the CPU, with its weights.

    Weights come from ``weights.pt`` in the workload's folder when it is there, else from
    the model's seed. Raises SpecError, Unavailable, Unsupported, or CompileFailed.
    """
    module, _ = create_module(workload.model)
    weights = workload.root / WEIGHTS_FILE
    if weights.exists():
        import torch

        try:
            state = torch.load(weights, map_location="cpu", weights_only=True)
            module.load_state_dict(state, strict=True)
        except Exception as error:
            raise CompileFailed(
                f"The weights in {weights.name} do not fit the module: {error}",
                reason="weights",
                hint="Export the model again; its source or its library has changed.",
            ) from error
    return module


def create_module(
    model: Json, *, pretrained: bool = False
) -> tuple[Any, Callable[[int], Any] | None]:
    """Return the module of a ``ModelRef`` JSON in eval mode, and its example inputs if it has any.

    Weights are random from ``model["seed"]`` unless ``pretrained``. The second value maps
    a batch size to the example inputs: a tuple, or a dict by argument name; None when the
    model does not say. Raises SpecError for names that do not exist, Unavailable for a
    missing library, CompileFailed when the user's factory raises.
    """
    import torch

    torch.manual_seed(int(model.get("seed", 0)))
    makers: dict[str, Callable[..., Any]] = {
        "timm": _timm_module,
        "torchvision": _torchvision_module,
        "file": _factory_result,
        "package": _factory_result,
        "transformers": configured_module,
        "saved": lambda model, pretrained: load_saved(Path(str(model["path"])), _resized),
        "block": build_block,
    }
    kind = model["kind"]
    if kind not in makers:
        raise Unsupported(f"A model of kind {kind!r} has no torch module.", reason="form")
    module, examples = _parted(makers[kind](model, pretrained=pretrained), model=model)
    return module.eval(), examples


def flatten_outputs(value: Any) -> list[tuple[str, Any]]:
    """Return the tensors in a module's result with stable names, in order of occurrence.

    One tensor is ``output``; members of sequences and mappings add ``.index`` or ``.key``
    (``output.0``, ``output.a.c``). None, numbers and strings are left out. Raises
    RunFailed when no tensor is left.
    """
    found = list(_tensors(value, "output"))
    if not found:
        raise RunFailed(
            f"The module returned no tensor, but {type(value).__name__}.",
            reason="no-tensor-output",
            hint="Return a tensor, or tensors in a tuple, list, dict or dataclass.",
        )
    return found


def flatten_inputs(module: Any, inputs: Any) -> list[tuple[str, Any]]:
    """Return (name, tensor) of example inputs, named after the arguments of ``forward``.

    ``inputs`` is one tensor, a sequence in order of arguments, or a mapping by argument
    name. Arguments without a name of their own are ``input_<index>``. Raises Unsupported
    for inputs that are not tensors.
    """
    if isinstance(inputs, Mapping):
        named = [(str(name), value) for name, value in inputs.items()]
    else:
        values = list(inputs) if isinstance(inputs, Sequence) else [inputs]
        names = _parameters(module)
        named = [
            (names[i] if i < len(names) else f"input_{i}", value) for i, value in enumerate(values)
        ]
    for name, value in named:
        if not _is_tensor(value):
            raise Unsupported(
                f"Input {name!r} is a {type(value).__name__}, not a tensor.",
                reason="input",
                hint="Wrap the module so that its forward takes tensors alone.",
            )
    return named


def arrange_inputs(
    module: Any, inputs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return ``(args, kwargs)`` with which to call ``module`` on inputs by name.

    Inputs that follow the order of ``forward``'s arguments are positional; after the
    first gap the rest go by name. Names that ``forward`` does not have make all positional.
    """
    names = _parameters(module)
    if not set(inputs) <= set(names):
        return tuple(inputs.values()), {}
    args: list[Any] = []
    for name in names:
        if name not in inputs:
            break
        args.append(inputs[name])
    rest = {name: inputs[name] for name in names[len(args) :] if name in inputs}
    return tuple(args), rest


def _tensors(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if _is_tensor(value):
        yield name, value
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from _tensors(member, f"{name}.{key}")
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for key in value._fields:
            yield from _tensors(getattr(value, key), f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            yield from _tensors(member, f"{name}.{index}")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name), f"{name}.{field.name}")


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _parameters(module: Any) -> list[str]:
    """Return the names of ``forward``'s arguments that may be given by position."""
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in _signature(module) if p.kind in by_position]


def check_names(module: Any, names: Sequence[str]) -> None:
    """Raise Unsupported (``input``) unless ``forward`` can be called with these names alone.

    A ``forward`` that takes any arguments, or whose arguments cannot be told, takes all.
    """
    parameters = _signature(module)
    loose = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if not parameters or any(p.kind in loose for p in parameters):
        return
    known = [p.name for p in parameters]
    needed = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    unknown = [name for name in names if name not in known]
    missing = [name for name in needed if name not in names]
    if unknown:
        found = f"the inputs {unknown} were given; forward takes {', '.join(known)}"
        hint = nearest(unknown[0], known, what="Use")
    elif missing:
        found = f"forward also needs {', '.join(missing)}"
        hint = f"Give --input {missing[0]}=batchx3x224x224:float32, with its own shape."
    else:
        return
    raise Unsupported(f"{type(module).__name__}: {found}.", reason="input", hint=hint)


def _signature(module: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return []


def _name(model: Json) -> str:
    """Return what follows the scheme: ``resnet18`` of ``timm:resnet18?num_classes=10``."""
    source = str(model["source"]).partition("?")[0]
    head, separator, tail = source.partition(":")
    return tail if separator and head == model["kind"] else source


def _unknown(name: str, *, library: str, known: list[str]) -> SpecError:
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    return SpecError(
        f"{library} has no model {name!r}.",
        reason="unknown-model",
        hint=f"Nearest: {', '.join(close)}." if close else f"See {library}'s list of models.",
    )


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(
            f"{name} cannot be imported: {error}.",
            reason="import",
            hint="pip install 'ngraphbench[torch]'",
        ) from error


def _timm_module(model: Json, *, pretrained: bool) -> Any:
    timm, name = _library("timm"), _name(model)
    if not timm.is_model(name):
        raise _unknown(name, library="timm", known=timm.list_models())
    return _called(
        lambda: timm.create_model(name, pretrained=pretrained, **model.get("args", {})), model
    )


def _torchvision_module(model: Json, *, pretrained: bool) -> Any:
    models, name = _library("torchvision").models, _name(model)
    if name not in models.list_models():
        raise _unknown(name, library="torchvision", known=models.list_models())
    arguments = dict(model.get("args", {}))
    if name in _INITIALISED_SLOWLY and not pretrained:
        arguments.setdefault("init_weights", True)
    # Detectors also load a pretrained backbone unless told not to.
    if not pretrained and _takes(models.get_model_builder(name), "weights_backbone"):
        arguments.setdefault("weights_backbone", None)
    weights = "DEFAULT" if pretrained else None
    return _called(lambda: models.get_model(name, weights=weights, **arguments), model)


# Without the argument these two warn that their default will change.
_INITIALISED_SLOWLY = ("googlenet", "inception_v3")


def _takes(function: Callable[..., Any], argument: str) -> bool:
    return argument in inspect.signature(function).parameters


def _factory_result(model: Json, *, pretrained: bool) -> Any:
    if pretrained:
        raise Unsupported(
            f"{model['source']} has no pretrained weights that could be asked for.",
            reason="weights",
            hint="Load them in the factory, or give a checkpoint.",
        )
    place, _, attribute = str(model["source"]).partition("?")[0].rpartition(":")
    path = str(model.get("path", ""))
    folder = str(Path(path).parent) if model["kind"] == "file" else path
    with _search_path(folder):
        found = _imported_file(Path(path)) if model["kind"] == "file" else _imported(place)
        factory = getattr(found, attribute, None)
        if not callable(factory):
            public = [name for name in vars(found) if not name.startswith("_")]
            close = get_close_matches(attribute, public, n=1)
            raise SpecError(
                f"{place} has no factory {attribute!r}.",
                reason="unknown-model",
                hint=f"Did you mean {close[0]!r}?" if close else "Name a function or a class.",
            )
        return _called(lambda: factory(**model.get("args", {})), model)


@contextmanager
def _search_path(folder: str) -> Iterator[None]:
    if not folder:
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _imported_file(path: Path) -> Any:
    if not path.is_file():
        raise SpecError(f"There is no model file {path}.", reason="no-file")
    digest = hashlib.sha256(str(path.resolve()).encode() + path.read_bytes()).hexdigest()[:16]
    name = f"ngraphbench_model_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SpecError(f"{path} is not a Python file.", reason="no-file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and Dynamo look the module up by name while it is being imported.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _import_failed(str(path), error) from error
    return module


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _import_failed(name, error) from error


def _import_failed(place: str, error: Exception) -> SpecError:
    return SpecError(
        f"The model's code in {place} cannot be imported: {type(error).__name__}: {error}.",
        reason="model-import",
        hint="Import it by hand in the same environment to see the whole error.",
    )


def _called(make: Callable[[], Any], model: Json) -> Any:
    try:
        return make()
    except Exception as error:
        raise CompileFailed(
            f"Building {model['source']} failed: {type(error).__name__}: {error}",
            reason="model",
            hint="Check that it runs by itself. Arguments go as MODEL?name=value&other=value.",
        ) from error


def _parted(result: Any, *, model: Json) -> tuple[Any, Callable[[int], Any] | None]:
    import torch

    module, examples = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(module, torch.nn.Module):
        raise SpecError(
            f"{model['source']} gave a {type(module).__name__}, not a torch.nn.Module.",
            reason="model-type",
            hint="Return a Module, or (Module, example_inputs).",
        )
    if examples is None or (callable(examples) and not _is_tensor(examples)):
        return module, examples
    return module, lambda batch: _resized(examples, batch)


def _resized(examples: Any, batch: int) -> Any:
    """Return the example inputs with their common leading dim cut or repeated to ``batch``.

    Inputs that have no common leading dim come back as they are.
    """
    import torch

    if _is_tensor(examples):
        examples = (examples,)
    values = list(examples.values()) if isinstance(examples, Mapping) else list(examples)
    sizes = {v.shape[0] if _is_tensor(v) and v.ndim else None for v in values}
    if len(sizes) != 1 or sizes <= {None, 0}:
        return examples
    rows = torch.arange(batch) % sizes.pop()
    resized = [value[rows] for value in values]
    if isinstance(examples, Mapping):
        return dict(zip(examples, resized, strict=True))
    return tuple(resized)
