"""Metrics against known truth on a virtual clock. Prints one row per kind, drift and launch sd.

Depth: share of 95 % intervals that hold the true overhead (alpha), cost of a block (beta),
repeat gain, bend and speed-ups (demand: 93 % and more), and of straight lines called bent
(p < 0.05). Orders: verdicts kept or reversed that are contrary to the truth (1 % at most), and
right ones; the rest is left unresolved. Batches: coverage and bias of RTR, ASE, BSR, mean ASE.

    python benchmarks/metrics.py [--sessions 500] [--processes 2] [--launch-sd 0 0.01 0.02]
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kernel"))

from known_metrics import KINDS, Conditions, Counts, tally
from scenarios import DRIFTS

CHUNK = 50
Task = tuple[str, str, float, int, int]


def count(task: Task) -> Counts:
    """Return the counts of some sessions: kind, drift, launch sd, first seed and how many."""
    kind, drift, launch_sd, first, sessions = task
    return tally(kind, Conditions(drift, launch_sd), sessions=sessions, first_seed=first)


def figures(kind: str, found: Counts) -> str:
    """Return what the counts of a row say."""
    if kind == "orders":
        return (
            f"wrong {found.wrong / found.verdicts:.4f}  right {found.right / found.verdicts:.3f}"
            f"  of {found.verdicts} verdicts"
        )
    parts = [
        f"{name} {found.coverage(name):.3f} ({found.bias[name] / found.seen[name]:+.2%})"
        for name in found.seen
    ]
    if kind == "depth":
        parts.append(f"straight called bent {found.bent / found.verdicts:.3f}")
    low = [name for name in found.seen if found.too_low(name)]
    return "  ".join(parts) + (f"  too low: {', '.join(low)}" if low else "")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--launch-sd", type=float, nargs="+", default=[0.0, 0.01, 0.02])
    parser.add_argument("--drift", nargs="+", default=list(DRIFTS), choices=list(DRIFTS))
    parser.add_argument("--kind", nargs="+", default=list(KINDS), choices=list(KINDS))
    options = parser.parse_args()
    print(f"{options.sessions} sessions in each row; coverage (bias)\n")
    with ProcessPoolExecutor(options.processes) as pool:
        for kind in options.kind:
            for launch_sd in options.launch_sd:
                for drift in options.drift:
                    starts = range(0, options.sessions, CHUNK)
                    tasks: list[Task] = [
                        (kind, drift, launch_sd, first, min(CHUNK, options.sessions - first))
                        for first in starts
                    ]
                    found = Counts()
                    for part in pool.map(count, tasks):
                        found.add(part)
                    head = f"{kind:<8} {drift:<8} {launch_sd:.1%}"
                    print(f"{head}  {figures(kind, found)}", flush=True)


if __name__ == "__main__":
    main()
