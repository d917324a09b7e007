"""Recompute a run's estimates from its samples with numpy alone: ``python recompute.py RUN``.

Latency, throughput and speed-up of every measured cell, without their intervals; percentiles
and what else was measured alone are left out.
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np


def log_times(rows):  # (epoch, round) -> mean log ns per call of its slots
    slots = {}
    for row in rows:
        slots.setdefault((int(row["epoch"]), int(row["round"])), []).append(float(row["call_ns"]))
    return {key: np.mean(np.log(values)) for key, values in slots.items()}


def location(values):  # the mean over epochs of each epoch's Hodges-Lehmann estimate
    epochs = {}
    for (epoch, _), value in values.items():
        epochs.setdefault(epoch, []).append(value)
    pairs = ([(a + b) / 2 for i, a in enumerate(v) for b in v[i:]] for v in epochs.values())
    return np.exp(np.mean([np.median(means) for means in pairs]))


def estimates(rows, batch, baseline=None):
    times, seconds = log_times(rows), sum(int(row["slot_ns"]) for row in rows) / 1e9
    found = {"latency_ms": location(times) / 1e6}
    found["throughput_per_s"] = sum(int(row["calls"]) for row in rows) * batch / seconds
    if baseline is not None:
        base = log_times(baseline)
        found["vs_baseline"] = location({k: base[k] - times[k] for k in times if k in base})
    return found


def recompute(run):  # yields each measured cell's record and its estimates
    lines = (run / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    cells = [r for r in map(json.loads, lines) if r["kind"] == "case" and r["summary"]]

    def place(cell, label):
        model, batch = cell["case"]["model"], cell["case"]["batch"]
        return cell["session_id"], model["content"], json.dumps(model["inputs"]), batch, label

    rows = {
        place(cell, cell["label"]): list(
            csv.DictReader((run / cell["measurement"]["samples"]).open())
        )
        for cell in cells
    }
    for cell in cells:
        base = (cell["summary"]["vs_baseline"] or {}).get("baseline")
        mine, other = rows[place(cell, cell["label"])], rows.get(place(cell, base))
        yield cell, estimates(mine, cell["case"]["batch"], other)


if __name__ == "__main__":
    for cell, found in recompute(Path(sys.argv[1])):
        text = "  ".join(f"{name} {value:.6g}" for name, value in found.items())
        print(cell["case"]["model"]["label"], cell["case"]["batch"], cell["label"], text)
