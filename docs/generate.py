"""Pages that are made from the code: commands, and the options that plugins declare.

MkDocs calls the functions that begin with ``on_``; the others return Markdown.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

__all__ = ["commands_page", "on_files", "on_page_markdown", "options_page"]


def options_page() -> str:
    """Return a page of every compiler that is found here with the options that it declares."""
    from ngraphbench.errors import NGraphBenchError
    from ngraphbench.plugin import discover, load_compiler

    lines = [
        "# Options of the compilers",
        "",
        "As each plugin declares them; `ngb list --options` prints the same where you are. Write"
        " them as `-c NAME:option=value,option=value`, or `preset=NAME` for a set of them.",
        "",
    ]
    for name, target in sorted(discover().items()):
        with suppress(NGraphBenchError):
            lines += _compiler(name, load_compiler(target))
    return "\n".join(lines)


def _compiler(name: str, plugin: Any) -> list[str]:
    told = (plugin.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
    lines = [f"## {name}", "", f"{told} Takes {', '.join(plugin.accepts)}.", ""]
    if plugin.not_yet_run_on_hardware:
        lines += ["**Not yet run on hardware.**", ""]
    if not plugin.options:
        return [*lines, "It has no options.", ""]
    lines += ["| option | value | default | what it does |", "|---|---|---|---|"]
    for option in plugin.options:
        value = " or ".join(map(_code, option.choices)) or option.type
        presets = "".join(f"; {key}: {_code(v)}" for key, v in option.presets.items())
        default = f"{_code(option.default)}{presets}"
        lines.append(f"| `{option.name}` | {value} | {default} | {_cell(option.help)} |")
    return [*lines, ""]


def _code(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"<code>{_cell(text)}</code>" if text else "empty"


def _cell(text: object) -> str:
    """Return text for a table: one line, nothing of it markup."""
    line = " ".join(str(text or "").split())
    return re.sub(r"[|<>*_\[\]]", lambda found: f"&#{ord(found[0])};", line)


def commands_page() -> str:
    """Return a page of every command with its arguments and options."""
    import typer

    from ngraphbench.cli.app import app

    root: Any = typer.main.get_command(app)
    lines = ["# Commands", "", re.sub(r"\[/?bold\]", "`", root.help), ""]
    for name, command in sorted(root.commands.items()):
        for path, one in _leaves(name, command):
            lines += _command(path, one)
    return "\n".join(lines)


def _leaves(path: str, command: Any) -> list[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        return [(path, command)]
    return [leaf for name, one in inner.items() for leaf in _leaves(f"{path} {name}", one)]


def _command(path: str, command: Any) -> list[str]:
    lines = [f"## ngb {path}", "", _cell(command.help), ""]
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    if not shown:
        return lines
    lines += ["| argument or option | what it does | default |", "|---|---|---|"]
    for parameter in shown:
        lines.append(f"| {_names(parameter)} | {_cell(parameter.help)} | {_default(parameter)} |")
    return [*lines, ""]


def _names(parameter: Any) -> str:
    metavar = str(parameter.metavar or "")
    if parameter.param_type_name == "argument":
        return _code(metavar or parameter.name.upper())
    names = ", ".join(map(_code, (*parameter.opts, *parameter.secondary_opts)))
    return f"{names} {_code(metavar)}" if metavar and not parameter.is_flag else names


def _default(parameter: Any) -> str:
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return _cell(shown)
    value = parameter.default
    if value in (None, False, "", ()) or callable(value) or "UNSET" in repr(value).upper():
        return ""
    return _code(value)


PAGES = {"reference/options.md": options_page, "reference/commands.md": commands_page}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made from the code."""
    from mkdocs.structure.files import File

    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links to files outside the site into plain names of those files."""
    return re.sub(r"\[([^\]]*)\]\((?:\.\./)+(?!howto|reference)([\w./-]+)\)", _outside, markdown)


def _outside(found: re.Match[str]) -> str:
    text, path = found[1], found[2]
    inside = path.endswith(".md") and "/" not in path and path.islower()
    return found[0] if inside else f"{text} (`{path}`)"
