"""``ngb compare`` against known truth on a virtual clock, in full. Prints one row per scenario.

A row is pairs of runs of four programs: three that are compared, and their baseline. declared:
pairs of which any regression was declared; with no change that is a false alarm (5 % at most, by a
binomial test). seen: the program that was made slower is declared. blamed: another one is.

    python benchmarks/compare.py [--pairs 1000] [--processes 2] [--only same|slower|thorough]
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kernel"))

from comparisons import Comparing, Found, count
from sessions import too_often

CHUNKS = 20
ROWS: dict[str, tuple[Comparing, ...]] = {
    "same": (
        *(Comparing(drift) for drift in ("quiet", "walk", "bursts")),
        Comparing(launch_sd=0.0),
        Comparing(launch_sd=0.02),
        *(Comparing(profile="quick", launch_sd=sd) for sd in (0.005, 0.01, 0.02, 0.04)),
    ),
    "slower": (
        *(Comparing(launch_sd=sd, slower=by) for sd in (0.005, 0.01) for by in (0.05, 0.07)),
        Comparing("walk", slower=0.10),
        *(Comparing(profile="quick", launch_sd=0.005, slower=by) for by in (0.10, 0.15, 0.25)),
    ),
    "thorough": (
        Comparing(profile="thorough", slower=0.05),
        Comparing(profile="thorough"),
    ),
}


def counted(task: tuple[Comparing, int, int]) -> Found:
    """Return the counts of some pairs of a row."""
    comparing, first, pairs = task
    return count(comparing, pairs=pairs, first_seed=first)


def row(comparing: Comparing, found: Found) -> str:
    """Return the figures of a row, and whether there were too many false alarms."""
    alarms = found.blamed if comparing.slower else found.declared
    broken = "  too many false alarms" if too_often(alarms, found.pairs, 0.05) else ""
    return (
        f"{comparing.profile:<9} {comparing.drift:<8} {comparing.launch_sd:>9.1%}"
        f"  {comparing.slower:>6.0%}  {found.pairs:>5}  {found.declared / found.pairs:>8.3f}"
        f"  {found.seen / found.pairs:.3f}  {found.blamed / found.pairs:>6.3f}{broken}"
    )


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", choices=sorted(ROWS))
    options = parser.parse_args()
    size = max(1, options.pairs // CHUNKS)
    print("profile   drift    launch sd  slower  pairs  declared  seen   blamed", flush=True)
    with ProcessPoolExecutor(options.processes) as pool:
        for name, rows in ROWS.items():
            for comparing in rows if options.only in (None, name) else ():
                starts = range(0, options.pairs, size)
                tasks = [(comparing, at, min(size, options.pairs - at)) for at in starts]
                found = Found()
                for part in pool.map(counted, tasks):
                    found += part
                print(row(comparing, found), flush=True)


if __name__ == "__main__":
    main()
