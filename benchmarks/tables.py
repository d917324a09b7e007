"""A large run: how time and memory grow with its records. Prints a row per size.

Synthetic records as a session writes them, every field filled in, in a journal on disk. Each
size and each step runs in a process of its own, whose peak memory is that of the step:
``export`` writes ``cells.csv``; ``group`` reads all records and groups them as the tables of
``ngb show`` do; ``generate`` is not counted. Wanted: 100,000 records in less than 15 s and 2 GiB,
and ten times the records in about ten times the time.

    python benchmarks/tables.py [--records 1000 10000 100000]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit"))

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

    records = RunDir.open(folder).records()
    cases = [record for record in records if record["kind"] == "case"]
    sessions = [record for record in records if record["kind"] == "session"]

    def read(path: str) -> Json:
        raise FileNotFoundError(path)

    evidence = Evidence(cases, sessions, read)
    return sum(len(group.cells) for group in evidence.groups)


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
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    last: dict[str, tuple[int, float]] = {}
    print("step      records  CPU s    MiB  time ratio / records ratio")
    for count in options.records:
        with tempfile.TemporaryDirectory() as folder:
            with spawn.Pool(1) as pool:
                pool.apply(generate, (Path(folder), count))
            for step in (export, group):
                with spawn.Pool(1) as pool:
                    seconds, mebibytes, rows = pool.apply(timed, (step, Path(folder)))
                if rows != count:
                    raise SystemExit(f"{step.__name__} saw {rows} of {count} records.")
                grown = ""
                if step.__name__ in last:
                    records, before = last[step.__name__]
                    grown = f"{seconds / before:.1f} / {count / records:.0f}"
                last[step.__name__] = count, seconds
                print(f"{step.__name__:<8}{count:>9}{seconds:>7.2f}{mebibytes:>7.0f}  {grown}")


if __name__ == "__main__":
    main()
