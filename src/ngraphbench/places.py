"""The user's folders, also where a container runs as somebody whom no database knows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["expanded", "home_folder", "own_folder", "user_folder"]

_BELOW_HOME = {
    "XDG_STATE_HOME": ".local/state",
    "XDG_DATA_HOME": ".local/share",
    "XDG_CONFIG_HOME": ".config",
}


def home_folder(variables: Mapping[str, str] | None = None) -> Path | None:
    """Return the user's home, of HOME or of the user database; None where neither has one.

    ``variables`` is ``os.environ`` unless given.
    """
    found = (os.environ if variables is None else variables).get("HOME")
    # Path.home() raises for a user without an entry.
    place = Path(found) if found else expanded("~")
    return place if place.is_absolute() else None


def user_folder(name: str) -> Path | None:
    """Return the folder of an XDG variable such as XDG_DATA_HOME; None without a home."""
    if given := os.environ.get(name):
        return Path(given)
    home = home_folder()
    return None if home is None else home / _BELOW_HOME[name]


def own_folder(variable: str, xdg: str, below: str) -> Path | None:
    """Return the folder that a variable of this package names, else ``below`` in the user's own.

    None where the variable is not set and the user has no home.
    """
    if given := os.environ.get(variable):
        return expanded(given).absolute()
    folder = user_folder(xdg)
    return None if folder is None else folder / "ngraphbench" / below


def expanded(text: str) -> Path:
    """Return the path with ``~`` as the home it stands for; as written where it is nobody's.

    >>> str(expanded("~nobody-of-that-name.onnx"))
    '~nobody-of-that-name.onnx'
    """
    return Path(os.path.expanduser(text))  # noqa: PTH111 (pathlib's raises)
