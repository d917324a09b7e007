"""The error tree. Every error says what was asked, what was found, and what to do next.

NGraphBenchError
├── SpecError            the user's input: exit code 2
├── PluginError          a compiler: becomes a record, the run goes on
│   ├── Unavailable      not installed, or not on this device
│   ├── Unsupported      installed, but cannot do what was asked
│   ├── CompileFailed
│   └── RunFailed
├── WorkerFailed         the compiler's process: crash, exit, hang, memory
├── StoreError           the run directory
├── EnvironmentFailed    a compiler's environment
└── ClusterError         the engine or a device of it
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

__all__ = [
    "ClusterError",
    "CompileFailed",
    "EnvironmentFailed",
    "NGraphBenchError",
    "PluginError",
    "RunFailed",
    "SpecError",
    "StoreError",
    "Unavailable",
    "Unsupported",
    "WorkerFailed",
    "first_line",
    "nearest",
]


class NGraphBenchError(Exception):
    """Base of every error this package raises on purpose.

    ``reason`` is a short machine-readable code such as ``"batch-fixed"``; it goes
    into records. ``hint`` is one sentence on what to do next.
    """

    def __init__(self, message: str, *, reason: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip() if self.hint else self.message


class SpecError(NGraphBenchError):
    """The user's input is wrong; names file, line and key where they are known."""

    def __init__(
        self,
        message: str,
        *,
        file: str = "",
        line: int | None = None,
        key: str = "",
        reason: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, reason=reason, hint=hint)
        self.file = file
        self.line = line
        self.key = key

    def __str__(self) -> str:
        place = self.file + (f":{self.line}" if self.file and self.line else "")
        parts = [p for p in (place, self.key) if p]
        head = ": ".join(parts)
        return f"{head}: {super().__str__()}" if head else super().__str__()


class PluginError(NGraphBenchError):
    """A compiler plugin could not do its part."""


class Unavailable(PluginError):
    """The compiler is not installed here, or this device lacks what it needs."""


class Unsupported(PluginError):
    """The compiler is here, but does not support what was asked of it."""


class CompileFailed(PluginError):
    """The compiler tried to build the program and failed."""


class RunFailed(PluginError):
    """The program was built, and failed to load, run or give outputs."""


class WorkerFailed(NGraphBenchError):
    """A worker process died, hung, or broke its limits.

    ``status`` is the record status it leads to: ``crashed | timeout | oom | failed``.
    """

    def __init__(
        self,
        message: str,
        *,
        status: str,
        reason: str = "",
        hint: str = "",
        detail: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, reason=reason, hint=hint)
        self.status = status
        self.detail = detail or {}


class StoreError(NGraphBenchError):
    """The run directory cannot be read or written as asked."""


class EnvironmentFailed(NGraphBenchError):
    """A compiler's environment could not be made or used."""


class ClusterError(NGraphBenchError):
    """The engine, or a device of it, did not do its part."""


def nearest(name: str, known: Sequence[str], *, what: str = "Choose from") -> str:
    """Return a hint: the close match among ``known``, else all of them.

    >>> nearest("quik", ["quick", "default"])
    "Did you mean 'quick'?"
    """
    close = get_close_matches(name, known, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"{what} {', '.join(known)}." if known else ""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, cut; its type where there is no text.

    >>> first_line(ValueError("\\n bad axis\\nmore"))
    'bad axis'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
