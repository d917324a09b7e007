"""The studies as verbs: measure what a study asks for, or take a run, and decide.

>>> import ngraphbench as ngb
>>> found = ngb.design(["timm:resnet18", "timm:deit_tiny_patch16_224"])  # doctest: +SKIP
>>> print(found.decision)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from ngraphbench import api
from ngraphbench.case import Limits
from ngraphbench.errors import NGraphBenchError
from ngraphbench.models.blocks import FAMILIES, count_block
from ngraphbench.studies.design import SIDE_BY_SIDE, Design
from ngraphbench.studies.design import design as design_of
from ngraphbench.studies.develop import Development, models_of
from ngraphbench.studies.develop import develop as develop_of
from ngraphbench.studies.refinement import Refinement, run_limits, write_refinement
from ngraphbench.types import Json

__all__ = ["Studied", "design", "develop", "limited"]


class Answer(Protocol):
    """What every study ends in."""

    @property
    def decision(self) -> str: ...

    @property
    def refinement(self) -> Refinement | None: ...


Found = TypeVar("Found", bound=Answer)


@dataclass(frozen=True, slots=True)
class Studied(Generic[Found]):
    """A study: the run it is of, what was found, and the file with the next cells, if any."""

    run: api.Run
    found: Found
    next_file: Path | None

    @property
    def decision(self) -> str:
        """The decision in words."""
        return self.found.decision


def design(
    models: Sequence[str] = (),
    *,
    compilers: Sequence[str] = (),
    batch_sizes: Sequence[int] = (1, 4, 16),
    devices: Sequence[str] = ("local",),
    profile: str = "default",
    out: str | Path | None = None,
    of: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    observe: api.Observe = lambda event: None,
) -> Studied[Design]:
    """Return the design study of some architectures over compilers, devices and batch sizes.

    ``of`` studies the run in that folder and measures nothing. ``settings`` are further keys
    of an experiment file. Writes ``next.yaml`` into the run where something is open. Raises
    SpecError for input that cannot be understood, and StoreError for a folder that is no run.
    """
    run = api.Run.open(of) if of is not None else None
    if run is None:
        given = {"name": "design", "devices": list(devices), "interleave": list(SIDE_BY_SIDE)}
        given |= limited(settings or {})
        run = _bench(models, compilers, batch_sizes, profile, given, out=out, observe=observe)
    found = design_of(*_parts(run), limits=run_limits(run.path))
    return Studied(run, found, write_refinement(run.path, found.refinement))


def develop(
    families: Sequence[str] = (),
    *,
    depths: Sequence[int] = (1, 2, 4, 8),
    widths: Sequence[int] = (64,),
    resolution: int = 56,
    limit_ms: float | None = None,
    compilers: Sequence[str] = (),
    batch_sizes: Sequence[int] = (1,),
    profile: str = "default",
    out: str | Path | None = None,
    of: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    observe: api.Observe = lambda event: None,
) -> Studied[Development]:
    """Return the development study of blocks (all families unless named) over depth and width.

    ``limit_ms`` is a latency that a model must stay within. Otherwise as ``design``.
    """
    run = api.Run.open(of) if of is not None else None
    if run is None:
        models = models_of(families or list(FAMILIES), depths, widths=widths, resolution=resolution)
        given = {"name": "develop", **limited(settings or {})}
        run = _bench(models, compilers, batch_sizes, profile, given, out=out, observe=observe)
    limits = run_limits(run.path)
    found = develop_of(*_parts(run), limit_ms=limit_ms, count=_count, limits=limits)
    return Studied(run, found, write_refinement(run.path, found.refinement))


def _count(family: str, sizes: Mapping[str, int]) -> Mapping[str, int]:
    try:
        return count_block(family, sizes)
    except (NGraphBenchError, ImportError):
        # A run from elsewhere may be studied where there is no torch.
        return {}


def _bench(
    models: Sequence[str],
    compilers: Sequence[str],
    batch_sizes: Sequence[int],
    profile: str,
    settings: Mapping[str, Any],
    *,
    out: str | Path | None,
    observe: api.Observe,
) -> api.Run:
    """Return the whole run in a folder, which may hold sessions of earlier experiments."""
    folder = Path(out) if out is not None else api.default_folder(str(settings["name"]))
    run = api.bench(
        models,
        compilers=compilers,
        batch_sizes=batch_sizes,
        profile=profile,
        out=folder,
        settings=settings,
        observe=observe,
    )
    return api.Run(run.path)


def _parts(run: api.Run) -> tuple[list[Json], list[Json], Any]:
    return run.history(), run.sessions(), run.samples


def limited(settings: Mapping[str, Any]) -> Json:
    """Return settings with the limits of an experiment, which are longer than a bench's."""
    limits = Limits()
    usual = {
        "first_call": limits.first_call_s,
        "compile": limits.compile_s,
        "cell": limits.cell_s,
    }
    return {**settings, "limits": {**usual, **settings.get("limits", {})}}
