"""Are paced response times those of an independent loop? Prints both and their differences.

A worker's paced block and a plain loop in its own process take turns, 10 s each, four times;
both are suspended while the other runs. Requests are due at a fixed rate, and a response
counts from when its request was due. The plain loop is written without this package.

How to read: ``p50``, ``p90``, ``p99`` in ms and the share of missed deadlines (a response
later than the next request was due), pooled over the turns, then worker minus loop with a
95 % interval, from resampling pairs of turns and requests within them. An interval that
holds 0 says that no difference was seen; its width says how much would have been.

    python benchmarks/paced.py [--rate 30] [--turns 4] [--seconds 10] [--model timm:resnet18]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from agreement import PlainLoop, worker
from plain_loop import onnx_files

from ngraphbench.types import Array
from ngraphbench.workload import read_arrays

COMPILER = "onnxruntime"
RESAMPLED = 2000
QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}

PACED = """
import json, time
for _ in range(20):
    call()
print("ready", flush=True)
for line in sys.stdin:
    rate, seconds = map(float, line.split())
    for _ in range(3):
        call()
    responses = []
    start = time.perf_counter() + 0.01
    for i in range(int(rate * seconds)):
        due = start + i / rate
        pause = due - time.perf_counter() - 0.001
        if pause > 0:
            time.sleep(pause)
        while time.perf_counter() < due:
            pass
        call()
        responses.append(time.perf_counter() - due)
    print(json.dumps(responses), flush=True)
"""


def turns(
    model: str, onnx: Path, root: Path, *, rate: float, seconds: float, times: int, threads: int
) -> tuple[list[Array], list[Array]]:
    """Return the response times in ms of each turn: the worker's, and the loop's."""
    ours: list[Array] = []
    theirs: list[Array] = []
    loop = PlainLoop(PACED, COMPILER, model, onnx, threads=threads)
    try:
        with worker(COMPILER, onnx.parent.parent, root, threads) as process:
            for number in range(times):
                # The one that begins changes, so that neither always follows the other.
                for who in ("loop", "worker") if number % 2 else ("worker", "loop"):
                    if who == "loop":
                        responses_s = json.loads(loop.turn(f"{rate} {seconds}"))
                        theirs.append(1e3 * np.array(responses_s))
                        continue
                    answer = process.request(
                        "block",
                        deadline_s=60 + 3 * seconds,
                        kind="paced",
                        seconds=seconds,
                        rate_per_s=rate,
                        folder=str(root),
                    )
                    process.suspend()
                    if answer["stopped"]:
                        sys.exit(f"{model} cannot keep up with {rate:g}/s here: lower --rate.")
                    rows = read_arrays(root / "block.npz")
                    ours.append((rows["end_ns"] - rows["due_ns"]) / 1e6)
    finally:
        loop.close()
    return ours, theirs


def figures(times_ms: Array, deadline_ms: float) -> Array:
    """Return p50, p90, p99 and the share of missed deadlines in percent."""
    found = np.quantile(times_ms, list(QUANTILES.values()), method="inverted_cdf")
    return np.append(found, 100 * np.mean(times_ms > deadline_ms))


def differences(ours: list[Array], theirs: list[Array], deadline_ms: float) -> Array:
    """Return worker minus loop for each figure, once per resampling: pairs, then requests."""
    rng = np.random.default_rng(0)

    def resampled(turn: Array) -> Array:
        return rng.choice(turn, len(turn))

    found = []
    for _ in range(RESAMPLED):
        picked = rng.integers(0, len(ours), len(ours))
        sides = [np.concatenate([resampled(side[i]) for i in picked]) for side in (ours, theirs)]
        left, right = (figures(side, deadline_ms) for side in sides)
        found.append(left - right)
    return np.array(found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=30.0)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", default="timm:resnet18")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        words = ["bench", given.model, "-c", COMPILER, "-b", "1", "--profile", "quick", "--json"]
        subprocess.run(
            [sys.executable, "-m", "ngraphbench", *words, "--out", str(root / "export")],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        ours, theirs = turns(
            given.model,
            onnx_files([given.model], root / "export")[given.model],
            root,
            rate=given.rate,
            seconds=given.seconds,
            times=given.turns,
            threads=given.threads,
        )
    deadline_ms = 1e3 / given.rate
    heads = [*QUANTILES, "missed %"]
    sides = {"worker": ours, "loop": theirs}
    print(f"{given.model} at {given.rate:g}/s, deadline {deadline_ms:.1f} ms; response in ms")
    print(f"{'':<14} {'requests':>8} " + " ".join(f"{head:>9}" for head in heads))
    for name, side in sides.items():
        for number, turn in enumerate(side, start=1):
            row = figures(turn, deadline_ms)
            print(f"{name} {number:<7} {len(turn):>8} " + " ".join(f"{v:9.3f}" for v in row))
    for name, side in sides.items():
        whole = np.concatenate(side)
        row = figures(whole, deadline_ms)
        print(f"{name:<14} {len(whole):>8} " + " ".join(f"{v:9.3f}" for v in row))
    estimate = figures(np.concatenate(ours), deadline_ms) - figures(
        np.concatenate(theirs), deadline_ms
    )
    low, high = np.quantile(differences(ours, theirs, deadline_ms), [0.025, 0.975], axis=0)
    print("\nworker - loop (95 % interval):")
    for head, value, bottom, top in zip(heads, estimate, low, high, strict=True):
        print(f"  {head:<9} {value:+.3f} ({bottom:+.3f} to {top:+.3f})")


if __name__ == "__main__":
    main()
