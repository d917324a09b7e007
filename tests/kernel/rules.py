"""The rules of other tools, and ours, on the same simulated machine for the same seconds.

All rules see the same timings, means over slots of about 50 ms, and pay the same for a switch
to another process. They differ in the order of measuring and in the statistic alone. Starting
and compiling count for none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scenarios import MS, SWITCH_NS, Machine, Program, run_epoch
from scipy.stats import binom
from sessions import DEFAULT, TRUTH, columns

from ngraphbench.profiles import SECOND, Profile
from ngraphbench.session.kernel import Row
from ngraphbench.session.schedule import Pair
from ngraphbench.stats import t_quantile
from ngraphbench.summary import compare, launch_of

CONFIDENCE = 0.95
SLOT_NS = DEFAULT.slot_ns
CALL_NS = 10 * MS
REPETITIONS = 9
ABBA_BLOCK_S = 1.0
NEVER = 10**9

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time of a candidate over that of the baseline; its 95 % interval if the rule has one."""

    estimate: float
    low: float = math.nan
    high: float = math.nan

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rule says in one session: ratios by candidate, and the seconds it measured."""

    ratios: dict[str, Ratio]
    seconds: float


@dataclass(slots=True)
class Bench:
    """One machine with its programs, for one session of one rule."""

    machine: Machine
    launch_sd: float = 0.0
    truth: Mapping[str, float] = field(default_factory=lambda: TRUTH)

    def launch(self) -> dict[str, Program]:
        """Return freshly started programs: each is a little fast or slow for its lifetime."""
        rng = self.machine.rng
        return {
            name: Program(
                self.machine, name, CALL_NS * ratio, launch=self.launch_sd * rng.standard_normal()
            )
            for name, ratio in self.truth.items()
        }

    def shuffled(self, names: Sequence[str]) -> list[str]:
        return [names[index] for index in self.machine.rng.permutation(len(names))]

    def slot(self, program: Program) -> float:
        """Return ns per call over some 50 ms."""
        machine, clock = self.machine, self.machine.clock
        effects = program.launch + machine.drift(clock.now_ns() / 1e9) + machine.noise()
        call_ns = program.call_ns * math.exp(effects)
        clock.advance_ns(int(math.ceil(SLOT_NS / call_ns) * call_ns))
        return call_ns

    def block(self, program: Program, seconds: float) -> Times:
        """Return ns per call, slot after slot, for that long; the switch is part of it."""
        clock = self.machine.clock
        end_ns = clock.now_ns() + int(seconds * SECOND)
        clock.advance_ns(SWITCH_NS)
        found = [self.slot(program)]
        while clock.now_ns() < end_ns:
            found.append(self.slot(program))
        return np.array(found)

    def against_base(
        self, times: Mapping[str, Times], rule: Callable[[Times, Times], Ratio]
    ) -> Outcome:
        """Return what ``rule`` says of each candidate's times and the baseline's."""
        base = times["base"]
        ratios = {name: rule(found, base) for name, found in times.items() if name != "base"}
        return Outcome(ratios, self.machine.now_s)


# -- statistics


def means(a: Times, b: Times) -> Ratio:
    """Return the ratio of means with Welch's t interval (delta method)."""
    shares = [float(np.var(x, ddof=1)) / len(x) / float(np.mean(x)) ** 2 for x in (a, b)]
    squares = sum(share**2 / (len(x) - 1) for share, x in zip(shares, (a, b), strict=True))
    half = t_quantile(CONFIDENCE, sum(shares) ** 2 / squares) * math.sqrt(sum(shares))
    return around(math.log(float(np.mean(a) / np.mean(b))), half, half)


def medians(a: Times, b: Times) -> Ratio:
    """Return the ratio of medians; order statistics give both intervals, joined as errors are."""
    (a_low, a_mid, a_high), (b_low, b_mid, b_high) = (np.log(order_statistics(x)) for x in (a, b))
    below, above = (
        math.hypot(a_mid - a_low, b_high - b_mid),
        math.hypot(a_high - a_mid, b_mid - b_low),
    )
    return around(float(a_mid - b_mid), below, above)


def order_statistics(times: Times) -> Times:
    """Return the median between the ends of its distribution-free 95 % interval."""
    count = len(times)
    cut = max(0, int(binom.ppf((1 - CONFIDENCE) / 2, count, 0.5)) - 1)
    ordered = np.sort(times)
    return np.array([ordered[cut], np.median(times), ordered[count - 1 - cut]])


def minima(a: Times, b: Times) -> Ratio:
    """Return the ratio of the shortest times; no interval belongs to it."""
    return Ratio(float(a.min() / b.min()))


def paired_cycles(a: Times, b: Times) -> Ratio:
    """Return the ratio over pairs of values with the t interval of their log ratios."""
    logs = np.log(a / b)
    half = t_quantile(CONFIDENCE, len(logs) - 1) * float(np.std(logs, ddof=1) / len(logs) ** 0.5)
    return around(float(np.mean(logs)), half, half)


def rank_sums(a: Times, b: Times) -> Ratio:
    """Return the ratio of means, with the interval that belongs to the Mann-Whitney test."""
    differences = np.sort(np.subtract.outer(np.log(a), np.log(b)).ravel())
    cut = mann_whitney_cut(len(a), len(b))
    estimate = float(np.mean(a) / np.mean(b))
    return Ratio(estimate, math.exp(differences[cut - 1]), math.exp(differences[-cut]))


@lru_cache(maxsize=8)
def mann_whitney_cut(first: int, second: int) -> int:
    """Return the largest k with P(U < k) <= 2.5 % for samples of these sizes, exactly.

    The number of ways to each U is a coefficient of the Gaussian binomial.
    """
    ways = np.zeros(first * second + 1)
    ways[0] = 1.0
    for size in range(1, first + 1):
        ways[second + size :] -= ways[: -(second + size)].copy()
        for value in range(size, len(ways)):
            ways[value] += ways[value - size]
    below = np.cumsum(ways) / math.comb(first + second, first)
    return int(np.searchsorted(below, (1 - CONFIDENCE) / 2, side="right"))


def around(log_ratio: float, below: float, above: float) -> Ratio:
    """Return a ratio from its logarithm and how far its interval reaches to either side."""
    return Ratio(math.exp(log_ratio), math.exp(log_ratio - below), math.exp(log_ratio + above))


# -- orders of measuring


def sequential(bench: Bench, seconds: float) -> dict[str, Outcome]:
    """One candidate after another, each once: what most tools do, with three statistics."""
    programs, times = bench.launch(), {}
    for name in bench.shuffled(list(programs)):
        times[name] = bench.block(programs[name], seconds / len(programs))
    return {
        "sequential mean": bench.against_base(times, means),
        "sequential median": bench.against_base(times, medians),
        "sequential minimum": bench.against_base(times, minima),
    }


def there_and_back(bench: Bench, seconds: float) -> dict[str, Outcome]:
    """ABBA by hand: all in one order, then in the reverse; both blocks are thrown together."""
    programs = bench.launch()
    order, length = bench.shuffled(list(programs)), seconds / len(programs) / 2
    times: dict[str, Times] = {name: np.array([]) for name in programs}
    for name in [*order, *reversed(order)]:
        times[name] = np.append(times[name], bench.block(programs[name], length))
    return {"ABBA once": bench.against_base(times, means)}


def abba_cycles(bench: Bench, seconds: float) -> dict[str, Outcome]:
    """ABBA in blocks of 1 s, again and again; a cycle's mean is a value, cycles are paired."""
    programs = bench.launch()
    order, per_cycle = list(programs), 2 * len(programs)
    cycles = max(2, round(seconds / per_cycle / ABBA_BLOCK_S))
    length = seconds / per_cycle / cycles
    values: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(cycles):
        order = bench.shuffled(order)
        blocks = [(name, bench.block(programs[name], length)) for name in [*order, *order[::-1]]]
        for name in order:
            values[name].append(float(np.mean([np.mean(x) for who, x in blocks if who == name])))
    times = {name: np.array(found) for name, found in values.items()}
    return {"ABBA cycles": bench.against_base(times, paired_cycles)}


def shuffled_repetitions(bench: Bench, seconds: float) -> dict[str, Outcome]:
    """google-benchmark's random interleaving: nine repetitions of each, all shuffled.

    It reports means; its compare.py runs the Mann-Whitney test over repetitions.
    """
    programs = bench.launch()
    length = seconds / len(programs) / REPETITIONS
    values: dict[str, list[float]] = {name: [] for name in programs}
    for name in bench.shuffled(list(programs) * REPETITIONS):
        values[name].append(float(np.mean(bench.block(programs[name], length))))
    times = {name: np.array(found) for name, found in values.items()}
    return {"shuffled repetitions": bench.against_base(times, rank_sums)}


def alternating(bench: Bench, seconds: float) -> dict[str, Outcome]:
    """TorchBench's: each candidate in turns with the baseline, in one process, unpaired t test.

    The speed-up is a ratio of medians. A switch costs nothing, since there is no process to
    switch to; that two models in one process distort each other is left out in its favour.
    """
    programs, found = bench.launch(), {}
    others = [name for name in programs if name != "base"]
    for name in bench.shuffled(others):
        end_s = bench.machine.now_s + seconds / len(others)
        turns: list[tuple[float, float]] = []
        while bench.machine.now_s < end_s:
            turns.append((bench.slot(programs["base"]), bench.slot(programs[name])))
        base, own = np.array(turns).T
        found[name] = replace(means(own, base), estimate=float(np.median(own) / np.median(base)))
    return {"alternating": Outcome(found, bench.machine.now_s)}


# -- ours


def equal_seconds(seconds: float, candidates: int) -> Profile:
    """Return the default profile with that much time in all, which it never stops short of."""
    budget_ns = int(seconds * SECOND / candidates)
    return replace(DEFAULT, budget_ns=budget_ns, half_width=0.0, rounds_min=NEVER, rounds_max=NEVER)


def interleaved(bench: Bench, profile: Profile, *, seed: int) -> Outcome:
    """Return what our kernel and summary say: three launches, rounds in random order, pairs."""
    rows: dict[str, list[Row]] = {name: [] for name in bench.truth}
    for epoch in range(profile.epochs):
        programs = bench.launch()
        found = run_epoch(
            programs,
            profile=profile,
            epoch=epoch,
            seed=seed,
            pairs=[Pair(name, "base") for name in programs if name != "base"],
        )
        for name in rows:
            rows[name] += found.rows[name]
    samples = {name: columns(found) for name, found in rows.items()}
    launch = launch_of(list(samples.values()))
    ratios = {}
    for name, own in samples.items():
        if name == "base":
            continue
        said = compare(own, samples["base"], confidence=profile.confidence, launch=launch)
        assert said is not None
        ratios[name] = Ratio(said.estimate, said.low, said.high)
    return Outcome(ratios, bench.machine.now_s)


PEERS: tuple[Callable[[Bench, float], dict[str, Outcome]], ...] = (
    sequential,
    there_and_back,
    abba_cycles,
    shuffled_repetitions,
    alternating,
)
OURS = "interleaved"


def outcomes(
    make_bench: Callable[[np.random.Generator], Bench],
    *,
    seed: int,
    seconds: float,
    peers: Sequence[Callable[[Bench, float], dict[str, Outcome]]] = PEERS,
) -> dict[str, Outcome]:
    """Return what each rule says in the session of that seed.

    Ours goes first and ends with a whole round; the others get the very seconds it took.
    """
    bench = make_bench(np.random.default_rng(seed))
    ours = interleaved(bench, equal_seconds(seconds, len(bench.truth)), seed=seed)
    found = {}
    for number, peer in enumerate(peers):
        found.update(peer(make_bench(np.random.default_rng((seed, number))), ours.seconds))
    return {**found, OURS: ours}


@dataclass(slots=True)
class Count:
    """Counts of one rule over sessions, and the sums that means are made of."""

    sessions: int = 0
    misordered: int = 0
    wrong: int = 0
    right: int = 0
    alarms: int = 0
    covered: int = 0
    intervals: int = 0
    seconds: float = 0.0
    squares: float = 0.0

    def add(self, said: Outcome, truth: Mapping[str, float]) -> None:
        """Count one session; b3 is 3 % slower than the baseline, aa is its twin."""
        close, twin = said.ratios["b3"], said.ratios["aa"]
        self.sessions += 1
        self.misordered += close.estimate <= 1.0
        self.wrong += close.high < 1.0
        self.right += close.low > 1.0
        self.seconds += said.seconds
        for name, ratio in said.ratios.items():
            self.squares += math.log(ratio.estimate / truth[name]) ** 2 / len(said.ratios)
            if not math.isnan(ratio.low):
                self.intervals += 1
                self.covered += ratio.holds(truth[name])
        if not math.isnan(twin.low):
            self.alarms += not twin.holds(1.0)
