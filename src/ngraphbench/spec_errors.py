"""What pydantic found wrong, said with file, line, key and the nearest valid choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ngraphbench.errors import SpecError, nearest
from ngraphbench.spec_file import Document, Keys, join_errors

__all__ = ["spec_error"]

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def spec_error(
    error: ValidationError,
    document: Document,
    *,
    fields: Callable[[Keys], Sequence[str]],
    elsewhere: Mapping[str, str],
) -> SpecError:
    """Return one SpecError for all that pydantic found, in the order of the file.

    ``fields`` lists the valid keys of the mapping at a path; ``elsewhere`` says where a
    key belongs that users put in the wrong place.
    """
    found = [
        _translated(detail, document, fields=fields, elsewhere=elsewhere)
        for detail in error.errors(include_url=False)
    ]
    unique = list({str(item): item for item in found}.values())
    return join_errors(sorted(unique, key=lambda item: item.line or 0))


def _translated(
    detail: ErrorDetails,
    document: Document,
    *,
    fields: Callable[[Keys], Sequence[str]],
    elsewhere: Mapping[str, str],
) -> SpecError:
    kind, value = detail["type"], detail["input"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    keys = document.written(detail["loc"])
    if kind == "missing":
        keys = (*keys, detail["loc"][-1])
    hint = ""
    if kind == "extra_forbidden":
        name = str(keys[-1])
        message = f"There is no key {name!r} here"
        hint = _key_hint(name, fields(keys[:-1]), elsewhere if len(keys) == 1 else {})
    elif kind == "missing":
        message = f"The key {keys[-1]!r} is missing"
    elif kind == "choice":
        message = detail["msg"]
        hint = nearest(str(value), context["choices"])
    elif kind in _WANTED:
        message = f"takes {_WANTED[kind]}, not {_shown(value)}"
        if kind == "string_type" and isinstance(value, (bool, int, float)):
            hint = "Put it in quotes."
    elif kind == "value_error":
        message = str(context["error"])
    else:
        message = detail["msg"]
    message = message[:1].upper() + message[1:].rstrip(".") + "."
    return document.error(message, keys, reason=kind.replace("_", "-"), hint=hint)


def _key_hint(name: str, known: Sequence[str], elsewhere: Mapping[str, str]) -> str:
    if name in elsewhere:
        return f"Did you mean {elsewhere[name]!r}?"
    return nearest(name, known, what="The keys are")


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else repr(value)
