"""``completion``: the script that lets a shell complete commands and options."""

from __future__ import annotations

import os
from enum import Enum
from typing import Annotated

import typer

__all__ = ["completion"]


class Shell(str, Enum):
    """Shells that scripts are made for."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(help="The shell that is to complete.")],
) -> None:
    """Print the script that lets a shell complete commands and options.

    Where the shell is the one you are in, `ngb --install-completion` does it all. By hand:
    `ngb completion bash > ~/.local/share/bash-completion/completions/ngb`
    """
    # The command line prints it itself when it is started so.
    os.environ["_NGB_COMPLETE"] = f"source_{shell.value}"
    context.find_root().command.main(args=[], prog_name="ngb")
