"""Modules that transformers makes of a configuration, with weights where a folder holds them.

Part of the kit, like ``modules``. Nothing is ever downloaded: what is not a folder here is a
model type, whose configuration has the defaults of its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ngraphbench.errors import CompileFailed, SpecError, Unavailable, first_line
from ngraphbench.types import Json

__all__ = ["configured_module"]


def configured_module(model: Json, *, pretrained: bool) -> Any:
    """Return the module of a ``transformers`` ModelRef, in float32 and without caches.

    ``pretrained`` loads the weights of its folder. The class is the first of the
    configuration's ``architectures``, else the type's base model. Raises SpecError for an
    unknown type, class or argument, Unavailable without transformers, else CompileFailed.
    """
    transformers = _library()
    try:
        return _built(transformers, model, pretrained=pretrained)
    except SpecError:
        raise
    except Exception as error:
        raise CompileFailed(
            f"Building {model['source']} failed: {type(error).__name__}: {first_line(error)}",
            reason="model",
            hint="Check that it runs by itself. Arguments go as MODEL?name=value&other=value.",
        ) from error


def _built(transformers: Any, model: Json, *, pretrained: bool) -> Any:
    place = str(model.get("path", ""))
    config = _config(transformers, model, place=place)
    _switch_caches_off(config)
    kind = _model_class(transformers, config, model)
    if pretrained:
        return kind.from_pretrained(
            str(_folder(place)),
            config=config,
            local_files_only=True,
            weights_only=True,
            trust_remote_code=False,
            dtype="float32",
        )
    made = kind(config) if hasattr(kind, "config_class") else kind.from_config(config)
    return made.float()


def _library() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise Unavailable(
            f"transformers cannot be imported: {first_line(error)}.",
            reason="import",
            hint="pip install 'ngraphbench[transformers]'",
        ) from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _folder(place: str) -> Path:
    path = Path(place)
    return path if path.is_dir() else path.parent


def _config(transformers: Any, model: Json, *, place: str) -> Any:
    given = dict(model.get("args") or {})
    if isinstance(given.get("architectures"), str):
        given["architectures"] = [given["architectures"]]
    if place:
        load = transformers.AutoConfig.from_pretrained
        plain = load(place, local_files_only=True, trust_remote_code=False)
        _check_arguments(plain, given, model)
        return load(place, local_files_only=True, trust_remote_code=False, **given)
    name = str(model["source"]).partition("?")[0].partition(":")[2]
    known = sorted(transformers.CONFIG_MAPPING.keys())
    if name not in known:
        close = get_close_matches(name, known, n=3, cutoff=0.4)
        raise SpecError(
            f"{name!r} is neither a folder with a config.json nor a model type of transformers;"
            " nothing is downloaded.",
            reason="unknown-model",
            hint=f"Nearest types: {', '.join(close)}. " * bool(close)
            + "For a model of a hub, download it and name its folder: transformers:FOLDER.",
        )
    make = transformers.AutoConfig.for_model
    _check_arguments(make(name), given, model)
    return make(name, **given)


def _check_arguments(config: Any, given: Mapping[str, Any], model: Json) -> None:
    # A configuration takes any argument and forgets those that its model does not read.
    for name in given:
        if not hasattr(config, name):
            close = get_close_matches(name, list(config.to_dict()), n=1)
            raise SpecError(
                f"{model['source']!r}: {type(config).__name__} has no {name!r}.",
                reason="model-args",
                hint=f"Did you mean {close[0]!r}?" if close else "",
            )


def _switch_caches_off(config: Any) -> None:
    """Make runs give no keys and values for later runs: each run is a whole one."""
    parts = [getattr(config, name, None) for name in getattr(config, "sub_configs", {})]
    for part in (config, *parts):
        if part is not None:
            part.use_cache = False


def _model_class(transformers: Any, config: Any, model: Json) -> Any:
    names = getattr(config, "architectures", None) or []
    if not names:
        return transformers.AutoModel
    found = getattr(transformers, str(names[0]), None)
    if found is None or not hasattr(found, "config_class"):
        raise SpecError(
            f"{model['source']!r}: transformers has no model class {names[0]!r}.",
            reason="unknown-model",
            hint="Name one with ?architectures=CLASS, or upgrade transformers.",
        )
    return found
