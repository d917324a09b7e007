"""What must not be written down: credentials of the environment and of addresses."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["HIDDEN", "Redaction", "is_secret", "own_redaction"]

HIDDEN = "[hidden]"

LEAST_CHARACTERS = 8
"""A shorter value would be found in words that are no secrets."""

TOKEN_CHARACTERS = 20
"""So long a user without a password is a token, not a name."""

_WORDS = ("TOKEN", "SECRET", "PASSWORD", "API_KEY")
_PARTS = frozenset({"KEY", "AUTH", "CREDENTIAL", "CREDENTIALS", "PASSWD", "PASSPHRASE", "PAT"})

_WEB = re.compile(r"(\b(?:[a-z]+\+)?https?://)[^\s/@'\"]+@", re.IGNORECASE)
_OTHER = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/@:'\"]*:)[^\s/@'\"]+@", re.IGNORECASE)
_ANY = re.compile(r"\b[a-z][a-z0-9+.-]*://([^\s/@'\"]+)@", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Return whether a variable's name says that it holds a credential.

    >>> is_secret("HF_TOKEN"), is_secret("AWS_SECRET_ACCESS_KEY"), is_secret("OMP_NUM_THREADS")
    (True, True, False)
    """
    upper = name.upper()
    return any(word in upper for word in _WORDS) or not _PARTS.isdisjoint(upper.split("_"))


class Redaction:
    """Hides credentials in text: values of secret variables, and the user part of addresses."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        found = {value for name, value in variables.items() if is_secret(name)}
        for value in variables.values():
            # A password may be told without its address, by a tool that failed with it.
            for user in _ANY.findall(value):
                _, colon, password = user.partition(":")
                if colon or len(user) >= TOKEN_CHARACTERS:
                    found.add(password or user)
        kept = sorted(filter(_is_telling, found), key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, kept))) if kept else None

    def text(self, text: str) -> str:
        """Return ``text`` without credentials; a user of ssh stays, for it names a device."""
        if self._secrets is not None:
            text = self._secrets.sub(HIDDEN, text)
        if "://" not in text:
            return text
        return _OTHER.sub(rf"\1{HIDDEN}@", _WEB.sub(rf"\1{HIDDEN}@", text))

    def value(self, value: Any) -> Any:
        """Return a JSON value with every text in it, keys apart, without credentials."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value

    def file(self, path: Path) -> None:
        """Rewrite a file of text in place, where it holds a credential."""
        with path.open("r+b") as file:
            before = file.read()
            after = self.text(before.decode("utf-8", "surrogateescape"))
            data = after.encode("utf-8", "surrogateescape")
            if data != before:
                file.seek(0)
                file.write(data)
                file.truncate()


def _is_telling(value: str) -> bool:
    # The path of a file of credentials is none itself.
    return len(value) >= LEAST_CHARACTERS and not (value.startswith("/") and "\n" not in value)


@cache
def own_redaction() -> Redaction:
    """Return that of this process's environment, as it is at the first call."""
    return Redaction(os.environ)
