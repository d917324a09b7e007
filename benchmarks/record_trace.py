"""How the speed of this machine moves: times a fixed piece of work again and again, to a CSV.

A piece is a number of float32 matrix products, about 10 ms at best, on each thread, and ends
when the last thread does; neighbouring pieces are averaged to slots of about 50 ms. The file's
head says what ran on what. Its columns are ``at_ms``, the start of the slot, and ``piece_us``,
the mean time of a piece in it.
``make bench-peers`` replays such traces as drift.

``--hog`` keeps one CPU busy beside it, in stretches of exponential length: 4 s on, 12 s off.

    python benchmarks/record_trace.py OUT.csv [--minutes 4] [--threads 2] [--hog] [--note TEXT]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ngraphbench.environments.host import host_facts
from ngraphbench.environments.pressure import Counters, read_counters

PIECE_S = 0.010
SLOT_S = 0.050
SIZE = 384
HOG_ON_S, HOG_OFF_S = 4.0, 12.0
THREADS_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

HOG = """
import os, random, sys, time
parent, on_s, off_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
generator = random.Random(0)
while os.getppid() == parent:
    until = time.monotonic() + generator.expovariate(1 / on_s)
    while time.monotonic() < until:
        pass
    time.sleep(generator.expovariate(1 / off_s))
"""


@contextmanager
def hog(on: bool) -> Iterator[None]:
    """Keep one CPU busy now and then while the context lasts, if ``on``."""
    if not on:
        yield
        return
    words = [sys.executable, "-c", HOG, str(os.getpid()), str(HOG_ON_S), str(HOG_OFF_S)]
    process = subprocess.Popen(words)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def make_piece(pool: ThreadPoolExecutor, threads: int) -> tuple[Callable[[], None], int]:
    """Return a piece of work, done once by each thread, and of how many products it consists."""
    factor = np.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=np.float32)

    def work(count: int) -> float:
        started = time.perf_counter()
        product = np.empty_like(factor)
        for _ in range(count):
            np.matmul(factor, factor, out=product)
        return time.perf_counter() - started

    count = max(1, round(PIECE_S / min(work(1) for _ in range(400))))

    def piece() -> None:
        list(pool.map(work, [count] * threads))

    return piece, count


def record(piece: Callable[[], None], seconds: float) -> list[tuple[float, float]]:
    """Return (start in s, mean seconds of a piece) of each slot."""
    slots: list[tuple[float, float]] = []
    origin = time.perf_counter()
    while (started := time.perf_counter()) - origin < seconds:
        count, spent = 0, 0.0
        while spent < SLOT_S:
            piece()
            count += 1
            spent = time.perf_counter() - started
        slots.append((started - origin, spent / count))
    return slots


def stalled_share(before: Counters, after: Counters) -> str:
    """Return the share of wall time in which some task waited for a CPU, as text."""
    if before.stalled_us is None or after.stalled_us is None:
        return "unknown"
    wall_us = (after.wall_ns - before.wall_ns) / 1000
    return f"{(after.stalled_us - before.stalled_us) / wall_us:.3f}"


def stolen_share(before: Counters, after: Counters) -> str:
    """Return the share of CPU time that the hypervisor said it took away, as text."""
    if before.stolen_ticks is None or after.stolen_ticks is None:
        return "unknown"
    ticks = (after.all_ticks or 0) - (before.all_ticks or 0)
    return f"{(after.stolen_ticks - before.stolen_ticks) / max(1, ticks):.3f}"


def main() -> None:
    """Record and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--hog", action="store_true")
    parser.add_argument("--note", default="nothing known", help="what else ran meanwhile")
    options = parser.parse_args()
    wanted = dict.fromkeys(THREADS_VARIABLES, "1")
    if not wanted.items() <= os.environ.items():
        # The threads here are Python's: numpy's own would spin, and its import is past.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})
    with ThreadPoolExecutor(options.threads) as pool, hog(options.hog):
        piece, products = make_piece(pool, options.threads)
        before = read_counters(time.monotonic_ns())
        slots = record(piece, 60 * options.minutes)
        after = read_counters(time.monotonic_ns())
    host = host_facts()
    head = {
        "cpu_model": host["cpu_model"],
        "logical_cpus": host["logical_cpus"],
        "hypervisor": host["hypervisor"],
        "kernel": host["kernel"],
        "work": f"{products} float32 products of {SIZE} x {SIZE} matrices a piece",
        "threads": options.threads,
        "hog": f"one busy CPU, {HOG_ON_S:g} s on, {HOG_OFF_S:g} s off" if options.hog else "none",
        "beside": options.note,
        "stalled": stalled_share(before, after),
        "stolen": stolen_share(before, after),
    }
    lines = [f"# {key}: {value}" for key, value in head.items()]
    lines += ["at_ms,piece_us", *(f"{at * 1e3:.0f},{each * 1e6:.0f}" for at, each in slots)]
    options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
