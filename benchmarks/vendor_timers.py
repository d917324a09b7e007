"""Does a worker agree with the vendors' own timers? Prints paired ratios over fresh launches.

Each row sets a worker of ngraphbench against a vendor's timer on the same artefact with the
same settings. Both are started anew in every launch; within a launch they take turns of a
tenth of a second in random order, each suspended while the other runs, so that a drift of the
machine is common to both. The ratio is time per call in the worker over that of the vendor.

    python benchmarks/vendor_timers.py [--launches 5] [--turns 30] [--model timm:resnet18 ...]
        [--row onnxruntime ...] [--python iree=PATH ...] [--markdown] [--keep turns.json]

``--python`` names the interpreter of a compiler that has an environment of its own.

On a busy machine ``--clock cpu --threads 1`` compares CPU time, which waiting does not lengthen.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from vendor_sides import DEFAULT_ROWS, ROWS, Ours, Row, Setting, Vendor, export

from ngraphbench.stats import hodges_lehmann, signed_rank_interval

MODELS = ["timm:resnet18", "torchvision:mobilenet_v3_small"]
TOLERANCE = 0.02
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Launch:
    """The turns of one launch, pair by pair."""

    ours: list[dict[str, Any]]
    theirs: list[dict[str, Any]]

    def logs(self, what: str) -> list[float]:
        """Return the log ratio of each pair, ours over theirs."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return [math.log(a[what] / b[what]) for a, b in pairs]


def launch(row: Row, setting: Setting, *, turns: int, seconds: float, seed: int) -> Launch:
    """Return one launch: both sides started anew, then ``turns`` turns each."""
    order = random.Random(seed)
    turns, seconds = max(8, turns // row.longer), seconds * row.longer
    with ExitStack() as undo:
        ours = Ours(row, setting)
        undo.callback(ours.close)
        told = ours.ready()
        theirs = Vendor(row, setting)
        undo.callback(theirs.close)
        check_same(row, theirs=theirs.ready(), ours=told)
        sides: dict[str, Vendor | Ours] = {"ours": ours, "theirs": theirs}
        taken: dict[str, list[dict[str, Any]]] = {"ours": [], "theirs": []}
        for _ in range(turns):
            for name in order.sample(["ours", "theirs"], 2):
                taken[name].append(sides[name].turn(seconds))
    return Launch(**taken)


def check_same(row: Row, *, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Raise SystemExit when the two sides tell different things of what they set up."""
    unlike = {
        key: (ours[key], theirs[key])
        for key in ours.keys() & theirs.keys()
        if ours[key] != theirs[key]
    }
    if unlike:
        raise SystemExit(f"{row.name}: the two sides are set up differently: {unlike}")


@dataclass(frozen=True, slots=True)
class Found:
    """A line of the table: times in ms, ratio ours over theirs, and two intervals."""

    model: str
    row: str
    theirs: str
    what: str
    ours_ms: float
    theirs_ms: float
    ratio: float
    launches: tuple[float, float]
    within: tuple[float, float]
    tolerance: float = TOLERANCE

    @property
    def verdict(self) -> str:
        """Return whether the interval over launches lies in, meets or misses the tolerance."""
        low, high = self.launches
        least, most = 1 - self.tolerance, 1 + self.tolerance
        if low > most or high < least:
            return "differs"
        return "inside" if low >= least and high <= most else "meets"


def summarise(model: str, row: Row, launches: list[Launch], what: str) -> Found:
    """Return the line of the table for ``what``: ``mean_s`` or ``median_s`` of calls.

    The ratio is the median over launches of each launch's paired Hodges-Lehmann ratio.
    """
    logs = [np.array(one.logs(what)) for one in launches]
    centres = np.array([hodges_lehmann(values) for values in logs])
    ours, theirs = (
        statistics.median(1e3 * statistics.median(t[what] for t in turns) for turns in side)
        for side in ([one.ours for one in launches], [one.theirs for one in launches])
    )
    low, high = signed_rank_interval(centres, CONFIDENCE)
    inner = signed_rank_interval(np.concatenate(logs), CONFIDENCE)
    return Found(
        model=model.partition(":")[2],
        row=row.name,
        theirs=row.theirs,
        what=what.removesuffix("_s"),
        ours_ms=ours,
        theirs_ms=theirs,
        ratio=math.exp(float(np.median(centres))),
        launches=(math.exp(low), math.exp(high)),
        within=(math.exp(inner[0]), math.exp(inner[1])),
        tolerance=row.tolerance,
    )


HEAD = (
    "model",
    "program",
    "vendor's timer",
    "time",
    "ours ms",
    "theirs ms",
    "ratio",
    "95 % over launches",
    "95 % within",
    "verdict",
)


def cells(found: Found) -> tuple[str, ...]:
    """Return a line of the table as text."""
    return (
        found.model,
        found.row,
        found.theirs,
        found.what,
        f"{found.ours_ms:.3f}",
        f"{found.theirs_ms:.3f}",
        f"{found.ratio:.4f}",
        f"{found.launches[0]:.4f}-{found.launches[1]:.4f}",
        f"{found.within[0]:.4f}-{found.within[1]:.4f}",
        f"{found.verdict} 1 ± {found.tolerance:g}",
    )


def print_table(lines: list[Found], *, markdown: bool) -> None:
    """Print the table, as aligned text or as Markdown."""
    table = [HEAD, *(cells(line) for line in lines)]
    if markdown:
        table.insert(1, ("---",) * len(HEAD))
    widths = [max(len(line[i]) for line in table) for i in range(len(HEAD))]
    for line in table:
        if markdown:
            print("| " + " | ".join(line) + " |")
        else:
            print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)))


READING = """
ratio: ours over theirs, median over launches of the paired Hodges-Lehmann ratio of a launch.
over launches: t interval over the launches' ratios, the one that counts; within: signed-rank
interval over all pairs of turns, blind to what a launch adds. inside: the interval over
launches lies in the tolerance; meets: it overlaps it (too wide to say more); differs: it misses
it.
mean: wall time over calls (what throughput is made of); median: of single calls.
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--model", action="append")
    parser.add_argument("--row", action="append", choices=list(ROWS))
    parser.add_argument("--python", action="append", default=[], metavar="COMPILER=PATH")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--keep", type=Path, help="write every turn to this JSON file")
    options = parser.parse_args()
    started = time.monotonic()
    pythons = dict(given.split("=", 1) for given in options.python)
    taken: dict[tuple[str, str], list[Launch]] = {}
    with tempfile.TemporaryDirectory(prefix="vendors-") as folder:
        root = Path(folder)
        models = options.model or MODELS
        workloads = {model: export(model, root) for model in models}
        # Launches outside, rows inside: a launch of every row shares the machine's mood.
        for number in range(options.launches):
            for model, workload in workloads.items():
                for name in options.row or DEFAULT_ROWS:
                    one = launch(
                        ROWS[name],
                        Setting(workload, root, options.threads, options.clock, pythons),
                        turns=options.turns,
                        seconds=options.seconds,
                        seed=number,
                    )
                    taken.setdefault((model, name), []).append(one)
                    ratio = math.exp(hodges_lehmann(np.array(one.logs("mean_s"))))
                    where = f"launch {number + 1} {model} {name}: {ratio:.4f}"
                    print(f"{where}  [{time.monotonic() - started:.0f} s]", file=sys.stderr)
    if options.keep:
        kept = [
            {"model": m, "row": r, "launches": [asdict(x) for x in found]}
            for (m, r), found in taken.items()
        ]
        options.keep.write_text(json.dumps(kept))
    lines = [
        summarise(model, ROWS[name], found, what)
        for (model, name), found in taken.items()
        for what in ("mean_s", "median_s")
        if found[0].theirs[0][what] and found[0].ours[0][what]
    ]
    print_table(lines, markdown=options.markdown)
    print(READING if not options.markdown else "")


if __name__ == "__main__":
    main()
