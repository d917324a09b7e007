"""One figure over many models: means of speed-ups, and GraphNet's S(t) and ES(t).

Source of S(t) and ES(t): arXiv 2510.24035, for comparison with that literature. Each is about
the models at hand, not about models in general.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ngraphbench.analysis.contrasts import Terms, contrast
from ngraphbench.analysis.tables import Cell, Evidence, Interval
from ngraphbench.types import Json

__all__ = [
    "ERROR_TOLERANCES",
    "TOLERANCES",
    "Outcome",
    "Sample",
    "Score",
    "SpeedupMean",
    "es_score",
    "s_score",
    "samples_of",
    "scores",
    "speedup_means",
    "tolerances",
]

PENALTY = 0.1
"""``b``: what an incorrect sample counts."""

TOLERANCES = range(-10, 5)
"""The values of t that are tabled."""

ERROR_TOLERANCES = {"accuracy": 1, "runtime": 3, "compile": 3}
"""From which t on ES(t) forgives an error, as GraphNet's own evaluation has it."""

EXPONENTS = {
    "fp16": (3.0 / 5.0, 1.0),
    "bf16": (1.796 / 5.0, 1.0),
    "fp32": (5.886 / 5.0, 1.0),
    "fp64": (7.0 / 5.0, 7.0 / 5.0),
}

Outcome: TypeAlias = Literal["timed", "accuracy", "runtime", "compile"]


@dataclass(frozen=True, slots=True)
class SpeedupMean:
    """A compiler's speed-up over models at one batch size.

    ``geometric`` has an interval about these very models; ``harmonic`` is the speed-up of all
    of them run in turn, if each took as long under the baseline. ``count`` models of ``of``
    have a speed-up; the others are left out, not imputed.
    """

    compiler: str
    batch: int
    device: str
    precision: str
    geometric: Interval | None
    harmonic: float | None
    count: int
    of: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One cell for S(t): its speed-up, and the errors that decide from which t on it passes.

    ``max_abs`` and ``smallest_rtol`` are the largest over outputs and input sets.
    """

    outcome: Outcome
    precision: str = "fp32"
    speedup: float | None = None
    max_abs: float | None = None
    smallest_rtol: float | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """S(t) and ES(t) of one compiler, over every model and batch size of a device."""

    compiler: str
    device: str
    samples: int
    tolerances: tuple[int, ...]
    s: tuple[float, ...]
    es: tuple[float, ...]


def speedup_means(evidence: Evidence) -> list[SpeedupMean]:
    """Return one per compiler, batch size, device and precision, over all models."""
    gathered: dict[tuple[str, int, str, str], list[tuple[Cell, Cell | None]]] = {}
    for group in evidence.groups:
        for cell in group.cells:
            if cell.label != group.baseline:
                key = (cell.label, group.batch, group.device, group.precision)
                gathered.setdefault(key, []).append((cell, group.base))
    return [_mean(evidence, key, pairs) for key, pairs in gathered.items()]


def _mean(
    evidence: Evidence,
    key: tuple[str, int, str, str],
    pairs: Sequence[tuple[Cell, Cell | None]],
) -> SpeedupMean:
    ratios: list[float] = []
    terms: list[tuple[Cell, float]] = []
    for cell, base in pairs:
        if base is None or not cell.ranked:
            continue
        found = contrast(evidence, [(base, 1.0), (cell, -1.0)])
        if found is not None:
            ratios.append(found.factor.estimate)
            terms += [(base, 1.0), (cell, -1.0)]
    shared = _geometric(evidence, terms, len(ratios))
    return SpeedupMean(
        *key,
        geometric=shared,
        harmonic=len(ratios) / sum(1.0 / ratio for ratio in ratios) if ratios else None,
        count=len(ratios),
        of=len(pairs),
    )


def _geometric(evidence: Evidence, terms: Terms, count: int) -> Interval | None:
    if not count:
        return None
    found = contrast(evidence, [(cell, weight / count) for cell, weight in terms])
    return found.factor if found else None


def tolerances(t: float, precision: str) -> tuple[float, float]:
    """Return (rtol, atol) at tolerance t; precisions that are not known are exact.

    >>> tolerances(0, "fp32")
    (1.0, 1.0)
    """
    if precision not in EXPONENTS:
        return 0.0, 0.0
    relative, absolute = EXPONENTS[precision]
    return 10.0 ** (relative * t), 10.0 ** (absolute * t)


def is_correct(sample: Sample, t: float) -> bool:
    """Return whether a sample's outputs are surely within the tolerances at t.

    ``allclose`` asks for error <= atol + rtol * |reference| everywhere. Records hold the
    largest absolute and the largest relative error: either one within its own tolerance is
    enough. So a sample may pass later here than by ``allclose``, but sooner only by elements
    whose reference is 0, which have no relative error.
    """
    if sample.outcome != "timed":
        return False
    rtol, atol = tolerances(t, sample.precision)
    within = [
        (sample.max_abs, atol),
        (sample.smallest_rtol, rtol),
    ]
    return any(error is not None and error <= limit for error, limit in within)


def s_score(samples: Sequence[Sample], t: float) -> float:
    """Return S(t): speed-ups of correct samples, diluted by a penalty for the others.

    With ``p`` = 0: slow samples are not punished beyond their own slowness. Raises ValueError
    for no samples.
    """
    alpha, share = _parts(samples, t)
    return float(alpha**share * PENALTY ** (1.0 - share))


def es_score(samples: Sequence[Sample], t: float) -> float:
    """Return ES(t): as S(t), but for t above 0 errors are forgiven by kind.

    Raises ValueError for no samples.
    """
    alpha, share = _parts(samples, t)
    gamma = PENALTY
    if t > 0:
        errors = [_error(sample) for sample in samples if not is_correct(sample, t)]
        unforgiven = sum(ERROR_TOLERANCES[kind] > t for kind in errors)
        gamma = PENALTY ** (unforgiven / len(errors)) if errors else 1.0
    return float(alpha**share * gamma ** (1.0 - share))


def _parts(samples: Sequence[Sample], t: float) -> tuple[float, float]:
    """Return the geometric mean of the correct samples' speed-ups, and their share."""
    if not samples:
        raise ValueError("A score of no samples.")
    right = [s.speedup for s in samples if s.speedup is not None and is_correct(s, t)]
    mean = math.exp(sum(map(math.log, right)) / len(right)) if right else 1.0
    return mean, len(right) / len(samples)


def _error(sample: Sample) -> Literal["accuracy", "runtime", "compile"]:
    return "accuracy" if sample.outcome == "timed" else sample.outcome


def scores(evidence: Evidence) -> list[Score]:
    """Return S(t) and ES(t) of every compiler that is not the baseline, by device."""
    gathered: dict[tuple[str, str], list[Sample]] = {}
    for group in evidence.groups:
        for cell in group.cells:
            if cell.label != group.baseline and group.base is not None:
                place = gathered.setdefault((cell.label, group.device), [])
                place += samples_of(evidence, cell, group.base)
    return [
        Score(
            compiler=compiler,
            device=device,
            samples=len(found),
            tolerances=tuple(TOLERANCES),
            s=tuple(s_score(found, t) for t in TOLERANCES),
            es=tuple(es_score(found, t) for t in TOLERANCES),
        )
        for (compiler, device), found in gathered.items()
        if found
    ]


def samples_of(evidence: Evidence, cell: Cell, base: Cell) -> list[Sample]:
    """Return a cell as a sample of S(t), or nothing for one that says nothing of a compiler.

    That is what was not attempted, could not be installed, or is not steady.
    """
    record, precision = cell.record, str(cell.record["case"]["precision"])
    verification: Json = record["verification"] or {}
    if cell.status in ("ok", "unverifiable", "wrong"):
        found = contrast(evidence, [(base, 1.0), (cell, -1.0)]) if cell.ranked else None
        if found is None:
            # What was wrong is not timed: it counts as an error of accuracy.
            return [Sample("accuracy", precision)] if cell.status == "wrong" else []
        return [
            Sample(
                "timed",
                precision,
                found.factor.estimate,
                verification.get("max_abs"),
                verification.get("smallest_rtol"),
            )
        ]
    if cell.status in ("skipped", "unavailable", "unstable"):
        return []
    early = record["stage"] in ("plan", "export", "environment", "probe", "compile")
    return [Sample("compile" if early else "runtime", precision)]
