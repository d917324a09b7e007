"""Sessions on a virtual clock whose metrics are known: depth, orders and batch sizes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scenarios import DRIFTS, Machine, Program, run_epoch
from sessions import DEFAULT, MS, columns, too_often

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from run_fixture import Run, model

from ngraphbench.analysis.depth import depth_fits
from ngraphbench.analysis.reversal import reversals
from ngraphbench.analysis.scaling import scalings
from ngraphbench.analysis.tables import Evidence, Interval
from ngraphbench.case import ModelRef
from ngraphbench.profiles import Profile
from ngraphbench.session.kernel import Row
from ngraphbench.session.schedule import Pair

BASELINE, COMPILED = "eager", "openvino"


@dataclass(frozen=True)
class Cell:
    """A program of a session, and its true time per call."""

    model: ModelRef
    label: str
    batch: int
    ms: float


@dataclass
class Counts:
    """What intervals and verdicts came to, by name of the metric, against the truth."""

    sessions: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    covered: dict[str, int] = field(default_factory=dict)
    bias: dict[str, float] = field(default_factory=dict)
    wrong: int = 0
    right: int = 0
    verdicts: int = 0
    bent: int = 0

    def interval(self, name: str, found: Interval | None, truth: float) -> None:
        """Count one interval, and the log error of its estimate."""
        assert found is not None, name
        self.seen[name] = self.seen.get(name, 0) + 1
        self.covered[name] = self.covered.get(name, 0) + (found.low <= truth <= found.high)
        error = math.log(found.estimate / truth) if found.estimate > 0 and truth > 0 else math.nan
        self.bias[name] = self.bias.get(name, 0.0) + error

    def add(self, other: Counts) -> None:
        """Take in what other sessions came to."""
        for name in ("sessions", "wrong", "right", "verdicts", "bent"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, theirs in (
            (self.seen, other.seen),
            (self.covered, other.covered),
            (self.bias, other.bias),
        ):
            for name, value in theirs.items():
                mine[name] = mine.get(name, 0) + value  # type: ignore[operator]

    def coverage(self, name: str) -> float:
        return self.covered[name] / self.seen[name]

    def too_low(self, name: str, wanted: float = 0.93) -> bool:
        """Return whether intervals miss the truth more often than chance explains."""
        missed = self.seen[name] - self.covered[name]
        return too_often(missed, self.seen[name], 1.0 - wanted)


@dataclass
class Session:
    """One session on a virtual clock: its run, and how slow its machine was on the mean."""

    run: Run
    slowdown: float

    @property
    def evidence(self) -> Evidence:
        return Evidence(*self.run.parts)


@dataclass(frozen=True)
class Conditions:
    """How a machine drifts, how much programs differ from launch to launch, and the profile."""

    drift: str
    launch_sd: float
    profile: Profile = DEFAULT


def measured(cells: Sequence[Cell], given: Conditions, seed: int) -> Session:
    """Return one session on a virtual clock."""
    profile, launch_sd = given.profile, given.launch_sd
    rng = np.random.default_rng(seed)
    moves, drifting = [], DRIFTS[given.drift](rng)

    def recorded(now_s: float) -> float:
        moves.append(drifting(now_s))
        return moves[-1]

    machine = Machine(rng, recorded)
    names = {f"{cell.model.label}/{cell.label}/{cell.batch}": cell for cell in cells}
    rows: dict[str, list[Row]] = {name: [] for name in names}
    for epoch in range(profile.epochs):
        programs = {
            name: Program(machine, name, cell.ms * MS, launch=launch_sd * rng.standard_normal())
            for name, cell in names.items()
        }
        pairs = [
            Pair(name, f"{cell.model.label}/{BASELINE}/{cell.batch}")
            for name, cell in names.items()
            if cell.label != BASELINE
        ]
        found = run_epoch(programs, profile=profile, epoch=epoch, seed=seed, pairs=pairs)
        for name in rows:
            rows[name] += found.rows[name]
    run = Run(profile)
    session = run.session()
    for name, cell in names.items():
        record = run.cell(session, cell.model, cell.label, cell.batch, ms=cell.ms)
        run.samples[record["measurement"]["samples"]] = columns(rows[name])
    return Session(run.summarise(), math.exp(float(np.mean(moves))))


DEPTHS = (1, 2, 4, 8, 16)
LINES = {BASELINE: (3.0, 4.0), COMPILED: (2.0, 1.5)}
"""Fixed overhead and cost of a block in ms."""


def _block(depth: int) -> ModelRef:
    return ModelRef(
        source=f"block:vit?depth={depth}",
        label=f"d{depth}",
        kind="block",
        content=f"d{depth}",
        args={"depth": depth, "width": 64, "resolution": 56},
    )


def depth_session(given: Conditions, seed: int) -> Counts:
    """Count how one session's fits hold the lines that were put in."""
    cells = [
        Cell(_block(depth), label, 1, alpha + beta * depth)
        for label, (alpha, beta) in LINES.items()
        for depth in DEPTHS
    ]
    session = measured(cells, given, seed)
    counts = Counts(sessions=1)
    # Absolute times are those of the machine as it was meanwhile.
    level = session.slowdown
    for fit in depth_fits(session.evidence):
        alpha, beta = LINES[fit.label]
        counts.interval("alpha", fit.alpha_ms, alpha * level)
        counts.interval("beta", fit.beta_ms, beta * level)
        counts.interval("bend", fit.bend, 1.0)
        if fit.label == COMPILED:
            (a_e, b_e), speedup = LINES[BASELINE], sum(LINES[BASELINE]) / (alpha + beta)
            counts.interval("repeat gain", fit.repeat_gain, b_e / beta / speedup)
            for speed in fit.speedups:
                truth = (a_e + b_e * speed.depth) / (alpha + beta * speed.depth)
                counts.interval("S(d)", speed.speedup, truth)
        assert fit.lack_of_fit is not None
        counts.bent += fit.lack_of_fit < 0.05
        counts.verdicts += 1
    return counts


ORDERS = {
    "A": (10.0, 5.0),
    "B": (10.3, 4.85),
    "C": (11.0, 5.5),
    "D": (12.1, 3.0),
    "as A": (10.0, 5.0),
}
"""Times in ms under baseline and compiler: orders kept and reversed, 3 % apart and more, and one
pair without an order."""


def order_session(given: Conditions, seed: int) -> Counts:
    """Count the verdicts on all pairs that say the contrary of the truth, or the truth."""
    cells = [
        Cell(model(name), label, 1, ms)
        for name, both in ORDERS.items()
        for label, ms in zip((BASELINE, COMPILED), both, strict=True)
    ]
    counts = Counts(sessions=1)
    for order in reversals(*measured(cells, given, seed).run.parts):
        (a_base, a_mine), (b_base, b_mine) = ORDERS[order.model_a], ORDERS[order.model_b]
        truth = "kept" if (a_base < b_base) == (a_mine < b_mine) else "reversed"
        if (a_base, a_mine) == (b_base, b_mine):
            truth = "tie"
        counts.verdicts += 1
        counts.right += order.verdict == truth
        counts.wrong += order.verdict in ("kept", "reversed") and order.verdict != truth
    return counts


BATCH_MS = {BASELINE: {1: 10.0, 4: 26.0, 16: 90.0}, COMPILED: {1: 3.0, 4: 8.0, 16: 31.0}}


def batch_session(given: Conditions, seed: int) -> Counts:
    """Count how one session's intervals hold the true RTR, ASE and BSR, and their errors."""
    net = model("net")
    cells = [
        Cell(net, label, batch, ms) for label, by in BATCH_MS.items() for batch, ms in by.items()
    ]
    counts = Counts(sessions=1)
    for found in scalings(measured(cells, given, seed).evidence):
        mine, base = BATCH_MS[found.label], BATCH_MS[BASELINE]
        for row in found.rows:
            if row.batch == 1:
                continue
            ase = mine[1] / mine[row.batch]
            counts.interval("ASE", row.ase, ase)
            counts.interval("RTR", row.rtr, row.batch * ase)
            if found.label == COMPILED:
                counts.interval("BSR", row.bsr, ase / (base[1] / base[row.batch]))
        assert found.summary is not None
        mean = sum(w * mine[1] / mine[b] for b, w in ((1, 0.25), (4, 0.5), (16, 0.25)))
        counts.interval("mean ASE", found.summary.mean_ase, mean)
    return counts


KINDS: Mapping[str, Callable[[Conditions, int], Counts]] = {
    "depth": depth_session,
    "orders": order_session,
    "batches": batch_session,
}


def tally(kind: str, given: Conditions, *, sessions: int, first_seed: int = 0) -> Counts:
    """Return the counts over fixed-seed sessions of one kind."""
    counts = Counts()
    for seed in range(first_seed, first_seed + sessions):
        counts.add(KINDS[kind](given, seed))
    return counts
