"""The user's own pip settings, handed on to whoever installs: pip itself, or uv, which reads none.

Index, extra indexes, find-links, constraints, certificates, proxy, cache: what pip would do for
the user is done for a compiler's environment too.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Pip", "PipSettings", "own_pip", "read_settings"]

READ_S = 60.0

_LINE = re.compile(r"(global|install|:env:)\.([A-Za-z-]+)=(.*)")
_SECTIONS = ("global", "install", ":env:")
"""Weakest first, as pip has it."""

_ELSEWHERE = frozenset(
    {"break-system-packages", "config-file", "dry-run", "editable", "force-reinstall", "format"}
    | {"ignore-installed", "log", "no-deps", "no-user", "prefix", "python", "quiet", "report"}
    | {"require-virtualenv", "requirement", "root", "src", "target", "upgrade", "user", "verbose"}
    | {"progress-bar", "no-color", "no-input"}
)
"""Settings that would install to another place or another thing, or change what pip prints."""

_UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "constraint": "UV_CONSTRAINT",
    "build-constraint": "UV_BUILD_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
}
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_TRUE = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class PipSettings:
    """Pip's settings by their long names, such as ``index-url``; lists are separated by spaces.

    ``known`` is false where there was no pip to ask: then pip, if it comes, reads its own files.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    known: bool = True

    def pip_variables(self) -> dict[str, str]:
        """Return the variables under which any pip does as the user's own would."""
        found = {_variable(name): value for name, value in self.values.items()}
        # Its own files would be those of the interpreter it runs in, and are all read by now.
        return found | ({"PIP_CONFIG_FILE": os.devnull} if self.known else {})

    def uv_variables(self) -> dict[str, str]:
        """Return the variables under which uv does as the user's pip would."""
        given = self.values
        found = {_UV_VARIABLES[name]: given[name] for name in given if name in _UV_VARIABLES}
        if "extra-index-url" in given:
            # Pip takes the best of all indexes; uv only looks into the first that has a name.
            found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
        if "proxy" in given:
            found |= dict.fromkeys(_PROXIES, given["proxy"])
        if _is_on(given.get("no-cache-dir")):
            found["UV_NO_CACHE"] = "1"
        elif "cache-dir" in given:
            found["UV_CACHE_DIR"] = str(Path(given["cache-dir"]) / "uv")
        if _is_on(given.get("pre")):
            found["UV_PRERELEASE"] = "allow"
        if given.get("keyring-provider") in ("subprocess", "disabled"):
            found["UV_KEYRING_PROVIDER"] = given["keyring-provider"]
        return found

    def uv_arguments(self) -> list[str]:
        """Return what uv takes on its command line alone."""
        words = [f"--find-links={place}" for place in self.values.get("find-links", "").split()]
        if _is_on(self.values.get("no-index")):
            words.append("--no-index")
        for name in ("only-binary", "no-binary"):
            listed = self.values.get(name, "").replace(",", " ").split()
            words += [f"--{name}={package}" for package in listed if package != ":none:"]
        return words


@dataclass(frozen=True, slots=True)
class Pip:
    """The user's pip: how to run it, and its version."""

    command: tuple[str, ...]
    version: tuple[int, ...]

    @property
    def reaches_elsewhere(self) -> bool:
        """Whether it can install into the environment of another interpreter."""
        return self.version >= (22, 3)


def own_pip() -> Pip | None:
    """Return the user's pip: that of this interpreter, or of the one it was made from."""
    base = getattr(sys, "_base_executable", "") or sys.executable
    for python in dict.fromkeys((sys.executable, base)):
        command = (python, "-m", "pip")
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                [*command, "--version"],
                capture_output=True,
                check=False,
                text=True,
                timeout=READ_S,
            )
            if match := re.match(r"pip (\d+)\.(\d+)", done.stdout):
                return Pip(command, (int(match[1]), int(match[2])))
    return None


def read_settings(pip: Pip | None, *, variables: Mapping[str, str] | None = None) -> PipSettings:
    """Return the settings that ``pip config list`` tells, the environment's over the files'.

    ``variables`` is ``os.environ`` unless given. Without a pip, only ``PIP_*`` variables are read.
    """
    outer = dict(os.environ if variables is None else variables)
    text = _listed(pip, outer) if pip else None
    if text is None:
        given = {
            name[4:].lower().replace("_", "-"): value
            for name, value in outer.items()
            if name.startswith("PIP_") and value
        }
        return PipSettings(_kept(given), known=False)
    sections: dict[str, dict[str, str]] = {name: {} for name in _SECTIONS}
    for line in text.splitlines():
        if match := _LINE.fullmatch(line.strip()):
            sections[match[1]][match[2]] = _unquoted(match[3])
    merged: dict[str, str] = {}
    for name in _SECTIONS:
        merged |= {key: value for key, value in sections[name].items() if value}
    return PipSettings(_kept(merged))


def _listed(pip: Pip, outer: dict[str, str]) -> str | None:
    try:
        done = subprocess.run(
            [*pip.command, "config", "list"],
            capture_output=True,
            check=False,
            text=True,
            timeout=READ_S,
            env={**outer, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def _unquoted(text: str) -> str:
    with suppress(ValueError, SyntaxError):
        return " ".join(str(ast.literal_eval(text)).split())
    return text


def _kept(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name not in _ELSEWHERE}


def _variable(name: str) -> str:
    return f"PIP_{name.upper().replace('-', '_')}"


def _is_on(value: str | None) -> bool:
    return value is not None and value.lower() in _TRUE
