"""Seconds and MB of the HTML report of constructed runs of 1,000 and of 100,000 cells.

The records are those of the stored quickstart run, spread over models and batch sizes with
times of their own; the smaller runs have a sample file for every cell, of one launch as `quick`
writes them, and of three as `default` does.
"""

from __future__ import annotations

import copy
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "quickstart"
BATCHES = (1, 2, 4, 8, 16)
SPEEDS = {"eager": 1.0, "inductor": 1.5, "onnxruntime": 2.2, "openvino": 2.6, "tvm": 1.2}
SIZES = {
    "1,000 cells, 1 launch": (1_000, 1),
    "1,000 cells, 3 launches": (1_000, 3),
    "100,000 cells, no samples": (100_000, 0),
}
WARM_UP = "makes bytecode, and is not told of"
ROUNDS = 12
FAILED = 0.06
"""Share of cells that have no result."""


def write_run(folder: Path, cells: int, *, launches: int, seed: int = 0) -> None:
    """Write a run directory of about ``cells`` cells to ``folder``; 5 models a session.

    Cells have samples of so many ``launches``; none with 0.
    """
    source = _golden()
    rng = random.Random(seed)
    (folder / "samples").mkdir(parents=True)
    models = max(1, cells // (len(BATCHES) * len(SPEEDS)))
    with (folder / "journal.jsonl").open("w", encoding="utf-8") as journal:
        for first in range(0, models, 5):
            session_id = f"{first:016x}"
            for model in range(first, min(first + 5, models)):
                for record, times in _cells(source, session_id, model, rng, launches or 1):
                    journal.write(json.dumps(record, separators=(",", ":")) + "\n")
                    if launches and times:
                        _write_samples(folder / record["measurement"]["samples"], times)
            session = {**source["session"], "session_id": session_id, "cases": []}
            session["epochs_done"] = launches or 1
            journal.write(json.dumps(session, separators=(",", ":")) + "\n")


def _golden() -> dict[str, Any]:
    lines = (GOLDEN / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    (session,) = (record for record in found if record["kind"] == "session")
    case = next(r for r in found if r["kind"] == "case" and r["label"] == "onnxruntime")
    return {"session": session, "case": case}


def _cells(
    source: dict[str, Any], session_id: str, model: int, rng: random.Random, launches: int
) -> Iterator[tuple[dict[str, Any], list[float]]]:
    """Yield a model's records with what its rounds took, in ms; no times without a result."""
    size, overhead = rng.lognormvariate(1.5, 0.6), rng.lognormvariate(0.0, 0.7)
    for batch in BATCHES:
        drift = [rng.gauss(0.0, 0.02) for _ in range(ROUNDS * launches)]
        base: list[float] = []
        for number, (label, speed) in enumerate(SPEEDS.items()):
            record = copy.deepcopy(source["case"])
            taste = math.exp(0.25 * math.sin(3.7 * model + 2.1 * number)) if number else 1.0
            ms = (overhead / (1 + 0.3 * number) + size * batch**0.93) / (speed * taste)
            times = [ms * math.exp(d + rng.gauss(0.0, 0.01)) for d in drift]
            case_id = f"{model:08x}{batch:04x}{number:04x}" + "0" * 48
            record |= {"session_id": session_id, "case_id": case_id, "label": label}
            record["case"] |= {"batch": batch, "label": label}
            record["case"]["model"] |= {"label": f"net-{model}", "content": f"{model:064x}"}
            record["case"]["compiler"] |= {"name": label}
            record["command"] = f"ngb bench timm:net-{model} -c {label} -b {batch}"
            record["log"] = f"logs/{session_id}/{case_id[:16]}.log"
            if number and rng.random() < FAILED:
                yield _failed(record, rng), []
                continue
            path = f"samples/{session_id}/{case_id[:16]}.csv"
            record["measurement"] |= {"samples": path}
            record["summary"] = _summary(batch, times, base)
            base = base or times
            yield record, times


def _failed(record: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    status, reason = rng.choice(
        (("unsupported", "operator:GridSample"), ("crashed", "signal:SIGSEGV"), ("timeout", ""))
    )
    return record | {
        "status": status,
        "reason": reason,
        "stage": "compile",
        "message": "It could not be compiled.",
        "measurement": None,
        "summary": None,
        "verification": None,
    }


def _interval(value: float, half: float) -> dict[str, Any]:
    ends = {"low": value / (1 + half), "high": value * (1 + half)}
    return {"estimate": value, **ends, "confidence": 0.9, "claim": "artefact"}


def _summary(batch: int, times: Sequence[float], base: Sequence[float]) -> dict[str, Any]:
    ms = sorted(times)[len(times) // 2]
    versus = None
    if base:
        ratios = sorted(b / t for b, t in zip(base, times, strict=True))
        middle = _interval(ratios[len(ratios) // 2], 0.04)
        mark = "faster" if middle["low"] > 1 else "slower" if middle["high"] < 1 else "unresolved"
        versus = {**middle, "within": middle, "verdict": mark, "baseline": "eager"}
    return {
        "estimator": "1",
        "latency_ms": _interval(ms, 0.03),
        "throughput_per_s": _interval(1e3 * batch / ms, 0.03),
        "vs_baseline": versus,
        "first_after_idle_ms": ms,
        "percentiles_ms": {},
    }


def _write_samples(path: Path, times: Sequence[float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = "epoch,round,position,mode,calls,slot_ns,call_ns,first_ns,cpu_ns,nivcsw,sub_ns\n"
    rows = (
        f"{i // ROUNDS},{i % ROUNDS},0,sync,4,{int(4e6 * ms)},{1e6 * ms},"
        f"{int(1e6 * ms)},{int(8e6 * ms)},0,{1e6 * ms}\n"
        for i, ms in enumerate(times)
    )
    path.write_text(head + "".join(rows), encoding="utf-8")


def _written(run: Path, page: Path, bytecode: Path) -> tuple[float, float]:
    """Return wall and CPU seconds of the command that writes ``page``.

    Its modules' bytecode lies in ``bytecode`` from the second call on, as that of an installed
    package does, whatever this shell says of bytecode.
    """
    code = (
        "import sys, time; from ngraphbench.cli import main; sys.argv[0] = 'ngb'\n"
        "try: main()\nfinally: print(time.process_time(), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, "report", str(run), "--html", str(page)],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return time.perf_counter() - start, float(done.stderr.split()[-1])


def main() -> None:
    print(f"{'run':<28}{'seconds':>9}{'CPU s':>8}{'page MB':>9}{'journal MB':>12}")
    with tempfile.TemporaryDirectory() as folder:
        bytecode = Path(folder) / "bytecode"
        for number, (name, (cells, launches)) in enumerate({WARM_UP: (25, 1), **SIZES}.items()):
            run, page = Path(folder) / f"run-{number}", Path(folder) / "report.html"
            write_run(run, cells, launches=launches)
            wall, cpu = _written(run, page, bytecode)
            sizes = [path.stat().st_size / 1e6 for path in (page, run / "journal.jsonl")]
            if number:
                print(f"{name:<28}{wall:>9.2f}{cpu:>8.2f}{sizes[0]:>9.2f}{sizes[1]:>12.1f}")


if __name__ == "__main__":
    main()
