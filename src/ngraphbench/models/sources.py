"""Where a model comes from: the user's text turned into a ``ModelRef``.

Forms: ``file.onnx``, ``file.pt2`` (torch.export), ``file.torchscript`` (or .pt, .ts),
``timm:NAME``, ``torchvision:NAME``, ``transformers:TYPE`` or a folder of it, ``block:FAMILY``,
``file.py:factory`` and ``package.module:factory``, and what a compiler made elsewhere
(``file.vmfb``...); those that are no files may carry arguments,
``?depth=4&width=64``.
Nothing here imports torch or runs the user's code.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ngraphbench.case import ModelRef, digest
from ngraphbench.errors import SpecError, Unsupported
from ngraphbench.models import blocks
from ngraphbench.models.graphinputs import plan_graph_inputs
from ngraphbench.models.labelled import check_labelled
from ngraphbench.models.localfile import (
    absolute_path,
    digest_file,
    existing_file,
    readable,
    similar_files,
)
from ngraphbench.models.localfolder import CONFIG, find_configuration, weight_files
from ngraphbench.models.metrics import TOP1
from ngraphbench.models.onnxfile import open_onnx
from ngraphbench.models.onnxgraph import graph_inputs
from ngraphbench.models.prebuilt import prebuilt_identity, prebuilt_kind
from ngraphbench.models.saved import SAVED_SUFFIXES
from ngraphbench.models.values import array_names
from ngraphbench.plugin import package_version
from ngraphbench.types import Json
from ngraphbench.workload import ARTEFACT

__all__ = ["FORMS", "check_inputs", "digest_file", "input_names", "resolve_model"]

FORMS = (
    "file.onnx, file.pt2, file.torchscript, timm:NAME, torchvision:NAME,"
    " transformers:TYPE_OR_FOLDER, block:FAMILY, file.py:factory, package.module:factory"
)

_LIBRARIES = ("timm", "torchvision")
_CONFIGURED = "transformers"
_NAMED = (*_LIBRARIES, _CONFIGURED, "block")
_FILES = {"onnx": "an ONNX file", "saved": "a saved module"}
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@readable
def resolve_model(
    text: str,
    *,
    base: Path,
    label: str = "",
    seed: int = 0,
    args: Mapping[str, Any] | None = None,
    checkpoint: str = "",
    pretrained: bool = False,
    inputs: Mapping[str, Any] | None = None,
    inputs_file: str = "",
    eval_file: str = "",
    metric: str = "",
    calib_file: str = "",
) -> ModelRef:
    """Return the model named by ``text``, with a digest of what makes it that model.

    Relative paths start at ``base``. ``args`` add to the arguments in the text and win
    over them; ``inputs`` are overrides by input name: {shape?, dtype?, generator?}.
    ``eval_file`` is a labelled set, ``metric`` what is computed on it; ``calib_file`` holds
    the items by which int8 is calibrated.

    Raises SpecError for an unknown form, a missing or broken file, external data that is
    missing or outside the model's folder, and wishes that the form cannot grant.
    """
    kind, name, path, factory = _parsed(text, base=base)
    given = {**_query(name, text=text), **dict(args or {})}
    name = name.partition("?")[0]
    if kind == "block":
        given = blocks.block_sizes(name, given)
    _check_wishes(kind, text, pretrained=pretrained, checkpoint=checkpoint, args=given)
    weights = _weights(kind, path, pretrained=pretrained, checkpoint=checkpoint)
    identity: Json = {"kind": kind, "weights": weights}
    if kind.startswith(ARTEFACT) and path is not None:
        if given.get("reference"):
            given["reference"] = str(absolute_path(str(given["reference"]), base=base))
        identity |= prebuilt_identity(path, given, base=base)
    elif kind in _FILES and path is not None:
        identity |= _file_identity(kind, path)
    else:
        identity |= {"args": given, "seed": seed}
        identity |= _code_identity(kind, name=name, path=path, factory=factory, text=text)
    if kind == "onnx" and path is not None:
        check_inputs(path, inputs or {}, inputs_file=inputs_file, base=base)
    if checkpoint:
        checkpoint = str(existing_file(checkpoint, base=base, what="checkpoint"))
        identity["checkpoint"] = digest_file(Path(checkpoint))
    if inputs_file:
        inputs_file = str(existing_file(inputs_file, base=base, what="inputs file"))
        identity["inputs_file"] = digest_file(Path(inputs_file))
    return ModelRef(
        source=text,
        label=label or _default_label(kind, text, path=path),
        kind=kind,
        content=digest(identity),
        path=str(path) if path else "",
        args=given,
        seed=seed,
        weights=weights,
        checkpoint=checkpoint,
        inputs={key: dict(value) for key, value in (inputs or {}).items()},
        inputs_file=inputs_file,
        evaluation=_evaluation(eval_file, metric, base=base, model=path, kind=kind),
        calibration=_calibration(calib_file, base=base),
    )


def _calibration(text: str, *, base: Path) -> Json:
    if not text:
        return {}
    file = existing_file(text, base=base, what="calibration set")
    array_names(file)
    return {"file": str(file), "content": digest_file(file)}


def _evaluation(eval_file: str, metric: str, *, base: Path, model: Path | None, kind: str) -> Json:
    """Return the labelled set, its metric, where code is looked for, and a digest of both."""
    if not eval_file:
        if metric:
            raise SpecError(
                f"The metric {metric} was asked for, but no labelled set was given.",
                key="metric",
                reason="metric",
                hint="Give one with --eval FILE.npz.",
            )
        return {}
    file, metric = existing_file(eval_file, base=base, what="labelled set"), metric or TOP1
    own = graph_inputs(open_onnx(model).model) if kind == "onnx" and model else None
    check_labelled(file, metric, inputs=None if own is None else [value.name for value in own])
    place = metric.rpartition(":")[0]
    code = ""
    if place.endswith(".py"):
        code = digest_file(existing_file(place, base=base, what="file of the metric"))
    elif place:
        code = digest_file(_module_file(place, base=base.absolute(), text=f"metric {metric!r}"))
    return {
        "file": str(file),
        "metric": metric,
        "folder": str(base.absolute()),
        "content": digest([digest_file(file), code]),
    }


def input_names(text: str, *, base: Path) -> list[str] | None:
    """Return the inputs of an ONNX file; None for other models, and for what is not ONNX."""
    if not text.lower().endswith(".onnx"):
        return None
    try:
        return [
            value.name for value in graph_inputs(open_onnx(absolute_path(text, base=base)).model)
        ]
    except SpecError:
        return None


def check_inputs(
    path: Path, overrides: Mapping[str, Any], *, inputs_file: str = "", base: Path = Path()
) -> None:
    """Raise SpecError for inputs of the user that do not fit the ONNX file at ``path``."""
    if not overrides and not inputs_file:
        return
    model = open_onnx(path).model
    try:
        plan = plan_graph_inputs(model, overrides)
    except Unsupported as error:
        # Other refusals are about the model: they become records, and other models go on.
        if error.reason == "input":
            message = f"{path.name}: {error.message}"
            raise SpecError(message, reason="input", hint=error.hint) from error
        return
    if inputs_file:
        file = existing_file(inputs_file, base=base, what="inputs file")
        names = array_names(file)
        missing = [spec.name for spec in plan.specs if spec.name not in names]
        if missing:
            raise SpecError(
                f"{file.name} has no array for input {missing[0]!r}; it has: {', '.join(names)}.",
                reason="inputs-file",
                hint="Save it with numpy.savez(file, **{input_name: array}).",
            )


def _parsed(text: str, *, base: Path) -> tuple[str, str, Path | None, str]:
    """Return kind, name with its query, absolute path or None, and factory."""
    head, mark, _ = text.partition("?")
    artefact = prebuilt_kind(head) if mark else ""
    prefix, colon, rest = text.partition(":")
    if prefix in _NAMED and colon:
        name = rest.partition("?")[0]
        if not name:
            raise SpecError(
                f"{text!r} names no model.", reason="model", hint=f"Write {prefix}:NAME."
            )
        if prefix != _CONFIGURED:
            return prefix, rest, None, ""
        place = find_configuration(absolute_path(name, base=base), name=name, text=text)
        return prefix, rest, place, ""
    if text.lower().endswith(".onnx") and not artefact:
        return "onnx", "", absolute_path(text, base=base), ""
    if text.lower().endswith(SAVED_SUFFIXES):
        return "saved", "", existing_file(text, base=base, what="model file"), ""
    if artefact := artefact or prebuilt_kind(head):
        return artefact, text, existing_file(head, base=base, what="model file"), ""
    before, colon, factory = head.rpartition(":")
    if before.endswith(".py") and factory.isidentifier():
        path = absolute_path(before, base=base)
        if not path.is_file():
            raise SpecError(
                f"There is no file {str(path)!r} for model {text!r}.",
                reason="missing",
                hint=similar_files(path),
            )
        return "file", text, path, factory
    if colon and _DOTTED.fullmatch(before) and _DOTTED.fullmatch(factory):
        close = get_close_matches(before, _NAMED, n=1, cutoff=0.75)
        if close:
            raise _unknown(text, f"Did you mean {close[0]}:{factory}?")
        return "package", text, absolute_path("", base=base), factory
    raise _unknown(text, _form_hint(text, base=base))


def _unknown(text: str, hint: str) -> SpecError:
    return SpecError(
        f"{text!r} is not a model: the forms are {FORMS}.", reason="model-form", hint=hint
    )


def _form_hint(text: str, *, base: Path) -> str:
    if text.endswith(".py"):
        return f"Name the function that builds the module: {text}:factory."
    if (base / text).is_file():
        return "A model file must end in .onnx; other formats must be converted first."
    if re.fullmatch(r"\w+", text):
        return f"Did you mean timm:{text} or torchvision:{text}?"
    return ""


def _query(name: str, *, text: str) -> Json:
    """Return the arguments after ``?``: JSON values where they parse, else strings."""
    _, mark, query = name.partition("?")
    result: Json = {}
    for item in query.split("&") if mark else ():
        key, equals, value = item.partition("=")
        if not key.isidentifier() or not equals:
            raise SpecError(
                f"{text!r}: the argument {item!r} is not of the form key=value.",
                reason="model-args",
                hint="Write for example timm:vit_tiny_patch16_224?img_size=64&num_classes=10.",
            )
        result[key] = _value(unquote(value))
    return result


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"True": True, "False": False, "None": None}.get(text, text)


def _check_wishes(
    kind: str, text: str, *, pretrained: bool, checkpoint: str, args: Mapping[str, Any]
) -> None:
    own = kind in _FILES or kind.startswith(ARTEFACT)
    if own and (pretrained or checkpoint or (args and kind in _FILES)):
        raise SpecError(
            f"{text!r} is {_FILES.get(kind, 'compiled')}: it has its own weights, and takes no"
            " arguments.",
            reason="weights",
            hint="Leave out pretrained, checkpoint and args.",
        )
    if pretrained and checkpoint:
        raise SpecError(
            f"{text!r}: pretrained weights and a checkpoint were both asked for.",
            reason="weights",
            hint="Choose one.",
        )
    if pretrained and kind not in _LIBRARIES:
        raise SpecError(
            f"{text!r}: only timm and torchvision models have pretrained weights.",
            reason="weights",
            hint="Load the weights in the factory, or give a checkpoint.",
        )


def _weights(kind: str, path: Path | None, *, pretrained: bool, checkpoint: str) -> str:
    if kind in _FILES or kind.startswith(ARTEFACT):
        return "file"
    if checkpoint or (kind == _CONFIGURED and path is not None and weight_files(path)):
        return "checkpoint"
    return "pretrained" if pretrained else "random"


def _file_identity(kind: str, path: Path) -> Json:
    if kind == "saved":
        return {"bytes": digest_file(path), "torch": package_version("torch")}
    file = open_onnx(path)
    data = {location: digest_file(where) for location, where in sorted(file.data.items())}
    return {"bytes": digest_file(path), "data": data}


def _code_identity(kind: str, *, name: str, path: Path | None, factory: str, text: str) -> Json:
    identity: Json = {"torch": package_version("torch")}
    if kind in _LIBRARIES:
        return identity | {"name": name, kind: package_version(kind)}
    if kind == "block":
        identity |= {"name": name, "timm": package_version("timm")}
        return identity | {"source": digest_file(Path(blocks.__file__))}
    if kind == _CONFIGURED:
        return identity | {kind: package_version(kind)} | _configuration(path, name)
    identity["factory"] = factory
    if kind == "file":
        assert path is not None
        return identity | {"source": digest_file(path)}
    assert path is not None
    module = name.rpartition(":")[0]
    distribution = _distribution(module.partition(".")[0])
    identity |= {"module": module, "version": package_version(distribution) if distribution else ""}
    return identity | {"source": _source_digest(module, base=path, text=text)}


def _configuration(path: Path | None, name: str) -> Json:
    if path is None:
        return {"name": name}
    config = path / CONFIG if path.is_dir() else path
    weights = {file.name: digest_file(file) for file in weight_files(path)}
    return {"config": digest_file(config), "weight_files": weights}


def _source_digest(module: str, *, base: Path, text: str) -> str:
    return digest_file(_module_file(module, base=base, text=f"model {text!r}"))


def _module_file(module: str, *, base: Path, text: str) -> Path:
    """Return the source file of ``module`` without importing it or its parents."""
    import sys

    search: list[str] | None = [str(base), *sys.path]
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        found = PathFinder.find_spec(name, search)
        if found is None:
            raise SpecError(
                f"There is no Python module {name!r} for {text}.",
                reason="missing",
                hint=f"It was looked for in {str(base)!r} and among the installed packages.",
            )
        search = list(found.submodule_search_locations or [])
        origin = found.origin
    if origin is None or not Path(origin).is_file():
        raise SpecError(
            f"{module!r} in {text} is a folder without code.",
            reason="model-form",
            hint="Name the module that holds the function.",
        )
    return Path(origin)


def _distribution(package: str) -> str:
    return next(iter(importlib.metadata.packages_distributions().get(package, [])), "")


def _default_label(kind: str, text: str, *, path: Path | None) -> str:
    if kind in _FILES and path is not None:
        return path.stem
    if kind.startswith(ARTEFACT) and path is not None:
        return path.name
    head, mark, query = text.partition("?")
    name = head.rpartition(":")[2]
    if kind == _CONFIGURED and path is not None:
        name = path.name if path.is_dir() else path.parent.name
    return name + mark + query
