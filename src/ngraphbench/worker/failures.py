"""How whatever a plugin raises travels to the parent, and is raised again there."""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Iterator

from ngraphbench import errors
from ngraphbench.errors import (
    CompileFailed,
    NGraphBenchError,
    PluginError,
    RunFailed,
    Unavailable,
    Unsupported,
    WorkerFailed,
)
from ngraphbench.types import Json

__all__ = ["RemoteTraceback", "error_answer", "error_told"]

_RAISED = ("Unavailable", "Unsupported", "CompileFailed", "RunFailed", "SpecError", "StoreError")

_STATUSES = ("failed", "crashed", "timeout", "oom", "wrong")

TRACEBACK_LINES = 40
MESSAGE_CHARACTERS = 4000

# What an exception that is not ours means, by the operation it came from.
_FAILURES: dict[str, type[PluginError]] = {
    "import": Unavailable,
    "probe": Unavailable,
    "compile": CompileFailed,
    "save_artifact": CompileFailed,
    "load_artifact": CompileFailed,
    "open": CompileFailed,
    "batch": CompileFailed,
    "evaluate": CompileFailed,
    "score": RunFailed,
    "predict": RunFailed,
    "load": RunFailed,
    "run": RunFailed,
    "outputs": RunFailed,
    "slot": RunFailed,
    "block": RunFailed,
    "busy": RunFailed,
    "close": RunFailed,
}
_NO_MEMORY = (
    "std::bad_alloc",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "out of memory",
)

FULL_BYTES = 16 * 1024**2
"""With less than so much left a disk is full; what was tried is gone again by then."""

_NO_SPACE = "no space left on device"
_MAKE_SPACE = "Free some space, then run again: finished epochs are kept."


class RemoteTraceback(Exception):
    """The cause of an error that came from a worker: its text is the traceback there."""


def error_answer(error: BaseException, op: str) -> Json:
    """Return ``error`` as the protocol carries it, under the name the parent will raise.

    Errors of this package keep their name; lack of memory becomes WorkerFailed with
    status ``oom``, a full disk StoreError; anything else becomes what failing ``op`` means.
    """
    lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    answer: Json = {
        "type": type(error).__name__,
        "message": str(getattr(error, "message", error))[:MESSAGE_CHARACTERS],
        "reason": getattr(error, "reason", ""),
        "hint": getattr(error, "hint", ""),
        "traceback": "\n".join(
            line[:MESSAGE_CHARACTERS] for line in lines.splitlines()[-TRACEBACK_LINES:]
        ),
    }
    if _lacks_memory(error):
        answer |= {"type": "WorkerFailed", "status": "oom", "reason": "memory"}
        answer["message"] = f"{op} ran out of memory: {answer['message'] or 'MemoryError'}"
    elif _fills_disk(error):
        answer |= {"type": "StoreError", "reason": "disk", "hint": _MAKE_SPACE}
        answer["message"] = f"{op}: the disk is full: {answer['message']}"
    elif isinstance(error, WorkerFailed):
        answer["status"] = error.status
    elif not isinstance(error, NGraphBenchError):
        answer["message"] = f"{op}: {type(error).__name__}: {answer['message']}"
        failure = _FAILURES.get(op)
        if failure is None:
            answer |= {"type": "WorkerFailed", "status": "failed"}
        else:
            answer["type"] = failure.__name__
        answer["reason"] = type(error).__name__
    elif isinstance(error, PluginError):
        answer["type"] = _public_name(error)
    return answer


def _public_name(error: PluginError) -> str:
    # A plugin may subclass our errors; the parent only knows ours.
    for kind in (Unavailable, Unsupported, CompileFailed, RunFailed):
        if isinstance(error, kind):
            return kind.__name__
    return RunFailed.__name__


def _lacks_memory(error: BaseException) -> bool:
    for one in _chain(error):
        if isinstance(one, MemoryError) or any(phrase in _words(one) for phrase in _NO_MEMORY):
            return True
    return False


def _fills_disk(error: BaseException) -> bool:
    """Return whether it failed for a full disk, and that is the one under the working folder."""
    full = (errno.ENOSPC, errno.EDQUOT)
    if not any(
        (isinstance(one, OSError) and one.errno in full) or _NO_SPACE in _words(one)
        for one in _chain(error)
    ):
        return False
    try:
        found = os.statvfs(".")
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < FULL_BYTES


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(10):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _words(error: BaseException) -> str:
    """Return the text of what a vendor said, in small letters; nothing of our own refusals."""
    ours = isinstance(error, NGraphBenchError)
    return "" if ours and not isinstance(error, (CompileFailed, RunFailed)) else str(error).lower()


def error_told(answer: Json, op: str) -> NGraphBenchError:
    """Return the exception that a failed ``answer`` to ``op`` stands for, ready to be raised."""
    said = answer.get("error")
    # Any command may be a worker, and may say anything.
    known = said.items() if isinstance(said, dict) else ()
    told = {key: value for key, value in known if isinstance(value, str)}
    message = told.get("message") or f"{op} failed and did not say why."
    name, reason, hint = told.get("type", ""), told.get("reason", ""), told.get("hint", "")
    error: NGraphBenchError
    if name in _RAISED:
        error = getattr(errors, name)(message, reason=reason, hint=hint)
    else:
        status = told.get("status", "failed")
        status = status if status in _STATUSES else "failed"
        error = WorkerFailed(message, status=status, reason=reason or name, hint=hint)
    if told.get("traceback"):
        error.__cause__ = RemoteTraceback(told["traceback"])
    return error
