"""The application: its commands, and what every outcome means as an exit code.

0 done; 1 some cell wrong, failed, timed out, out of memory or crashed; 2 the user must fix
something; 3 the tool failed; 4 a regression (`compare`); 5 nothing surely satisfies a
deployment's constraints (`deploy`); 130 interrupted.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from ngraphbench import __version__
from ngraphbench.cli import (
    cluster,
    comparing,
    completing,
    deploying,
    designing,
    environments,
    inspecting,
    measuring,
    ordering,
    proving,
    studying,
)
from ngraphbench.errors import NGraphBenchError, SpecError, StoreError
from ngraphbench.store.disk import trouble

__all__ = ["app", "run"]

CommandLineError: Any = typer.BadParameter.__mro__[2]
"""Click's base class of errors on the command line; Typer may carry a Click of its own."""

EXIT_OK, EXIT_CELLS, EXIT_USER, EXIT_TOOL, EXIT_INTERRUPTED = 0, 1, 2, 3, 130

app = typer.Typer(
    name="ngb",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help=(
        "Tells which neural graph compiler runs your network best, on this device, at which"
        " batch size, and how sure that is.\n\n"
        "First use:  [bold]ngb bench timm:resnet18[/bold]   (or your model.onnx, file.py:factory)"
        "\n\nExit codes: 0 done; 1 some cell failed or was wrong; 2 fix the input; 3 the tool"
        " failed; 4 a regression (compare); 5 nothing satisfies the constraints (deploy);"
        " 130 interrupted."
    ),
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ngraphbench {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Hold the options that stand before a command."""


app.command("bench", rich_help_panel="Measure")(measuring.bench)
app.command("run", rich_help_panel="Measure")(measuring.run)
app.command("design", rich_help_panel="Study")(designing.design)
app.command("develop", rich_help_panel="Study")(studying.develop)
app.command("deploy", rich_help_panel="Study")(deploying.deploy)
app.command("show", rich_help_panel="Look")(inspecting.show)
app.command("compare", rich_help_panel="Look")(comparing.compare)
app.command("reversals", rich_help_panel="Look")(ordering.reversals)
app.command("report", rich_help_panel="Look")(inspecting.report)
app.command("list", rich_help_panel="Look")(inspecting.list_things)
app.command("doctor", rich_help_panel="Look")(inspecting.doctor)
app.command("completion", rich_help_panel="Look")(completing.completion)
app.add_typer(environments.app, name="env", rich_help_panel="Look")
app.add_typer(cluster.app, name="cluster", rich_help_panel="Fleet")
app.command("agent", rich_help_panel="Fleet")(cluster.agent)
app.command("selftest", rich_help_panel="Look")(proving.selftest)


def run(arguments: Sequence[str]) -> int:
    """Return the exit code of one command line; errors are told on stderr in full sentences."""
    wants_json = "--json" in arguments
    try:
        code = app(args=list(arguments), prog_name="ngb", standalone_mode=False)
        if code == EXIT_INTERRUPTED:
            # Typer swallows Ctrl-C and returns this code for it.
            raise KeyboardInterrupt
        return code if isinstance(code, int) else EXIT_OK
    except CommandLineError as error:
        error.show(file=sys.stderr)
        return _user_error(wants_json)
    except (SpecError, StoreError) as error:
        _tell(str(error))
        return _user_error(wants_json)
    except NGraphBenchError as error:
        _tell(str(error))
        return EXIT_TOOL
    except (KeyboardInterrupt, typer.Abort):
        _tell("Interrupted. Finished epochs are kept: the same command goes on from there.")
        return EXIT_INTERRUPTED
    except OSError as error:
        if (told := trouble(error)) is None:
            return _our_fault()
        _tell(str(told))
        with suppress(OSError):
            return _user_error(wants_json)
        return EXIT_USER
    except Exception:
        if fault := _broken_records(arguments):
            _tell(fault)
            return _user_error(wants_json)
        return _our_fault()


def _our_fault() -> int:
    """Tell the error at hand with its traceback."""
    traceback.print_exc()
    _tell("This is a fault of ngraphbench: please report it with the lines above.")
    return EXIT_TOOL


def _broken_records(arguments: Sequence[str]) -> str:
    """Return what is wrong with the records that were named; "" where that is nothing."""
    from ngraphbench.store.checking import fault_of

    for part in arguments:
        # Not every argument can be a path.
        with suppress(OSError, ValueError):
            fault = fault_of(Path(part)) if Path(part).exists() else None
            if fault is not None:
                return str(fault)
    return ""


def _user_error(wants_json: bool) -> int:
    if wants_json:
        typer.echo("[]")
    return EXIT_USER


def _tell(text: str) -> None:
    from ngraphbench.redaction import own_redaction
    from ngraphbench.report.wording import visible

    lines = own_redaction().text(text).splitlines()
    typer.echo("\n".join(f"ngb: {visible(line)}" for line in lines), err=True)
