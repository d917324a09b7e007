"""The task metric of the very program that is timed, on the user's labelled set.

It comes after timing and the last verification. A program whose outputs are wrong is
evaluated as well: how much the task suffers is worth knowing, and it stays wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from ngraphbench.case import Limits, digest
from ngraphbench.errors import NGraphBenchError
from ngraphbench.session.resident import Resident
from ngraphbench.session.workers import Worker
from ngraphbench.store.disk import write_whole
from ngraphbench.types import Json
from ngraphbench.workload import batch_folder

__all__ = ["evaluate_all", "referenced"]

EVALUATE_FACTOR = 10
"""A labelled set may take so many times the limit of a compile: it is the user's own wish."""

INPUTS = "inputs.npz"
DONE = "done.json"
KEY = "score"


def evaluation_folder(root: Path, batch: int, wish: Json) -> Path:
    """Return the folder of a labelled set, bound to one batch size of a workload."""
    return batch_folder(root, batch) / f"eval-{digest(wish)[:12]}"


def referenced(
    ask: Callable[..., Json], *, root: Path, batch: int, wish: Json, limits: Limits
) -> Json | None:
    """Return the evaluation of the uncompiled model, made once per batch size; None unasked.

    ``ask`` requests an op of the exporter. Raises NGraphBenchError.
    """
    if not wish:
        return None
    folder = evaluation_folder(root, batch, wish)
    done = folder / DONE
    if done.exists():
        found: Json = json.loads(done.read_text(encoding="utf-8"))
        return found
    found = ask(
        "evaluate",
        deadline_s=EVALUATE_FACTOR * limits.compile_s,
        batch=batch,
        folder=str(folder),
        evaluation=wish,
    )
    kept = {
        "metric": wish["metric"],
        "value": None,
        "items": found["items"],
        "reference": found["value"],
        "file": Path(wish["file"]).name,
        "problem": "",
        "axes": found["axes"],
    }
    write_whole(done, json.dumps(kept))
    return kept


def evaluate_all(
    residents: Iterable[Resident],
    *,
    spawn: Callable[[str], Worker],
    limits: Limits,
    observe: Callable[[str], None] = lambda text: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> None:
    """Put the task metric of each program into its state, or why there is none. Never raises.

    Programs without a labelled set, and those that have their metric, are left alone.
    ``spawn`` starts the exporter, which runs the user's metric.
    """
    evaluator = _Evaluator(spawn, limits)
    try:
        for resident in residents:
            known = resident.state.evaluation
            if known and known["value"] is None and not known["problem"] and not interrupted():
                observe(resident.case.title)
                evaluator.evaluate(resident, known)
    finally:
        evaluator.end()


class _Evaluator:
    def __init__(self, spawn: Callable[[str], Worker], limits: Limits) -> None:
        self._spawn = spawn
        self._limits = limits
        self._scorer: Worker | None = None

    def evaluate(self, resident: Resident, known: Json) -> None:
        # The set takes memory that the program itself does not need.
        resident.seal_usage()
        try:
            resident.resume()
            known["value"] = self._value(resident, known)
        except NGraphBenchError as error:
            known["problem"] = error.message
        finally:
            with suppress(NGraphBenchError):
                resident.suspend()

    def end(self) -> None:
        if self._scorer is not None:
            self._scorer.kill()
        self._scorer = None

    def _value(self, resident: Resident, known: Json) -> float:
        case = resident.case
        wish = case.model.evaluation
        folder = evaluation_folder(resident.workload_root, case.batch, wish)
        outputs = resident.scratch / "evaluated.npz"
        batches = -(-int(known["items"]) // case.batch)
        seconds = max(self._limits.compile_s, 20 * batches * resident.state.call_ns / 1e9)
        resident.ask_beyond(
            "predict",
            seconds=seconds,
            inputs=str(folder / INPUTS),
            axes=known["axes"],
            batch=case.batch,
            path=str(outputs),
        )
        # What comes after must find the inputs that it was verified on.
        resident.ask_beyond("load", seconds=self._limits.first_call_s, set="a")
        if self._scorer is None:
            self._scorer = self._spawn(KEY)
        try:
            reply = self._scorer.request(
                "score",
                deadline_s=self._limits.compile_s,
                folder=str(folder),
                path=str(outputs),
                evaluation=wish,
            )
        except NGraphBenchError:
            self.end()
            raise
        finally:
            outputs.unlink(missing_ok=True)
        return float(reply["value"])
