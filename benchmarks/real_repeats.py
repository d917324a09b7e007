"""How often does one short comparison of two real programs name the long-run winner?

Two compilers that are a few percent apart on one model, 20 repeats. In each repeat, within the
same stretch of time, they are compared for 10 s in two ways, in fresh processes both times:

- sequential: a plain loop of 5 s on one, then on the other; the higher mean wins.
- interleaved: two resident workers, measured by the kernel in rounds for 10 s. Its order is
  that of the estimates; ``launch`` is what the interval for these very processes says, and
  ``claim`` what the interval says that holds for other launches too.

Which way and which compiler goes first alternates. The long-run winner is that of the median of
all log ratios, of both ways: one burst beside a sequential loop would move a mean.

    python benchmarks/real_repeats.py [--repeats 20] [--model timm:resnet18]
        [--pair onnxruntime openvino]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from agreement import worker
from plain_loop import bench, onnx_files, plain_loop

from ngraphbench.profiles import PROFILES, SECOND, Profile
from ngraphbench.session.clock import RealClock
from ngraphbench.session.kernel import Candidate, SlotResult, columns, measure_epoch
from ngraphbench.session.process import WorkerProcess
from ngraphbench.session.schedule import Pair, SlotRequest
from ngraphbench.summary import Comparison, compare

SLOT_DEADLINE_S = 60.0
NEVER = 10**9


@dataclass(frozen=True, slots=True)
class Slots:
    """A worker as the kernel's candidate."""

    process: WorkerProcess

    def resume(self) -> None:
        self.process.resume()

    def suspend(self) -> None:
        self.process.suspend()

    def slot(self, request: SlotRequest) -> SlotResult:
        found = self.process.request("slot", deadline_s=SLOT_DEADLINE_S, **request.to_json())
        names = ("calls", "slot_ns", "call_ns", "first_ns", "cpu_ns", "nivcsw")
        return SlotResult(**{name: found[name] for name in names})


@dataclass(frozen=True, slots=True)
class Bout:
    """Two compilers on one model: what every comparison of them needs."""

    model: str
    pair: tuple[str, str]
    onnx: Path
    root: Path
    threads: int
    seconds: float

    def sequential(self, first: int) -> float:
        """Return log time of the pair's first over its second, each looped for half the time."""
        per_s: dict[str, float] = {}
        for name in self.pair[first:] + self.pair[:first]:
            per_s[name] = plain_loop(
                name, self.model, self.onnx, threads=self.threads, seconds=self.seconds / 2
            )
        return math.log(per_s[self.pair[1]] / per_s[self.pair[0]])

    def interleaved(self, seed: int) -> Comparison:
        """Return the same ratio as our kernel and summary have it, of one launch."""
        with ExitStack() as stack:
            workers: dict[str, WorkerProcess] = {
                name: stack.enter_context(
                    worker(name, self.onnx.parent.parent, self.root, self.threads)
                )
                for name in self.pair
            }
            return self._measured({name: Slots(one) for name, one in workers.items()}, seed)

    def _measured(self, candidates: Mapping[str, Candidate], seed: int) -> Comparison:
        guesses: dict[str, float] = {}
        for name, candidate in candidates.items():
            guesses[name] = candidate.slot(SlotRequest(slot_ns=SECOND // 20)).call_ns
            candidate.suspend()
        a, b = self.pair
        found = measure_epoch(
            candidates,
            profile=profile_of(self.seconds),
            epoch=0,
            clock=RealClock(),
            seed=seed,
            call_ns=guesses,
            pairs=[Pair(b, a)],
        )
        if found.failures:
            raise found.failures[0].error
        said = compare(columns(found.rows[a]), columns(found.rows[b]), confidence=0.95)
        assert said is not None
        return said


def profile_of(seconds: float) -> Profile:
    """Return the default profile in one launch of that many seconds, which it uses up."""
    budget_ns = int(seconds * SECOND / 2)
    return replace(
        PROFILES["default"],
        epochs=1,
        budget_ns=budget_ns,
        half_width=0.0,
        rounds_min=NEVER,
        rounds_max=NEVER,
    )


def named(pair: tuple[str, str], low: float, high: float) -> str:
    """Return whom an interval of log time of the first over the second names as faster."""
    if low > 0.0:
        return pair[1]
    return pair[0] if high < 0.0 else "unresolved"


def print_table(
    pair: tuple[str, str], sequential: list[float], interleaved: list[Comparison]
) -> None:
    """Print how often each way named the long-run winner."""
    estimates = [math.log(said.estimate) for said in interleaved]
    pooled = statistics.median([*sequential, *estimates])
    winner = named(pair, pooled, pooled)
    loser = pair[0] if winner == pair[1] else pair[1]
    ways = {
        "sequential": [named(pair, x, x) for x in sequential],
        "interleaved, order": [named(pair, x, x) for x in estimates],
        "interleaved, launch": [
            named(pair, math.log(x.within_low), math.log(x.within_high)) for x in interleaved
        ],
        "interleaved, claim": [named(pair, math.log(x.low), math.log(x.high)) for x in interleaved],
    }
    print(f"\nlong-run winner: {winner}, by {abs(math.expm1(pooled)):.1%} (median of both ways)")
    print(f"of {len(sequential)} repeats           {winner:>14}{loser:>14}    unresolved")
    for way, names in ways.items():
        count = Counter(names)
        print(f"{way:<22}{count[winner]:>14}{count[loser]:>14}{count['unresolved']:>14}")
    if len(sequential) > 1:
        for way, logs in (("sequential", sequential), ("interleaved", estimates)):
            middle, sd = statistics.mean(logs), statistics.stdev(logs)
            print(f"log time {pair[0]} over {pair[1]}, {way}: {middle:+.2%}, sd {sd:.2%}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each comparison")
    parser.add_argument("--model", default="timm:resnet18")
    parser.add_argument("--pair", nargs=2, default=["onnxruntime", "openvino"])
    options = parser.parse_args()
    pair = (options.pair[0], options.pair[1])
    sequential: list[float] = []
    interleaved: list[Comparison] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        bench([options.model], "quick", root / "export")
        onnx = onnx_files([options.model], root / "export")[options.model]
        bout = Bout(options.model, pair, onnx, root, options.threads, options.seconds)
        for number in range(options.repeats):
            ways = ["sequential", "interleaved"]
            for way in ways if number % 2 == 0 else reversed(ways):
                if way == "sequential":
                    sequential.append(bout.sequential(first=number // 2 % 2))
                else:
                    interleaved.append(bout.interleaved(seed=number))
            said = interleaved[-1]
            print(
                f"{number + 1:>3}  {pair[0]} / {pair[1]}: sequential"
                f" {math.exp(sequential[-1]):.3f}  interleaved {said.estimate:.3f}"
                f" ({said.within_low:.3f} to {said.within_high:.3f}, claim {said.low:.3f} to"
                f" {said.high:.3f}) of {said.rounds} rounds",
                flush=True,
            )
    print_table(pair, sequential, interleaved)
    print(json.dumps({"repeats": options.repeats, "seconds": options.seconds, "pair": list(pair)}))


if __name__ == "__main__":
    main()
