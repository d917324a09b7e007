"""Synthetic runs to compare, and their run directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from run_fixture import Run, model

from ngraphbench.profiles import PROFILES
from ngraphbench.store.rundir import RunDir
from ngraphbench.store.samples import append_samples

TIMES = {"eager": 10.0, "onnxruntime": 6.0, "openvino": 5.0}


def measured_run(
    *, times: dict[str, float] | None = None, seed: int = 0, rounds: int = 12, **session: Any
) -> Run:
    run = Run(PROFILES["default"], rounds=rounds, noise=0.004)
    for _ in range(seed):
        run._rng.random(1000)
    name = run.session(**session)
    for text, ms in (times or TIMES).items():
        run.cell(name, model("m"), text, 8, ms=ms)
    return run.summarise()


def slower(share: float, **session: Any) -> Run:
    times = {**TIMES, "openvino": TIMES["openvino"] * (1 + share)}
    return measured_run(times=times, seed=1, **session)


def stored(run: Run, place: Path) -> Path:
    """Write a run as its directory."""
    directory = RunDir.open(place, create=True)
    for path, samples in run.samples.items():
        names = [name for name in samples if name != "position"]
        rows = [
            {"mode": "sync", "sub_ns": "", "position": 0, **{n: samples[n][i] for n in names}}
            for i in range(len(samples["epoch"]))
        ]
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        append_samples(place / path, rows)
    sessions = [{**session, "cases": []} for session in run.sessions]
    directory.append([*run.records, *sessions])
    return place
