"""Whether records are as ``schema.json`` says: looked at when reading them has failed.

Looking at every record of a large run at every reading would take longer than the reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ngraphbench.errors import StoreError
from ngraphbench.store.journal import Journal
from ngraphbench.store.rundir import JOURNAL
from ngraphbench.store.schema import load_schema
from ngraphbench.store.snapshot import is_snapshot, read_snapshot
from ngraphbench.types import Json

__all__ = ["explained", "fault_of", "problem_of"]


@contextmanager
def explained(places: Iterable[Path]) -> Iterator[None]:
    """Turn what is raised within into a StoreError where records at ``places`` are to blame.

    ``places`` are run directories and snapshots; anything else is passed over.
    """
    try:
        yield
    except Exception as error:
        for place in places:
            fault = None if isinstance(error, StoreError) else fault_of(place)
            if fault is not None:
                raise fault from error
        raise


def fault_of(place: Path) -> StoreError | None:
    """Return what is wrong with the first broken record of a run or snapshot; None where none is.

    It names file, line and key.
    """
    try:
        if is_snapshot(place):
            found = read_snapshot(place)
            numbered: Iterable[tuple[int, Json]] = enumerate([*found.sessions, *found.records], 1)
            file, where = place, "record "
        else:
            file, where = place / JOURNAL, ""
            numbered = Journal(file).numbered()
        for number, record in numbered:
            problem = problem_of(record)
            if problem:
                return StoreError(
                    f"{file}:{where}{number}: {problem}.",
                    reason="corrupt",
                    hint="Something else wrote to it, or another version; remove it to go on.",
                )
    except StoreError as error:
        # A file may be anything, and no snapshot; a journal tells of itself in its own words.
        return None if is_snapshot(place) else error
    return None


def problem_of(record: Json) -> str:
    """Return what is wrong with a record, beginning with its key; "" where nothing is.

    Keys that the schema does not know are none, as another version may have written them, nor is
    how an id is written.
    """
    schema = load_schema()
    return _problem(record, schema, schema["$defs"], "")


def _problem(value: Any, schema: Json, defs: Json, key: str) -> str:
    if "$ref" in schema:
        return _problem(value, defs[schema["$ref"].rpartition("/")[2]], defs, key)
    if "anyOf" in schema:
        problems = [_problem(value, one, defs, key) for one in schema["anyOf"]]
        # The branch that fits best goes deepest.
        return "" if "" in problems else max(problems, key=lambda text: len(text.split(" ")[0]))
    if "if" in schema:
        branch = "else" if _problem(value, schema["if"], defs, key) else "then"
        if found := _problem(value, schema.get(branch, {}), defs, key):
            return found
    if "type" in schema and not _is_of(value, schema["type"]):
        kinds = schema["type"] if isinstance(schema["type"], str) else " or ".join(schema["type"])
        return f"{key or 'the record'} is {_shown(value)}, not {kinds}"
    allowed = [schema["const"]] if "const" in schema else schema.get("enum", [value])
    if value not in allowed:
        return f"{key} is {_shown(value)}, not {' or '.join(map(str, allowed))}"
    if "minimum" in schema and _is_of(value, "number") and value < schema["minimum"]:
        return f"{key} is {_shown(value)}, less than {schema['minimum']}"
    return _inner_problem(value, schema, defs, key)


def _inner_problem(value: Any, schema: Json, defs: Json, key: str) -> str:
    inner: list[tuple[str, Any, Json]] = []
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                return f"{key or 'the record'} lacks {name}"
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, item in value.items():
            of = known.get(name, others if isinstance(others, dict) else {})
            inner.append((f"{key}.{name}" if key else name, item, of))
    elif isinstance(value, list) and "items" in schema:
        inner = [(f"{key}[{i}]", item, schema["items"]) for i, item in enumerate(value)]
    problems = (_problem(item, of, defs, name) for name, item, of in inner)
    return next(filter(None, problems), "")


_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}


def _is_of(value: Any, kinds: str | Sequence[str]) -> bool:
    wanted = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, bool):
        return "boolean" in wanted
    if isinstance(value, float) and value.is_integer() and "integer" in wanted:
        return True
    return any(isinstance(value, _TYPES[kind]) for kind in wanted)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
