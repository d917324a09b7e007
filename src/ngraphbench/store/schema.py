"""The JSON Schema of records, as shipped."""

from __future__ import annotations

import json
from importlib.resources import files

from ngraphbench.types import Json

__all__ = ["load_schema"]


def load_schema() -> Json:
    """Return the JSON Schema (2020-12) that every record in a journal meets."""
    text = files("ngraphbench.store").joinpath("schema.json").read_text(encoding="utf-8")
    schema: Json = json.loads(text)
    return schema
