"""A large run: how time and memory grow with its records. Prints a row per size.

Synthetic records as a session writes them, every field filled in, in a journal on disk. Each
size and each step runs in a process of its own, whose peak memory is that of the step:
``export`` writes ``cells.csv``; ``group`` reads all records and groups them as the tables of
``ngb show`` do; ``analyse`` reads them and derives all metrics that need no samples;
``generate`` is not counted. The CPU time is the least of ``--repeats`` processes,
which take turns over the sizes: what else the machine does only adds to it. Wanted: 100,000
records in less than 15 s and 2 GiB, and ten times the records in at most eleven times the time.

    python benchmarks/tables.py [--records 1000 10000 100000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit"))

from ngraphbench.analysis.tables import Read
from ngraphbench.store.rundir import RunDir
from ngraphbench.types import Json

CELLS_IN_SESSION = 40
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
LABELS = ("eager", "onnxruntime", "onnxruntime:level=none", "openvino", "inductor")


def generate(folder: Path, count: int) -> None:
    """Write a journal of ``count`` case records; a session holds one model."""
    from run_fixture import Run, model

    with (folder / "journal.jsonl").open("w") as journal:
        for first in range(0, count, CELLS_IN_SESSION):
            run = Run(rounds=6)
            number = first // CELLS_IN_SESSION
            session = run.session(f"{number:x}")
            cells = [(batch, label) for batch in BATCHES for label in LABELS]
            for batch, label in cells[: count - first]:
                run.cell(session, model(f"net{number}"), label, batch, ms=1.0)
            if first == 0:
                summary = run.summarise().records[1]["summary"]
            for record in [*run.records, *run.sessions]:
                if record["kind"] == "case":
                    record["summary"] = summary
                journal.write(json.dumps(record) + "\n")


def export(folder: Path) -> int:
    """Write the table of cells, and return how many rows it has."""
    from ngraphbench.api import Run

    cells, _ = Run.open(folder).export(folder / "tables")
    return sum(1 for _ in cells.open()) - 1


def group(folder: Path) -> int:
    """Read all records, put them side by side, and return how many cells there are."""
    from ngraphbench.analysis.tables import Evidence

    evidence = Evidence(*parts(folder))
    return sum(len(group.cells) for group in evidence.groups)


def analyse(folder: Path) -> int:
    """Do what ``ngb show --metrics`` does where samples are lost; return how many cells it told."""
    from ngraphbench.analysis.metrics import metrics

    return sum(len(found.rows) for found in metrics(*parts(folder)).scaling)


def parts(folder: Path) -> tuple[list[Json], list[Json], Read]:
    """Return the records of a run, its sessions, and what reads no samples."""
    records = RunDir.open(folder).records()

    def read(path: str) -> Json:
        raise FileNotFoundError(path)

    cases = [record for record in records if record["kind"] == "case"]
    return cases, [record for record in records if record["kind"] == "session"], read


STEPS = (export, group, analyse)


def timed(step: Callable[[Path], int], folder: Path) -> tuple[float, float, int]:
    """Return seconds of CPU time, peak memory in MiB, and what the step counted."""
    before = time.process_time()
    count = step(folder)
    seconds = time.process_time() - before
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, count


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")

    def apply(function: Callable[..., Any], *arguments: object) -> Any:
        with spawn.Pool(1) as pool:
            return pool.apply(function, arguments)

    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as root:
        for count in options.records:
            (Path(root) / str(count)).mkdir()
            apply(generate, Path(root) / str(count), count)
        for _ in range(options.repeats):
            for step, count in itertools.product(STEPS, options.records):
                seconds, mebibytes, rows = apply(timed, step, Path(root) / str(count))
                if rows != count:
                    raise SystemExit(f"{step.__name__} saw {rows} of {count} records.")
                found.setdefault((step.__name__, count), []).append((seconds, mebibytes))
    print("step      records  CPU s (most)    MiB  time ratio / records ratio")
    last: dict[str, tuple[int, float]] = {}
    for (name, count), costs in found.items():
        seconds, most = min(cost[0] for cost in costs), max(cost[0] for cost in costs)
        mebibytes = max(cost[1] for cost in costs)
        records, before = last.get(name, (count, seconds))
        last[name] = count, seconds
        grown = f"{seconds / before:.1f} / {count / records:.0f}" if records != count else ""
        print(f"{name:<8}{count:>9}{seconds:>7.2f} ({most:.2f}){mebibytes:>8.0f}  {grown}")


if __name__ == "__main__":
    main()
