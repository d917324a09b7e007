"""Recompute headlines: ``ngb show RUN --csv DIR``, then ``python recompute.py DIR``."""

import csv
import sys
from pathlib import Path

import numpy as np

PLACE = ("session_id", "model", "batch", "precision")  # what a cell shares with its baseline


def location(values):  # by (epoch, round): the mean over epochs of Hodges-Lehmann estimates
    epochs = [[v for (e, _), v in values.items() if e == epoch] for epoch in {e for e, _ in values}]
    pairs = ([(a + b) / 2 for i, a in enumerate(v) for b in v[i:]] for v in epochs)
    return np.exp(np.mean([np.median(means) for means in pairs]))


def recompute(cells, slots):  # yields each measured cell and its estimates, without intervals
    ids = {(*(c[k] for k in PLACE), c["compiler"]): c["case_id"] for c in cells}
    logs, totals = {}, {}
    for row in slots:
        key = row["session_id"], row["case_id"]
        times = logs.setdefault(key, {}).setdefault((row["epoch"], row["round"]), [])
        times.append(np.log(float(row["call_ns"])))
        totals[key] = totals.get(key, 0) + np.array([int(row["calls"]), int(row["slot_ns"])])
    means = {key: {at: np.mean(v) for at, v in times.items()} for key, times in logs.items()}
    for cell in (cell for cell in cells if cell["latency_ms"]):
        key, place = (cell["session_id"], cell["case_id"]), tuple(cell[k] for k in PLACE)
        base = means.get((cell["session_id"], ids.get((*place, cell["baseline"]))), {})
        found = {"latency_ms": location(means[key]) / 1e6}
        found["throughput_per_s"] = int(cell["batch"]) * np.divide(*totals[key]) * 1e9
        if both := means[key].keys() & base.keys():
            found["vs_baseline"] = location({at: base[at] - means[key][at] for at in both})
        yield cell, found


if __name__ == "__main__":
    paths = (Path(sys.argv[1]) / name for name in ("cells.csv", "slots.csv"))
    tables = [list(csv.DictReader(path.open(encoding="utf-8"))) for path in paths]
    for cell, found in recompute(*tables):
        values = (f"{name} {value:.6g}" for name, value in found.items())
        print(cell["model"], cell["batch"], cell["compiler"], *values)
