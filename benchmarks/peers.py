"""The rules of other tools and ours at equal seconds, on a virtual clock with known truth.

Writes docs/peers.png and the tables between the marks in docs/measurement.md. Six candidates,
1, 1 (A/A), 1.03, 1.1, 1.2 and 1.5, 60 s in all; every rule gets the seconds that our kernel
took with that budget, which it is told to use up. A rule is a function in tests/kernel/rules.py.
Drift is simulated (tests/kernel/scenarios.py) or recorded (benchmarks/traces).

    python benchmarks/peers.py [--sessions 600] [--curve-sessions 300] [--processes 2]
    python benchmarks/peers.py --from runs/peers.json     # draw again, measure nothing
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kernel"))

import numpy as np
from replay import TRACES, ReplayedMachine, Trace, read_trace, replay
from rules import OURS, Bench, Count, outcomes
from scenarios import DRIFTS, Machine
from sessions import TRUTH

ROOT = Path(__file__).parents[1]
SECONDS = 60.0
CURVE = (10.0, 20.0, 30.0, 60.0, 120.0)
LAUNCH_SD = 0.01
CHUNK = 25
DOCUMENT, PICTURE = ROOT / "docs" / "measurement.md", ROOT / "docs" / "peers.png"
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"

Counts = dict[str, Count]


@dataclass(frozen=True, slots=True)
class Cell:
    """A machine and how long each session measures on it."""

    drift: str
    launch_sd: float
    seconds: float

    @property
    def title(self) -> str:
        launches = f", launches {100 * self.launch_sd:.0f} %" if self.launch_sd else ""
        return self.drift + launches


@cache
def trace_named(name: str) -> Trace:
    return read_trace(TRACES / f"{name}.csv")


def trace_names() -> list[str]:
    return sorted(path.stem for path in TRACES.glob("*.csv"))


def bench_maker(cell: Cell) -> Callable[[np.random.Generator], Bench]:
    """Return what makes one session's machine."""
    if cell.drift in DRIFTS:
        return lambda rng: Bench(Machine(rng, DRIFTS[cell.drift](rng)), cell.launch_sd)
    trace = trace_named(cell.drift)
    return lambda rng: Bench(ReplayedMachine(rng, replay(trace, rng)), cell.launch_sd)


def count(task: tuple[Cell, range]) -> tuple[Cell, Counts]:
    """Return the counts of each rule over the sessions of these seeds."""
    cell, seeds = task
    make, found = bench_maker(cell), Counts()
    for seed in seeds:
        for name, said in outcomes(make, seed=seed, seconds=cell.seconds).items():
            found.setdefault(name, Count()).add(said, TRUTH)
    return cell, found


def merged(parts: Iterable[tuple[Cell, Counts]]) -> dict[Cell, Counts]:
    """Return the sums of counts by cell and rule."""
    total: dict[Cell, Counts] = {}
    for cell, counts in parts:
        for name, part in counts.items():
            into = total.setdefault(cell, {}).setdefault(name, Count())
            for field in fields(Count):
                setattr(into, field.name, getattr(into, field.name) + getattr(part, field.name))
    return total


def table_cells() -> list[Cell]:
    """Return the rows of the tables."""
    simulated = [Cell(drift, 0.0, SECONDS) for drift in DRIFTS]
    launched = [Cell(drift, LAUNCH_SD, SECONDS) for drift in ("quiet", "ar-slow")]
    return [*simulated, *launched, *(Cell(name, 0.0, SECONDS) for name in trace_names())]


def curve_drifts() -> list[str]:
    return ["ar-slow", "thermal", *trace_names()[:1]]


def measure(sessions: int, curve_sessions: int, processes: int) -> dict[Cell, Counts]:
    """Return the counts of all cells of the tables and of the picture."""
    tasks = dict.fromkeys(table_cells(), sessions)
    for drift in curve_drifts():
        for seconds in CURVE:
            tasks.setdefault(Cell(drift, 0.0, seconds), curve_sessions)
    chunks = [
        (cell, range(first, min(first + CHUNK, many)))
        for cell, many in tasks.items()
        for first in range(0, many, CHUNK)
    ]
    parts = []
    with ProcessPoolExecutor(processes) as pool:
        for number, part in enumerate(pool.map(count, chunks), 1):
            parts.append(part)
            print(f"\r{number}/{len(chunks)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return merged(parts)


# -- tables

METRICS: tuple[tuple[str, Callable[[Count], str]], ...] = (
    (
        "Wrong order of two programs 3 % apart, by the estimates alone",
        lambda found: f"{found.misordered / found.sessions:.1%}",
    ),
    (
        "Wrong winner declared at 3 %: the interval lies on the wrong side",
        lambda found: f"{found.wrong / found.sessions:.1%}" if found.intervals else "-",
    ),
    (
        "Settled rightly at 3 %: the interval lies on the right side",
        lambda found: f"{found.right / found.sessions:.0%}" if found.intervals else "-",
    ),
    (
        "Share of 95 % intervals that hold the truth",
        lambda found: f"{found.covered / found.intervals:.3f}" if found.intervals else "-",
    ),
    (
        "Equal programs told apart (A/A)",
        lambda found: f"{found.alarms / found.sessions:.1%}" if found.intervals else "-",
    ),
)


def tables(counts: Mapping[Cell, Counts]) -> str:
    """Return all tables as Markdown."""
    cells = [cell for cell in table_cells() if cell in counts]
    names = list(counts[cells[0]])
    lines: list[str] = []
    for title, shown in METRICS:
        heads = [f"**{name}**" if name == OURS else name for name in names]
        lines += [f"{title}:", "", "| drift | " + " | ".join(heads) + " |"]
        lines.append("|---" + "|---:" * len(names) + "|")
        for cell in cells:
            row = [shown(counts[cell][name]) for name in names]
            lines.append(f"| {cell.title} | " + " | ".join(row) + " |")
        lines.append("")
    lines.append(footing(counts, cells))
    return "\n".join(lines)


def footing(counts: Mapping[Cell, Counts], cells: list[Cell]) -> str:
    """Return how many sessions and seconds stand behind the tables and the picture."""

    def sessions(of: Iterable[Cell]) -> str:
        return ", ".join(map(str, sorted({counts[cell][OURS].sessions for cell in of})))

    spent = []
    for name in counts[cells[0]]:
        seconds = [counts[cell][name].seconds / counts[cell][name].sessions for cell in cells]
        spent.append(f"{name} {min(seconds):.1f} to {max(seconds):.1f}")
    return (
        f"Sessions: {sessions(cells)} in each cell of the tables,"
        f" {sessions(set(counts) - set(cells))} at each other length in the picture; seeds from 0."
        f" Mean seconds a session: {', '.join(spent)}."
    )


def demands(counts: Mapping[Cell, Counts]) -> list[str]:
    """Return, for each simulated drift, whether what is demanded of our rule holds.

    Where the sequential mean misorders 3 % in at least 15 %, ours declares a wrong winner in
    at most 1 %; where at most 40 % of its intervals hold, at least 93 % of ours do.
    """
    said = []
    for cell in table_cells():
        if cell not in counts:
            continue
        ours, theirs = counts[cell][OURS], counts[cell]["sequential mean"]
        covered = ours.covered / ours.intervals
        if theirs.misordered >= 0.15 * theirs.sessions:
            good = ours.wrong <= 0.01 * ours.sessions
            said.append(f"{cell.title}: wrong winner {'holds' if good else 'FAILS'}")
        if theirs.covered <= 0.4 * theirs.intervals:
            said.append(f"{cell.title}: coverage {'holds' if covered >= 0.93 else 'FAILS'}")
    return said


def publish(text: str) -> None:
    """Put the tables between the marks in the document."""
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{DOCUMENT} has no lines {BEGIN} and {END} to write between: add them.")
    DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def draw(counts: Mapping[Cell, Counts]) -> None:
    """Draw wrong order and coverage against seconds."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    drifts = [drift for drift in curve_drifts() if Cell(drift, 0.0, SECONDS) in counts]
    figure, axes = plt.subplots(
        2, len(drifts), figsize=(3.6 * len(drifts), 6), sharex=True, sharey="row"
    )
    for column, drift in zip(axes.T, drifts, strict=True):
        cells = [cell for seconds in CURVE if (cell := Cell(drift, 0.0, seconds)) in counts]
        for name in counts[cells[0]]:
            found = [counts[cell][name] for cell in cells]
            seconds = [one.seconds / one.sessions for one in found]
            style = {"color": "black", "linewidth": 2.5} if name == OURS else {"linewidth": 1.2}
            column[0].plot(
                seconds,
                [100 * one.misordered / one.sessions for one in found],
                marker="o",
                markersize=3,
                label=name,
                **style,
            )
            if found[0].intervals:
                column[1].plot(
                    seconds,
                    [100 * one.covered / one.intervals for one in found],
                    marker="o",
                    markersize=3,
                    **({**style} | {"color": column[0].lines[-1].get_color()}),
                )
        column[0].set_title(drift)
        column[1].axhline(95, color="grey", linewidth=0.8, linestyle="--")
        column[1].set_xscale("log")
        column[1].set_xticks(CURVE, [f"{seconds:.0f}" for seconds in CURVE])
        column[1].minorticks_off()
        column[1].set_xlabel("seconds for six candidates")
    axes[0][0].set_ylabel("wrong order at 3 %, in %")
    axes[1][0].set_ylabel("95 % intervals that hold, in %")
    axes[0][0].set_ylim(bottom=0)
    axes[1][0].set_ylim(0, 102)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    figure.savefig(PICTURE, dpi=110)


def stored(counts: Mapping[Cell, Counts]) -> str:
    """Return counts as JSON."""
    return json.dumps(
        [
            {"cell": asdict(cell), "rules": {n: asdict(c) for n, c in found.items()}}
            for cell, found in counts.items()
        ]
    )


def restored(text: str) -> dict[Cell, Counts]:
    """Return the counts that ``stored`` wrote."""
    return {
        Cell(**row["cell"]): {name: Count(**found) for name, found in row["rules"].items()}
        for row in json.loads(text)
    }


def main() -> None:
    """Measure, print, draw and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=600)
    parser.add_argument("--curve-sessions", type=int, default=300)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--from", dest="source", type=Path, help="counts of an earlier run")
    parser.add_argument("--to", type=Path, default=ROOT / "runs" / "peers.json")
    options = parser.parse_args()
    if options.source:
        counts = restored(options.source.read_text())
    else:
        counts = measure(options.sessions, options.curve_sessions, options.processes)
        options.to.parent.mkdir(exist_ok=True)
        options.to.write_text(stored(counts))
    text = tables(counts)
    print(text)
    publish(text)
    draw(counts)
    checked = demands(counts)
    print("\n".join(checked))
    if any("FAILS" in line for line in checked):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
