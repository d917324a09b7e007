"""Folders of transformers: a config.json, and weights beside it. Nothing is imported here."""

from __future__ import annotations

import re
from pathlib import Path

from ngraphbench.errors import SpecError

__all__ = ["CONFIG", "find_configuration", "weight_files"]

CONFIG = "config.json"

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_TYPE = re.compile(r"[A-Za-z0-9][\w.-]*")


def find_configuration(path: Path, *, name: str, text: str) -> Path | None:
    """Return the folder or the .json file at ``path``; None where ``name`` is a model type.

    A folder with a config.json wins over a type of the same name. Raises SpecError for what
    is neither: a folder without config.json, or a name of a hub, as nothing is downloaded.
    """
    if (path / CONFIG).is_file() or (path.is_file() and path.suffix == ".json"):
        return path
    if _TYPE.fullmatch(name):
        return None
    if path.is_dir():
        raise SpecError(
            f"The folder {str(path)!r} of model {text!r} has no {CONFIG}.",
            reason="missing",
            hint="Name the folder that save_pretrained wrote.",
        )
    raise SpecError(
        f"There is no folder {str(path)!r} for model {text!r}, and nothing is downloaded.",
        reason="missing",
        hint="Download it yourself and name the folder (transformers:FOLDER), or name a model"
        " type for random weights (transformers:bert).",
    )


def weight_files(path: Path) -> list[Path]:
    """Return the files of weights in a folder, in one piece or several; none for a .json file."""
    if not path.is_dir():
        return []
    for name in _WEIGHTS:
        if (path / name).is_file():
            return [path / name]
        stem, _, suffix = name.rpartition(".")
        index = path / f"{name}.index.json"
        if index.is_file():
            return [index, *sorted(path.glob(f"{stem}-*-of-*.{suffix}"))]
    return []
