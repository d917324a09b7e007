"""Races against known truth on a virtual clock. Prints one row per scenario.

Six candidates of 1, 1.03, 1.1, 1.2, 1.5 (the baseline) and 2 times the best, and a sentinel.
wrong: the best was dropped or resolved slower (1 % at most). named: it alone is on top; the
rest is left unresolved. false: where the first two are equal, one of them is called the
fastest alone (5 % at most); naive: the same when plain 95 % intervals are peeked at after every
round. ratio: time to the decision over that of the same looks with everyone measured to the end
(median; half at most). s: median seconds of measuring.

    python benchmarks/racing.py [--sessions 1000] [--compared 200] [--first-seed 0] [--processes 2]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kernel"))

from races import Naive, Outcome, false_winner, outcome
from scenarios import DRIFTS

LAUNCH_SDS = (0.0, 0.01, 0.02)


def row(task: tuple[str, float, int, int, int]) -> tuple[str, float, Outcome, float]:
    """Return the counts of one scenario, and the share of false winners of naive peeking."""
    drift, launch_sd, sessions, compared, first_seed = task
    found = outcome(
        drift, launch_sd=launch_sd, sessions=sessions, compared=compared, first_seed=first_seed
    )
    seeds = range(first_seed, first_seed + compared)
    naive = [false_winner(drift, seed=seed, launch_sd=launch_sd, kind=Naive) for seed in seeds]
    return drift, launch_sd, found, sum(naive) / max(1, compared)


def main() -> None:
    """Race and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--compared", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    counts = (options.sessions, options.compared, options.first_seed)
    tasks = [(drift, sd, *counts) for drift in DRIFTS for sd in LAUNCH_SDS]
    print("drift     launch sd   wrong  named  false  naive  ratio   s")
    with ProcessPoolExecutor(options.processes) as pool:
        for drift, launch_sd, found, naive in pool.map(row, tasks):
            print(
                f"{drift:<9} {launch_sd:>8.1%}  {found.wrong / found.sessions:>6.4f}"
                f"  {found.named / found.sessions:>5.2f}  {found.false / found.sessions:>5.3f}"
                f"  {naive:>5.3f}  {statistics.median(found.ratios):>5.2f}"
                f"  {statistics.median(found.seconds):>3.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
