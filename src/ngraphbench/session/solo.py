"""Solo blocks of an epoch: each candidate alone, all others suspended, in fresh random order.

They come after the interleaved rounds and their last verification, so that whatever goes
wrong in a block is said of the block and leaves the cell's result as it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ngraphbench.blockplan import blocks_of, describe
from ngraphbench.case import Session
from ngraphbench.environments.energy import EnergyMeter, find_energy
from ngraphbench.errors import NGraphBenchError
from ngraphbench.session.cooling import Cooling, thermometer
from ngraphbench.session.resident import Resident
from ngraphbench.session.state import status_of
from ngraphbench.store.samples import BLOCK_COLUMNS, append_samples, block_file
from ngraphbench.types import Arrays, Device, Json
from ngraphbench.worker.blocks import BlockRequest

__all__ = ["measure_blocks"]

GONE = ("crashed", "timeout", "oom")
"""Statuses after which the worker's process has ended."""


def measure_blocks(
    residents: Mapping[str, Resident],
    *,
    session: Session,
    epoch: int,
    folder: Path,
    observe: Callable[[str, int, int], None] = lambda text, done, of: None,
    interrupted: Callable[[], bool] = lambda: False,
    energy: Callable[[Device], EnergyMeter] = find_energy,
) -> None:
    """Run the session's blocks of one launch; rows go to ``folder``, outcomes to the states.

    ``observe(text, done, of)`` is told of each block, ``interrupted()`` asked before it: what
    is left then is ``skipped``. A program that is gone, or has no time left in its cell,
    skips its other blocks. ``energy`` finds the counters that are read around each block.
    """
    blocks = blocks_of(session.method, session.profile, epoch)
    turns = list(_turns(blocks, list(residents), random.Random(f"blocks/{session.seed}/{epoch}")))
    gone: set[str] = set()
    cooling = Cooling(thermometer(session.device), interrupted)
    for resident in residents.values() if turns else ():
        # Lanes hold memory that one request at a time does not need.
        resident.seal_usage()
    with closing(energy(session.device) if turns else EnergyMeter()) as meter:
        for done, (block, key) in enumerate(turns):
            resident = residents[key]
            observe(f"{describe(block)}: {resident.case.title}", done, len(turns))
            if interrupted():
                outcome = _Outcome("skipped", "interrupted")
            elif key in gone:
                outcome = _Outcome("skipped", "gone", "The program ended in an earlier block.")
            elif resident.left_s <= 0:
                message = "The cell's time in this launch was over before this block."
                outcome = _Outcome("skipped", "cell-deadline", message)
            else:
                celsius = cooling.wait() if block.kind == "sustained" else None
                outcome = replace(_measured(resident, block, meter), start_celsius=celsius)
                if outcome.status in GONE:
                    gone.add(key)
            rows = _rows(outcome.rows, block, epoch)
            if rows:
                append_samples(folder / block_file(key), rows, columns=BLOCK_COLUMNS)
            resident.state.blocks.append(outcome.to_json(block, epoch))


def _turns(
    blocks: list[BlockRequest], keys: list[str], generator: random.Random
) -> Iterator[tuple[BlockRequest, str]]:
    for block in blocks:
        order = list(keys)
        generator.shuffle(order)
        yield from ((block, key) for key in order)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How one block ended; ``reply`` and ``rows`` are the worker's."""

    status: str
    reason: str = ""
    message: str = ""
    reply: Json | None = None
    rows: Arrays | None = None
    start_celsius: float | None = None
    energy: Json | None = None

    def to_json(self, block: BlockRequest, epoch: int) -> Json:
        reply = self.reply or {}
        return {
            "epoch": epoch,
            "kind": block.kind,
            "rate_per_s": block.rate_per_s or None,
            "in_flight": block.in_flight or None,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "note": reply.get("note", ""),
            "requests": reply.get("requests", 0),
            "window_ns": reply.get("window_ns", 0),
            "cpu_ns": reply.get("cpu_ns", 0),
            "start_celsius": self.start_celsius,
            "energy": self.energy,
        }


def _measured(resident: Resident, block: BlockRequest, meter: EnergyMeter) -> _Outcome:
    try:
        resident.resume()
        with meter.measured() as told:
            reply, rows = resident.block(block)
        resident.suspend()
    except NGraphBenchError as error:
        status: str = status_of(error)
        if status in GONE or not _rests(resident):
            # Going on, it would disturb the blocks of the others.
            resident.kill()
            status = status if status in GONE else "crashed"
        return _Outcome(status, error.reason, error.message)
    stopped = str(reply["stopped"])
    drawn = told.energy.to_json() if told.energy else None
    return _Outcome(stopped or "ok", stopped, reply=reply, rows=rows, energy=drawn)


def _rests(resident: Resident) -> bool:
    """Suspend a program whose block failed; False when that fails too."""
    try:
        resident.suspend()
    except NGraphBenchError:
        return False
    return True


def _rows(rows: Arrays | None, block: BlockRequest, epoch: int) -> list[dict[str, Any]]:
    if rows is None:
        return []
    place = {"epoch": epoch, "kind": block.kind, "in_flight": block.in_flight}
    names = ("calls", "due_ns", "start_ns", "end_ns")
    columns = zip(*(rows[name].tolist() for name in names), strict=True)
    return [
        {**place, "index": index, **dict(zip(names, values, strict=True))}
        for index, values in enumerate(columns)
    ]
