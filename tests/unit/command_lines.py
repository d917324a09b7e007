"""Command lines that pages tell people to type."""

from __future__ import annotations

import shlex

import typer

from ngraphbench.cli.app import app


def check_parses(line: str) -> None:
    """Hold a line, without the ``ngb`` before it, against the commands and options there are."""
    name, *arguments = shlex.split(line)
    command = typer.main.get_command(app).commands[name]
    if isinstance(command, typer.core.TyperGroup):
        name, *arguments = arguments
        command = command.commands[name]
    context = command.make_context(name, arguments)
    assert context.args == []
