"""The development study: which blocks, how deep and how wide, under which compiler.

It repeats blocks at some widths, measures all of them in one session, and asks two
things of each compiler: does it gain from repetition, or is it an overhead that is spread
over more blocks; and how much of each block fits within a limit of latency.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from ngraphbench.analysis.depth import DepthFit, depth_fits
from ngraphbench.analysis.metrics import finite
from ngraphbench.analysis.tables import Evidence, Interval, Read, join
from ngraphbench.case import Limits
from ngraphbench.errors import SpecError
from ngraphbench.models.blocks import block_sizes
from ngraphbench.studies.composition import (
    Count,
    Hybrid,
    Kind,
    Material,
    Point,
    fronts,
    hybrids,
    kinds,
    materials,
)
from ngraphbench.studies.refinement import Refinement, refine
from ngraphbench.studies.unsettled import (
    is_of,
    wanted_at_limit,
    wanted_failures,
    wanted_fits,
    wanted_materials,
)
from ngraphbench.types import Json

__all__ = ["Development", "Finding", "Mechanism", "Viable", "develop", "models_of"]

BENT = 0.05
"""A line whose lack of fit is less probable than this by chance is called bent."""

Mechanism: TypeAlias = Literal["repetition", "dearer", "overhead", "falls", "none", "unresolved"]

WORDS: Mapping[Mechanism, str] = {
    "repetition": "repeated blocks get cheaper",
    "dearer": "repeated blocks get dearer",
    "overhead": "the speed-up grows because an overhead is spread over more blocks",
    "falls": "the speed-up falls with depth",
    "none": "the speed-up is level over depth",
    "unresolved": "what depth does to the speed-up is unresolved",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What depth does to one compiler's speed-up on one kind of block."""

    fit: DepthFit
    mechanism: Mechanism

    @property
    def sentence(self) -> str:
        """One sentence without a full stop, for people."""
        fit = self.fit
        head = f"{fit.name}, {fit.label}, batch {fit.batch}: {WORDS[self.mechanism]}"
        if fit.speedups:
            first, last = fit.speedups[0], fit.speedups[-1]
            head += (
                f" ({first.speedup.times} at depth {first.depth},"
                f" {last.speedup.times} at depth {last.depth}"
            )
            head += f"; repeat gain {fit.repeat_gain.times})" if fit.repeat_gain else ")"
        return head


@dataclass(frozen=True, slots=True)
class Viable:
    """The deepest model of one kind of block, of one width, that surely stays within the limit.

    ``title`` says what tells it from other kinds of the run. ``flops`` and ``parameters`` are of
    one image; None where they are not known. Nothing is measured of what the model can learn.
    """

    title: str
    label: str
    batch: int
    depth: int
    latency_ms: Interval
    flops: int | None = None
    parameters: int | None = None

    @property
    def sentence(self) -> str:
        """One sentence without a full stop, for people."""
        size = "" if self.flops is None else f", {self.flops / 1e6:,.0f} MFLOPs an image"
        return (
            f"{self.title} under {self.label}, batch {self.batch}: up to depth {self.depth}"
            f" ({self.latency_ms.estimate:.3g} ms{size})"
        )


@dataclass(frozen=True, slots=True)
class Development:
    """Findings, what is viable within ``limit_ms``, and the decision that follows.

    ``chosen`` has the most FLOPs of all that is viable, at each batch size. ``materials`` say
    what one more block is worth, ``points`` are capacity against compiled throughput,
    ``hybrids`` speed-ups on hybrid blocks beside those on simple ones.
    """

    findings: tuple[Finding, ...]
    limit_ms: float | None
    viable: tuple[Viable, ...]
    chosen: tuple[Viable, ...]
    materials: tuple[Material, ...] = ()
    points: tuple[Point, ...] = ()
    hybrids: tuple[Hybrid, ...] = ()
    refinement: Refinement | None = None

    def to_json(self) -> Json:
        """Return plain JSON; numbers that are not finite become null."""
        found: Json = finite({"decision": self.decision, **asdict(self)})
        return found

    @property
    def decision(self) -> str:
        """The decision in a few sentences; no block is named that is not surely ahead."""
        told = [] if self.limit_ms is None else [self._within(self.limit_ms)]
        for batch in dict.fromkeys(one.batch for one in self.materials):
            told.append(_building(batch, [one for one in self.materials if one.batch == batch]))
        return " ".join(told) or "Nothing can be decided: no block has a compiled line over depth."

    def _within(self, limit_ms: float) -> str:
        if not self.viable:
            return f"Nothing surely stays within {limit_ms:g} ms."
        if not self.chosen:
            return f"FLOPs are not known here: choose among what stays within {limit_ms:g} ms."
        best = "; ".join(one.sentence for one in self.chosen)
        return f"The most computation within {limit_ms:g} ms: {best}."


def models_of(
    families: Sequence[str], depths: Sequence[int], *, widths: Sequence[int], resolution: int
) -> list[str]:
    """Return the models of a study. Raises SpecError for families and sizes that do not fit."""
    if len(set(depths)) < 2:
        raise SpecError(
            f"A study over depth needs two depths, not {', '.join(map(str, depths)) or 'none'}.",
            key="--depth",
            reason="depths",
            hint="Write --depth 1,2,4,8.",
        )
    models = []
    for family, width in itertools.product(families, sorted(set(widths))):
        for depth in sorted(set(depths)):
            sizes = {"depth": depth, "width": width, "resolution": resolution}
            block_sizes(family, sizes)
            query = "&".join(f"{key}={value}" for key, value in sizes.items())
            models.append(f"block:{family}?{query}")
    return models


def _building(batch: int, here: Sequence[Material]) -> str:
    best = here[0]
    rate = f"{best.gflops_per_s.estimate:.3g} GFLOP/s in one more block"
    if len(here) == 1:
        return f"At batch {batch} only {best.title} can be told of: {rate} under {best.label}."
    if best.standing == "best":
        return (
            f"At batch {batch} build with {best.title} under {best.label}: {rate}"
            f" ({best.gflops_per_s.low:.3g}-{best.gflops_per_s.high:.3g}), surely the most."
        )
    names = join([one.title for one in here if one.standing in ("level", "open")])
    return f"At batch {batch} it is open which block computes most per second: {names}."


def develop(
    records: Sequence[Json],
    sessions: Sequence[Json],
    read: Read,
    *,
    limit_ms: float | None = None,
    count: Count | None = None,
    limits: Limits | None = None,
) -> Development:
    """Return what a run of blocks says. Without ``count`` sizes are left open.

    ``limits`` are those of the run. Where a model was measured again the newest counts.
    """
    evidence = Evidence(records, sessions, read)
    fits = depth_fits(evidence)
    findings = tuple(
        Finding(fit, mechanism(fit)) for fit in fits if fit.label != fit.baseline and not fit.reason
    )
    found, size = kinds(evidence), _sized(count)
    viable = () if limit_ms is None else tuple(_viable(found, limit_ms, size))

    def marginal_ms(kind: Kind, label: str) -> Interval | None:
        return next((fit.beta_ms for fit in fits if fit.label == label and is_of(fit, kind)), None)

    made = tuple(materials(evidence, found, marginal_ms, size))
    unclear = [one.fit for one in findings if one.mechanism == "unresolved"]
    wanted = [
        *wanted_fits(found, unclear),
        *wanted_materials(found, made),
        *wanted_failures(evidence),
        *([] if limit_ms is None else wanted_at_limit(found, limit_ms)),
    ]
    return Development(
        findings=findings,
        limit_ms=limit_ms,
        viable=viable,
        chosen=_chosen(viable),
        materials=made,
        points=tuple(fronts(evidence, found, size)),
        hybrids=tuple(hybrids(evidence, found)),
        refinement=refine(wanted, evidence.sessions, name="develop-next", limits=limits),
    )


def _sized(count: Count | None) -> Count:
    """Return what counts each model once, or knows no sizes."""

    @functools.cache
    def known(family: str, sizes: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
        return count(family, dict(sizes)) if count else {}

    return lambda family, sizes: known(family, tuple(sorted(sizes.items())))


def mechanism(fit: DepthFit) -> Mechanism:
    """Return what a fit says of repetition.

    Blocks get cheaper or dearer where the line is bent, and surely in that direction. Where it
    is straight a speed-up that surely grows is an overhead that is spread; one that surely
    falls says that the baseline spreads more of its own.
    """
    if fit.trend is None:
        return "unresolved"
    if fit.bend is not None and fit.lack_of_fit is not None and fit.lack_of_fit < BENT:
        if fit.bend.high < 1.0:
            return "repetition"
        return "dearer" if fit.bend.low > 1.0 else "unresolved"
    if fit.trend.low > 1.0:
        return "overhead"
    if _level(fit.trend):
        return "none"
    return "falls" if fit.trend.high < 1.0 else "unresolved"


def _level(trend: Interval) -> bool:
    """Return whether a trend per doubling is surely less than 2 % either way."""
    return trend.low > 0.98 and trend.high < 1.02


def _viable(found: Sequence[Kind], limit_ms: float, count: Count) -> list[Viable]:
    """Return the deepest model within the limit, by kind of block and candidate."""
    deepest: dict[tuple[int, str], Viable] = {}
    for number, kind in enumerate(found):
        held = [one for by_depth in kind.sessions.values() for one in by_depth.items()]
        for depth, cell in ((depth, cell) for depth, group in held for cell in group.cells):
            latency, key = cell.latency, (number, cell.label)
            if not cell.ranked or latency is None or latency.high > limit_ms:
                continue
            # Of equal depths that of the newest session.
            if key in deepest and depth < deepest[key].depth:
                continue
            sizes = count(kind.family, {**kind.sizes, "depth": depth})
            flops, parameters = sizes.get("flops"), sizes.get("parameters")
            here = (kind.title, cell.label, kind.batch, depth)
            deepest[key] = Viable(*here, latency, flops, parameters)
    return list(deepest.values())


def _chosen(viable: Sequence[Viable]) -> tuple[Viable, ...]:
    chosen = []
    for batch in sorted({one.batch for one in viable}):
        known = [one for one in viable if one.batch == batch and one.flops is not None]
        if known:
            # Of equal computation, the faster.
            chosen.append(max(known, key=lambda one: (one.flops, -one.latency_ms.estimate)))
    return tuple(chosen)
