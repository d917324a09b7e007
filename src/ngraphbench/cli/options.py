"""Option types that several commands share, and what they turn into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ngraphbench.errors import SpecError

if TYPE_CHECKING:
    from ngraphbench.muster import Fleet

__all__ = [
    "Certs",
    "Cluster",
    "Json",
    "Out",
    "RemoveEnvironments",
    "Wait",
    "batch_list",
    "bench_settings",
    "fleet_of",
    "in_flight_list",
    "model_entries",
    "watched",
    "whole_numbers",
]

Json = Annotated[bool, typer.Option("--json", help="Print case records as one JSON array.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="DIR", help="Run directory.", show_default="one in runs/"),
]

RemoveEnvironments = Annotated[
    bool,
    typer.Option("--remove-environments", help="At the end, remove environments made for it."),
]

Cluster = Annotated[
    str | None,
    typer.Option(metavar="tls://HOST:PORT", help="The scheduler that agents are connected to."),
]
Certs = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Certificates of the fleet.",
        show_default="$NGRAPHBENCH_CERTS, else ~/.config/ngraphbench/certs",
    ),
]
Wait = Annotated[
    str,
    typer.Option(metavar="10min", help="How long to wait at the end for devices not there yet."),
]


def fleet_of(cluster: str | None, certs: Path | None, wait: str) -> Fleet:
    """Return where devices are found. Raises SpecError."""
    from ngraphbench.muster import Fleet
    from ngraphbench.spec_values import parse_seconds

    try:
        wait_s = 0.0 if wait == "0" else parse_seconds(wait)
    except ValueError as error:
        raise SpecError(f"{wait!r} {error}.", key="--wait", hint="Write 90s or 10min.") from error
    return Fleet(cluster or "", certs, wait_s)


def batch_list(text: str) -> list[int]:
    """Return the batch sizes in ``1,8``. Raises SpecError for anything else."""
    return whole_numbers(text, key="--batch", what="batch sizes")


def in_flight_list(text: str | None) -> list[int] | None:
    """Return the numbers in ``1,2,4``. Raises SpecError for anything else."""
    if text is None:
        return None
    return whole_numbers(text, key="--in-flight", what="requests in flight")


def whole_numbers(text: str, *, key: str, what: str) -> list[int]:
    """Return the numbers in ``1,2,4``. Raises SpecError for anything else."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SpecError(
            f"{text!r} is not a list of {what}.", key=key, hint="Write 1,8 or 4."
        ) from None


@contextmanager
def watched() -> Iterator[Callable[[dict[str, Any]], None]]:
    """Hold what draws a run's progress; an interruption ends the command as Ctrl-C does."""
    from ngraphbench.engines.base import Interrupted
    from ngraphbench.report.progress import RunProgress

    with RunProgress() as progress:
        try:
            yield progress.feed
        except Interrupted:
            raise KeyboardInterrupt from None


def bench_settings(
    *,
    shapes: Sequence[str],
    precision: str,
    threads: str | None,
    timeout: str | None,
    memory: str | None,
    method: Mapping[str, Any],
    seed: int,
    limits: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the keys of an experiment file that ``bench``'s options stand for.

    ``method`` holds keys of ``measure``; those that are None were not given. ``limits`` are
    texts such as ``compile=10min``; they win over ``timeout`` and ``memory``.
    """
    measure = {key: value for key, value in method.items() if value is not None}
    settings: dict[str, Any] = {"precision": precision, "seed": seed, "measure": measure}
    if threads is not None:
        measure["threads"] = int(threads) if threads.isdecimal() else threads
    limited: dict[str, Any] = {}
    if timeout is not None:
        limited |= {"cell": timeout, "compile": timeout, "first_call": timeout}
    if memory is not None:
        limited["memory"] = memory
    limited |= dict(map(_limit, limits))
    if limited:
        settings["limits"] = limited
    if shapes:
        settings["shapes"] = dict(_shape(text) for text in shapes)
    return settings


def _limit(text: str) -> tuple[str, str | int]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise SpecError(f"{text!r} is not a limit.", key="--limit", hint="Write compile=10min.")
    return name, int(value) if value.isdecimal() else value


def _shape(text: str) -> tuple[str, list[list[int | str]]]:
    # Names may hold '=' and ':', so the shape is what stands after the last '='.
    name, equals, dims = text.rpartition("=")
    if not equals or not dims:
        raise SpecError(
            f"{text!r} is not a shape.", key="--shape", hint="Write images=1x3x320x320."
        )
    return name, [[int(dim) if dim.isdecimal() else dim for dim in dims.split("x")]]


def model_entries(
    models: Sequence[str],
    inputs: Sequence[str],
    inputs_file: Path | None,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    pretrained: bool = False,
    sets: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Return the models as entries of an experiment file, each with the user's inputs.

    Of several models, each gets the inputs that it has; an ONNX file says which those are.
    ``sets`` holds the keys ``eval``, ``metric`` and ``calib``; empty ones were not given.
    """
    from ngraphbench.models.inputs import parse_input_option

    overrides = dict(parse_input_option(text) for text in inputs)
    entry: dict[str, Any] = {"seed": seed}
    if inputs_file is not None:
        entry["inputs_file"] = str(inputs_file)
    if checkpoint is not None:
        entry["checkpoint"] = str(checkpoint)
    if pretrained:
        entry["pretrained"] = True
    entry |= {key: value for key, value in (sets or {}).items() if value}
    given = _inputs_of(models, overrides)
    return [
        {"model": model, **entry, **({"inputs": given[model]} if given[model] else {})}
        for model in models
    ]


def _inputs_of(models: Sequence[str], overrides: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the overrides of each model; a name that no model has stays, to be refused."""
    from ngraphbench.models.sources import input_names

    if not overrides or len(models) == 1:
        return dict.fromkeys(models, overrides)
    names = {model: input_names(model, base=Path()) for model in models}
    nowhere = {
        key
        for key in overrides
        if all(known is not None and key not in known for known in names.values())
    }
    return {
        model: {
            key: value
            for key, value in overrides.items()
            if known is None or key in known or key in nowhere
        }
        for model, known in names.items()
    }
