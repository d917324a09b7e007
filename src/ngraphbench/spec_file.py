"""Reading an experiment file: YAML 1.2 to plain values that remember their lines."""

from __future__ import annotations

import datetime
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLWarning
from ruamel.yaml.scalarbool import ScalarBoolean

from ngraphbench.errors import SpecError
from ngraphbench.types import Json

__all__ = ["Document", "Keys", "dotted", "join_errors", "parse_value", "read_document"]

Keys: TypeAlias = tuple[str | int, ...]

NODES_MAX = 100_000
"""Aliases can blow up a small file; no experiment needs this many values."""


@dataclass(frozen=True, slots=True)
class Document:
    """Plain values of an experiment file, and where each of them stands.

    ``lines`` maps a path of keys to its line, counted from 1; ``overridden`` maps a path
    to the override text that set it.
    """

    data: Json
    file: str = ""
    lines: Mapping[Keys, int] = field(default_factory=dict)
    overridden: Mapping[Keys, str] = field(default_factory=dict)

    def written(self, keys: Keys) -> Keys:
        """Return the leading part of ``keys`` that the user wrote."""
        found: Keys = ()
        data: Any = self.data
        for key in keys:
            if isinstance(data, list):
                inside = isinstance(key, int) and key < len(data)
            else:
                inside = isinstance(data, dict) and key in data
            if not inside:
                break
            found, data = (*found, key), data[key]
        return found

    def error(self, message: str, keys: Keys, *, reason: str = "", hint: str = "") -> SpecError:
        """Return a SpecError that names where ``keys``, or what holds it, was given."""
        above = [keys[:length] for length in range(len(keys), -1, -1)]
        source, line = self.file, None
        override = next((self.overridden[at] for at in above if at in self.overridden), None)
        if override is not None:
            source = f"--set {override}"
        elif self.file:
            line = next((self.lines[at] for at in above if at in self.lines), None)
        return SpecError(
            message, file=source, line=line, key=dotted(keys), reason=reason, hint=hint
        )


def dotted(keys: Keys) -> str:
    """Return a path of keys as text.

    >>> dotted(("models", 1, "label"))
    'models[1].label'
    """
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def join_errors(errors: Sequence[SpecError]) -> SpecError:
    """Return one SpecError whose text has a line per error; it points at the first."""
    first, *rest = errors
    if not rest:
        return first
    lines = [f"{first.message} {first.hint}".strip(), *map(str, rest)]
    return SpecError(
        "\n".join(lines), file=first.file, line=first.line, key=first.key, reason=first.reason
    )


def read_document(path: Path, *, overrides: Sequence[str] = ()) -> Document:
    """Return the values of a YAML 1.2 file with ``key.sub=value`` overrides applied.

    Raises SpecError, with file and line, for a file that cannot be read or parsed, keys
    given twice, and values an experiment cannot hold.
    """
    file = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"The experiment file cannot be read: {_cause(error)}.",
            file=file,
            reason="unreadable",
            hint="Give the path of a YAML file in UTF-8.",
        ) from error
    loaded = _load(text, file=file)
    if not isinstance(loaded, CommentedMap):
        raise SpecError(
            f"An experiment is a mapping of keys to values, not {_kind(loaded)}.",
            file=file,
            line=1,
            reason="not-a-mapping",
            hint="Start with 'name:', 'models:' and 'compilers:'.",
        )
    lines: dict[Keys, int] = {}
    data = _plain(loaded, file=file, lines=lines)
    overridden: dict[Keys, str] = {}
    for override in overrides:
        keys = _override(data, override)
        overridden[keys] = override
    return Document(data=data, file=file, lines=lines, overridden=overridden)


def parse_value(text: str, *, source: str) -> Any:
    """Return the plain value of a YAML 1.2 text such as ``[1, 8]`` or ``off``.

    Raises SpecError naming ``source``.
    """
    return _plain(_load(text, file=source), file=source, lines={})


def _plain(loaded: Any, *, file: str, lines: dict[Keys, int]) -> Any:
    try:
        return _Plain(file, lines).convert(loaded, (), line=1)
    except RecursionError as error:
        raise SpecError(
            "The file is nested too deeply, or holds itself.", file=file, line=1, reason="yaml"
        ) from error


def _load(text: str, *, file: str) -> Any:
    try:
        # An anchor may be given anew, as YAML 1.2 has it; ruamel.yaml warns of it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", YAMLWarning)
            return YAML(typ="rt", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        duplicate = type(error).__name__ == "DuplicateKeyError"
        problem = (error.problem or error.context or "not YAML").strip().splitlines()[0]
        raise SpecError(
            f"Not valid YAML: {problem}.",
            file=file,
            line=mark.line + 1 if mark else None,
            reason="duplicate-key" if duplicate else "yaml",
            hint="Keep one of the two." if duplicate else "",
        ) from error
    # ruamel.yaml lets errors of many kinds escape for malformed text.
    except Exception as error:
        raise SpecError(f"Not valid YAML: {_cause(error)}.", file=file, reason="yaml") from error


class _Plain:
    """Turns ruamel's values into plain ones, noting the line of each."""

    def __init__(self, file: str, lines: dict[Keys, int]) -> None:
        self.file = file
        self.lines = lines

    def convert(self, value: Any, keys: Keys, *, line: int) -> Any:
        self.lines[keys] = line
        if len(self.lines) > NODES_MAX:
            raise self._error(f"The file holds more than {NODES_MAX} values.", (), line)
        if not isinstance(value, (CommentedMap, CommentedSeq)):
            return self._scalar(value, keys, line)
        if isinstance(value, CommentedMap):
            return self._mapping(value, keys, line)
        at = value.lc.data or {}
        return [
            self.convert(item, (*keys, i), line=at[i][0] + 1 if i in at else line)
            for i, item in enumerate(value)
        ]

    def _mapping(self, value: CommentedMap, keys: Keys, line: int) -> Json:
        at = value.lc.data or {}
        result: Json = {}
        for key, item in value.items():
            here = at[key][0] + 1 if key in at else line
            if not isinstance(key, str):
                raise self._error(f"Keys are text, not {key!r}: put it in quotes.", keys, here)
            result[str(key)] = self.convert(item, (*keys, str(key)), line=here)
        return result

    def _scalar(self, value: Any, keys: Keys, line: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, ScalarBoolean):
            return bool(value)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise self._error("Numbers must be finite.", keys, line)
            return float(value)
        if isinstance(value, str):
            return str(value)
        if isinstance(value, (datetime.date, datetime.datetime)):
            return value.isoformat()
        raise self._error("YAML tags are not used in an experiment file.", keys, line)

    def _error(self, message: str, keys: Keys, line: int) -> SpecError:
        return SpecError(message, file=self.file, line=line, key=dotted(keys), reason="yaml-value")


def _override(data: Json, text: str) -> Keys:
    """Set one ``key.sub=value`` in ``data`` and return its path."""
    source = f"--set {text}"
    name, equals, value_text = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise SpecError(
            f"{text!r} is not KEY=VALUE.",
            file="--set",
            reason="override",
            hint="Write for example --set measure.profile=quick.",
        )
    value = parse_value(value_text, source=source)
    keys: Keys = ()
    target: Any = data
    rest = name
    while True:
        key, rest = _next_key(target, rest, keys=keys, source=source)
        keys = (*keys, key)
        if not rest:
            target[key] = value
            return keys
        if isinstance(target, dict) and target.get(key) is None:
            target[key] = {}
        target = target[key]


def _next_key(target: Any, rest: str, *, keys: Keys, source: str) -> tuple[str | int, str]:
    """Return the next key of a dotted path, and what is left of the path after it."""
    head, _, tail = rest.partition(".")
    if isinstance(target, dict):
        # Names of inputs may hold dots: an existing key that fits wins over a split.
        for key in sorted(target, key=len, reverse=True):
            if rest == key or rest.startswith(f"{key}."):
                return key, rest[len(key) + 1 :]
        return head, tail
    if isinstance(target, list):
        if head.isdecimal() and int(head) < len(target):
            return int(head), tail
        raise SpecError(
            f"{dotted(keys)} is a list of {len(target)}; {head!r} is not a place in it.",
            file=source,
            key=dotted(keys),
            reason="override",
            hint="Places count from 0.",
        )
    raise SpecError(
        f"{dotted(keys)} is {_kind(target)}, which has no {head!r}.",
        file=source,
        key=dotted(keys),
        reason="override",
        hint=f"Set all of it: --set {dotted(keys)}=VALUE.",
    )


def _kind(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list) else repr(value)


def _cause(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).strip().splitlines()[0].rstrip(".")
