"""What a session needs on a device that has neither its models nor their libraries.

Workloads are exported here, once per model, and travel as files. A model that cannot be exported
is said so in the parcel, and becomes the record of its cells on the device.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ngraphbench.agent import host_lock, spool_folder
from ngraphbench.case import Case, Session
from ngraphbench.engines.base import Interrupted
from ngraphbench.engines.databases import databases_of, files_below
from ngraphbench.models.localfile import digest_file
from ngraphbench.session.export import DONE, export_workloads, workload_key
from ngraphbench.session.process import FD, WorkerProcess
from ngraphbench.session.state import CaseState
from ngraphbench.types import Json
from ngraphbench.workload import batch_folder, flushed_root

__all__ = ["Parcel", "pack"]

WORKLOADS = "workloads"
MODEL_KINDS = ("file", "saved")
"""Models that are one file of the user's: it goes along, for compilers that build the model."""

_EXPORTING = threading.Lock()


@dataclass(slots=True)
class Parcel:
    """``files`` maps a path in the run directory to its source here, ``texts`` to its content.

    ``databases`` are those of ``databases_of``.
    """

    files: dict[str, Path] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    databases: dict[str, str] = field(default_factory=dict)

    def seal(self) -> Parcel:
        """Work out the digest of every file; return the parcel."""
        for name, path in self.files.items():
            about = path.stat()
            self.digests[name] = _digest(path, about.st_size, about.st_mtime_ns)
        return self


def pack(
    session: Session,
    run: Path,
    emit: Callable[[Json], None],
    stop: Callable[[], bool] = lambda: False,
) -> Parcel:
    """Return the parcel of ``session``; makes the workloads that are not in ``run`` yet.

    Waits for what is measured on this machine. Raises Interrupted when ``stop()`` comes true.
    """
    cases = [*session.cases, *([session.method.beside] if session.method.beside else [])]
    states = [(case, CaseState()) for case in cases]

    def observe(text: str, done: int, total: int) -> None:
        emit({"event": "phase", "phase": "export", "text": text, "done": done, "of": total})

    # Devices whose sessions need the same model must not both make its files.
    with _EXPORTING, _alone(cases, run, emit, stop):
        export_workloads(
            states,
            folder=run / WORKLOADS,
            limits=session.limits,
            seed=session.seed,
            spawn=lambda key: _exporter(session, run, key),
            observe=observe,
        )
    parcel = Parcel()
    for case, state in states:
        _add(parcel, run, case, state, session)
    parcel.databases = databases_of(session)
    home = spool_folder(Path(), session)
    for named, name in parcel.databases.items():
        for path in files_below(Path(named)):
            parcel.files[f"{home / name / path.relative_to(named)}"] = path
    return parcel.seal()


@lru_cache(maxsize=4096)
def _digest(path: Path, size_bytes: int, changed_ns: int) -> str:
    """Return a file's digest, worked out once: each session on each device asks for it."""
    return digest_file(path)


@contextmanager
def _alone(
    cases: Sequence[Case], run: Path, emit: Callable[[Json], None], stop: Callable[[], bool]
) -> Iterator[None]:
    """Hold the host's lock while models are exported: that would disturb a measurement here."""
    roots = [(run / WORKLOADS / workload_key(case), case.batch) for case in cases]
    if all((batch_folder(root, batch) / DONE).exists() for root, batch in roots):
        yield
        return
    try:
        with host_lock(emit, stop):
            yield
    except KeyboardInterrupt:
        raise Interrupted from None


def _exporter(session: Session, run: Path, key: str) -> WorkerProcess:
    log = spool_folder(run, session) / "logs" / f"{key[:16]}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    return WorkerProcess.spawn(
        [sys.executable, "-m", "ngraphbench.models.exporter", FD],
        env=dict(os.environ),
        log=log,
        cwd=run,
        memory_bytes=session.limits.memory_bytes,
    )


def _add(parcel: Parcel, run: Path, case: Case, state: CaseState, session: Session) -> None:
    key = workload_key(case)
    root, place = run / WORKLOADS / key, f"{WORKLOADS}/{key}"
    folder = batch_folder(root, case.batch)
    if not state.live:
        kept = {"status": state.status, "reason": state.reason}
        told = {**kept, "message": state.message, "detail": state.detail}
        failed = {"seed": session.seed, "asked": ["pt2"], "failed": told}
        parcel.texts[f"{place}/{folder.name}/{DONE}"] = json.dumps(failed)
        return
    for path in [*root.iterdir(), *folder.rglob("*"), *flushed_root(root).rglob("*")]:
        if path.is_file() and path.suffix != ".part" and path.name != "workload.json":
            parcel.files[f"{place}/{path.relative_to(root)}"] = path
    about = json.loads((root / "workload.json").read_text(encoding="utf-8"))
    if case.model.kind in MODEL_KINDS and Path(case.model.path).is_file():
        # Its path on the device is only known there: see ``_settled`` in the desk.
        name = f"model/{Path(case.model.path).name}"
        parcel.files[f"{place}/{name}"] = Path(case.model.path)
        about["model"] = {**about["model"], "path": f"./{name}"}
    parcel.texts[f"{place}/workload.json"] = json.dumps(about)
