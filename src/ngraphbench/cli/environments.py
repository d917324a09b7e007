"""``env``: make, list and remove compilers' own environments, and solve their locks."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ngraphbench.errors import EnvironmentFailed, SpecError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ngraphbench.environments.managed import Environment
    from ngraphbench.locks import EnvironmentRequest
    from ngraphbench.plan import Plan

__all__ = ["app", "plan_lines"]

app = typer.Typer(no_args_is_help=True, help="Compilers' own environments, made from locks.")

JsonObject = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Names = Annotated[
    list[str], typer.Argument(metavar="COMPILER[@VERSION]...", help="Or the name of a lock.")
]


@app.command("create")
def create(names: Names) -> int:
    """Make environments that are not there yet; those that were edited are made anew."""
    from ngraphbench.agent import host_lock
    from ngraphbench.environments.managed import provided

    requests = [_request(name) for name in names]
    with _progress() as tell:

        def wait(event: dict[str, Any]) -> None:
            tell(str(event.get("text", "")))

        with host_lock(wait):
            for request in requests:
                with provided(request, observe=_telling(tell, request.head)) as made:
                    done = f"{request.head}  {made.id}  {made.folder}"
                typer.echo(done)
    return 0


def _telling(tell: Callable[[str], None], head: str) -> Callable[[str], None]:
    return lambda text: tell(f"{head}: {text}")


@app.command("list")
def list_environments(json_: JsonObject = False) -> int:
    """List the environments that are there, in whatever state, and the locks there are."""
    from ngraphbench.cli.printing import print_table
    from ngraphbench.environments.managed import environments, root_folder
    from ngraphbench.locks import lock_names

    found, locks = environments(), lock_names()
    if json_:
        listing = {one.id: _about(one) for one in found}
        answer = {"folder": str(root_folder()), "environments": listing, "locks": locks}
        sys.stdout.write(json.dumps(answer, indent=1) + "\n")
        return 0
    rows = [_row(one) for one in found]
    if rows:
        print_table(("environment", "version", "python", "size", "state", "id"), rows)
    else:
        typer.echo("No environment was made yet.")
    typer.echo(f"\nThey lie in {root_folder()}.\nLocks: {', '.join(locks) or 'none'}.")
    return 0


@app.command("remove")
def remove(
    names: Annotated[list[str] | None, typer.Argument(metavar="COMPILER[@VERSION]|ID...")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Remove every environment.")] = False,
) -> int:
    """Remove environments; nothing of them is left behind."""
    from ngraphbench.environments.managed import environments, remove_environment

    found = environments()
    ids = [one.id for one in found] if all_ else [_id(name, found) for name in names or []]
    if not ids and not all_:
        raise SpecError("No environment was named.", hint="Name some, or use --all.")
    for id_ in ids:
        remove_environment(id_)
        typer.echo(f"removed {id_}")
    return 0


@app.command("lock")
def lock(
    name: Annotated[str, typer.Argument(metavar="COMPILER", help="Or the name of a lock.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Where to write.", show_default="in place"
        ),
    ] = None,
) -> int:
    """Solve a lock anew from its input, for every Python and platform. Needs uv."""
    from ngraphbench.environments.locking import solve
    from ngraphbench.locks import find_lock, lock_names
    from ngraphbench.store.disk import write_whole

    known = find_lock(_lock_name(name))
    if known is None:
        hint = nearest(name, lock_names())
        raise SpecError(f"There is no lock {name!r}.", reason="no-lock", hint=hint)
    target = out or known.folder / f"{known.name}.txt"
    with _progress() as tell:
        tell(f"solving {known.name}")
        text = solve(known)
    write_whole(target, text)
    typer.echo(str(target))
    return 0


def plan_lines(plan: Plan) -> list[str]:
    """Return a line for each managed environment that a plan needs: there, or to be made."""
    from ngraphbench.environments.interpreters import interpreter_tag
    from ngraphbench.environments.managed import find_environment
    from ngraphbench.locks import EnvironmentRequest

    lines: dict[str, str] = {}
    for session in plan.sessions:
        for data in session.environments.values():
            request = EnvironmentRequest.from_json(data)
            id_ = request.id(interpreter_tag())
            found = find_environment(id_) if request.kind == "managed" else None
            size = f"{request.size}, " if request.size else ""
            state = "is there" if found and found.state == "ready" else f"{size}is to be made"
            if request.kind == "managed":
                lines[id_] = f"environment {request.head}: {state}"
    return list(lines.values())


def _request(text: str) -> EnvironmentRequest:
    from ngraphbench.locks import is_path, lock_names, request_for
    from ngraphbench.spec import parse_compiler

    asked = parse_compiler(text)
    if is_path(asked.version) or asked.options:
        raise SpecError(f"{text!r} is not COMPILER or COMPILER@VERSION.", reason="environment")
    name, distributions = _lock_name(asked.name), _distributions(asked.name)
    try:
        return request_for(name, distributions=distributions, version=asked.version)
    except EnvironmentFailed as error:
        hint = nearest(asked.name, lock_names())
        raise SpecError(error.message, reason=error.reason, hint=hint) from error


def _lock_name(name: str) -> str:
    """Return the lock of a compiler, or the name itself where it is that of a lock."""
    from ngraphbench.plugin import discover, load_compiler

    target = discover().get(name)
    if target is None:
        return name
    plugin = load_compiler(target)
    return plugin.environment or plugin.name


def _distributions(name: str) -> tuple[str, ...]:
    """Return the distributions of a compiler, or of the first that uses a lock."""
    from ngraphbench.plugin import discover

    users = [name] if name in discover() else _users(name)
    return next((found for user in users if (found := _packages(user))), ())


def _packages(compiler: str) -> tuple[str, ...]:
    from ngraphbench.plugin import discover, load_compiler

    return load_compiler(discover()[compiler]).packages


def _users(lock: str) -> list[str]:
    from ngraphbench.errors import NGraphBenchError
    from ngraphbench.plugin import discover

    found = []
    for name in discover():
        try:
            used = _lock_name(name)
        except NGraphBenchError:
            continue
        if used == lock:
            found.append(name)
    return found


def _id(text: str, found: list[Environment]) -> str:
    from ngraphbench.environments.interpreters import interpreter_tag

    ids = [one.id for one in found]
    if text in ids:
        return text
    if (id_ := _request(text).id(interpreter_tag())) in ids:
        return id_
    same = [one.id for one in found if one.about.get("name") == _lock_name(text)]
    if len(same) == 1:
        return same[0]
    hint = f"Name one by its id: {', '.join(same)}." if same else "`ngb env list` shows them."
    raise SpecError(f"There is no environment {text!r}.", reason="environment", hint=hint)


def _about(one: Environment) -> dict[str, Any]:
    return {
        **one.about,
        "state": one.state,
        "folder": str(one.folder),
        "compilers": _users(one.about.get("name", "")),
    }


def _row(one: Environment) -> tuple[str, ...]:
    from ngraphbench.locks import plain_name

    about = one.about
    main = plain_name(about.get("distribution", ""))
    size = f"{about['size_bytes'] / 1e6:.0f} MB" if about else ""
    version = about.get("distributions", {}).get(main, "")
    name = about.get("name", "?")
    return (name, version, about.get("python", ""), size, one.state, one.id)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Yield what shows a line: a spinner on a terminal, else plain lines on stderr."""
    from rich.console import Console
    from rich.text import Text

    from ngraphbench.report.wording import visible

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: console.print(Text(visible(text)), soft_wrap=True)
        return
    with console.status("") as status:
        yield lambda text: status.update(Text(visible(text)[: console.width - 4]))
