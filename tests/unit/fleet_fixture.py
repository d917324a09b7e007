"""Plans over many devices, and an engine that measures nothing on them."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from ngraphbench.campaign import skip_record
from ngraphbench.case import Case, CompilerRef, Limits, ModelRef, Session
from ngraphbench.plan import Plan
from ngraphbench.profiles import PROFILES
from ngraphbench.types import Device, Json

__all__ = ["FleetOfFakes", "fleet_plan", "fleet_session"]


def fleet_session(device: str, number: int, compilers: Iterable[str] = ("eager", "ort")) -> Session:
    """Return a session of one model on ``device``; ``number`` is its batch size."""
    cases = tuple(
        Case(
            model=ModelRef(source="m.onnx", label="m", kind="onnx", content="c" * 64),
            compiler=CompilerRef(name=name, target=f"x:{name}"),
            device=Device(name=device, threads=2),
            batch=number,
            label=name,
        )
        for name in compilers
    )
    return Session(cases=cases, baseline="eager", profile=PROFILES["quick"], limits=Limits())


def fleet_plan(devices: Iterable[str], sessions: int) -> Plan:
    """Return a plan of so many sessions on each device."""
    return Plan("fleet", tuple(fleet_session(d, n + 1) for n in range(sessions) for d in devices))


class FleetOfFakes:
    """Answers every session after ``takes_s``; ``faults`` maps a device to what it raises.

    ``spans`` holds when each session began and ended, by device.
    """

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.faults: dict[str, Callable[[Session], Exception | None]] = {}
        self.spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.asked: dict[str, list[int]] = defaultdict(list)
        self.interrupts = 0
        self.stop = threading.Event()

    def devices(self) -> Json:
        return {}

    def submit(self, session: Session, run: Path, emit: Callable[[Json], None]) -> Json:
        name, began = session.device.name, time.monotonic()
        self.asked[name].append(session.cases[0].batch)
        emit({"event": "round", "round": 1})
        self.stop.wait(self.takes_s)
        fault = self.faults.get(name, lambda session: None)(session)
        self.spans[name].append((began, time.monotonic()))
        if fault is not None:
            raise fault
        records = [
            {**skip_record(case, "ok", "", ""), "session_id": session.session_id}
            for case in session.cases
        ]
        kept = {key: session.to_json()[key] for key in ("baseline", "fingerprint", "profile")}
        closing: Json = {
            "schema_version": 1,
            "kind": "session",
            "session_id": session.session_id,
            "mode": session.method.mode,
            "seed": session.seed,
            "attempt": session.attempt,
            "cases": [case.case_id for case in session.cases],
        }
        return {"finished": True, "records": [*records, {**closing, **kept}], "deferred": []}

    def interrupt(self) -> None:
        self.interrupts += 1
        self.stop.set()
