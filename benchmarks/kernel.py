"""The kernel against known truth on a virtual clock, in full. Prints one row per scenario.

coverage: share of 95 % intervals that hold the truth (demand: 93 % and more). A/A: equal
programs declared different (5 % at most). wrong: the slower one declared faster at 3 % and at
10 % (1 % and 0.1 % at most). right: settled rightly at 3 %; the rest is left unresolved.
flagged: sessions in which a steady program was called unsteady (5 % at most). Then programs
that are not steady (seen: 95 % and more where quiet), and awkward conditions.

    python benchmarks/kernel.py [--sessions 1000] [--processes 2] [--only common|faults|conditions]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kernel"))

from scenarios import DRIFTS
from sessions import CONDITIONS, FAULTS, Scenario, Tally, broken_demands, tally

LAUNCH_SDS = (0.0, 0.005, 0.01, 0.02)
SCENARIOS: dict[str, tuple[Scenario, ...]] = {
    "common": tuple(Scenario(drift, drift, sd) for drift in DRIFTS for sd in LAUNCH_SDS),
    "faults": FAULTS,
    "conditions": CONDITIONS,
}
HEAD = (
    "scenario          launch sd  coverage  A/A    wrong 3 %  wrong 10 %  right 3 %  bias 3 %"
    "  flagged  s"
)


def count(task: tuple[str, int, int]) -> Tally:
    """Return the counts of one scenario; it is named by its place, since faults are closures."""
    kind, place, sessions = task
    return tally(SCENARIOS[kind][place], sessions=sessions)


def counted(pool: Executor, kind: str, sessions: int) -> Iterator[tuple[Scenario, Tally]]:
    """Yield each scenario of a kind with its counts, in order."""
    tasks = [(kind, place, sessions) for place in range(len(SCENARIOS[kind]))]
    return zip(SCENARIOS[kind], pool.map(count, tasks), strict=True)


def row(scenario: Scenario, found: Tally) -> str:
    """Return the figures of a scenario, and which demands they break."""
    broken = ", ".join(broken_demands(found, scenario.launch_sd))
    return (
        f"{scenario.name:<17} {scenario.launch_sd:>9.1%}  {found.coverage():>8.3f}"
        f"  {found.share(found.wrong, 'aa'):.3f}  {found.share(found.wrong, 'b3'):>9.4f}"
        f"  {found.share(found.wrong, 'b10'):>10.4f}"
        f"  {found.share(found.right, 'b3'):>9.2f}"
        f"  {found.bias['b3'] / found.sessions:>+8.2%}"
        f"  {found.alarms / found.sessions:>7.3f}"
        f"  {found.seconds / found.sessions:<3.0f}{'  broken: ' if broken else ''}{broken}"
    )


def print_common(pool: Executor, sessions: int) -> None:
    """Print drifts and launch effects."""
    print(f"\n{HEAD}")
    for scenario, found in counted(pool, "common", sessions):
        print(row(scenario, found), flush=True)


def print_faults(pool: Executor, sessions: int) -> None:
    """Print programs that are not steady."""
    print("\nnot steady         drift   flag        seen   others blamed, per session  s")
    for scenario, found in counted(pool, "faults", sessions):
        seen = found.share(found.flags, (scenario.blamed, scenario.flag))
        others = sum(n for (name, _), n in found.flags.items() if name != scenario.blamed)
        print(
            f"{scenario.name:<18} {scenario.drift:<7} {scenario.flag:<10}  {seen:.3f}"
            f"  {others / found.sessions:>26.3f}  {found.seconds / found.sessions:.0f}",
            flush=True,
        )


def print_conditions(pool: Executor, sessions: int) -> None:
    """Print awkward conditions."""
    print(f"\n{HEAD}    b10 covered: claim, within a launch")
    for scenario, found in counted(pool, "conditions", sessions):
        claim, within = (found.share(f, "b10") for f in (found.covered, found.within))
        print(f"{row(scenario, found)} {claim:.3f}, {within:.3f}", flush=True)


PARTS = {"common": print_common, "faults": print_faults, "conditions": print_conditions}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", choices=sorted(PARTS))
    options = parser.parse_args()
    print(f"{options.sessions} sessions of six programs in each row")
    with ProcessPoolExecutor(options.processes) as pool:
        for name, show in PARTS.items():
            if options.only in (None, name):
                show(pool, options.sessions)


if __name__ == "__main__":
    main()
