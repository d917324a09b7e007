"""How messages name what a worker was doing, and how it ended."""

from __future__ import annotations

__all__ = ["ended_by", "leftovers", "said"]

LEFT_BYTES = 1024**2

_SAID = {
    "open": "Opening the model",
    "batch": "The reference run or the export",
    "import": "Importing the compiler",
    "compile": "Compiling",
    "load": "Loading inputs",
    "run": "Running",
    "outputs": "Reading outputs",
    "slot": "Running in a timed slot",
    "block": "Running in a solo block",
}


def said(op: str) -> str:
    """Return what a worker does in ``op``, as the start of a sentence."""
    return _SAID.get(op, f"The operation {op}")


def ended_by(reason: str) -> str:
    """Return the reason of a process's end in words.

    >>> ended_by("exit:3"), ended_by("signal:SIGSEGV")
    ('exit code 3', 'signal SIGSEGV')
    """
    kind, _, value = reason.partition(":")
    return {"exit": f"exit code {value}", "signal": f"signal {value}"}.get(kind, reason)


def leftovers(processes: int, shared_bytes: int) -> str:
    """Return what a worker left behind, an empty string for next to nothing.

    >>> leftovers(2, 5 * 2**20), leftovers(0, 4096)
    ('2 processes and 5 MiB of shared memory', '')
    """
    found = [f"{processes} process{'es' if processes > 1 else ''}"] if processes else []
    if shared_bytes >= LEFT_BYTES:
        found.append(f"{shared_bytes >> 20} MiB of shared memory")
    return " and ".join(found)
