"""The command line: ``ngraphbench``, short ``ngb``."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its code."""
    _open_streams()
    from ngraphbench.cli.app import EXIT_USER, run

    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError as error:
        # The reader went away (a pager, head), or the disk behind is full: the flush at exit
        # would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = code if isinstance(error, BrokenPipeError) else code or EXIT_USER
    sys.exit(code)


def _open_streams() -> None:
    """Open what the caller has closed (``>&-``), or files would get those numbers."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
