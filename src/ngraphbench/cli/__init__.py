"""The command line: ``ngraphbench``, short ``ngb``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its code."""
    from ngraphbench.cli.app import run

    sys.exit(run(sys.argv[1:]))
