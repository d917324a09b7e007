"""What a session knows so far, saved at every finished epoch so that a resume goes on there."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ngraphbench.errors import (
    EnvironmentFailed,
    NGraphBenchError,
    StoreError,
    Unavailable,
    Unsupported,
    WorkerFailed,
)
from ngraphbench.records import Stage, Status, empty_costs, now_utc
from ngraphbench.stats import LAUNCH_PRIOR, Launch
from ngraphbench.store.disk import move, write_whole
from ngraphbench.types import Json

__all__ = ["ARTIFACT", "ARTIFACTS", "CaseState", "SessionState", "Site", "status_of"]

ARTIFACT = "artifact"
"""The folder that a worker saves its program to, in its private one."""

ARTIFACTS = "artifacts"
"""Where a run keeps such folders, by session and the start of the case id."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a session's files lie. ``run`` is the run directory, ``spool`` the session's own.

    ``folders`` maps a folder that an option names to the one that stands for it here.
    """

    run: Path
    spool: Path
    kit: Path
    token: str
    lock_fd: int | None = None
    folders: Mapping[str, str] = field(default_factory=dict)

    @property
    def samples(self) -> Path:
        return self.spool / "samples"

    @property
    def logs(self) -> Path:
        return self.spool / "logs"

    @property
    def state(self) -> Path:
        return self.spool / "state.json"

    def work(self, key: str) -> Path:
        """The private folder of one worker: home, caches, temporary files."""
        return self.spool / "work" / key

    def keep_artifact(self, key: str) -> None:
        """Move what a worker saved to where it comes home with samples and logs."""
        saved = self.work(key) / ARTIFACT
        if saved.is_dir():
            move(saved, self.spool / ARTIFACTS / key)


def status_of(error: NGraphBenchError) -> Status:
    """Return the record status that an error leads to."""
    if isinstance(error, WorkerFailed):
        return error.status  # type: ignore[return-value]
    if isinstance(error, (Unavailable, EnvironmentFailed)):
        return "unavailable"
    return "unsupported" if isinstance(error, Unsupported) else "failed"


@dataclass(slots=True)
class CaseState:
    """One cell while its session runs. An empty ``status`` means that it is still measured.

    ``beaten_by`` is the case that a race found surely faster; ``evaluation`` the task metric
    on a labelled set, where one was asked for.
    """

    status: str = ""
    reason: str = ""
    stage: str = "export"
    message: str = ""
    detail: Json = field(default_factory=dict)
    started_at: str = field(default_factory=now_utc)
    costs: Json = field(default_factory=empty_costs)
    coverage: Json | None = None
    verification: Json | None = None
    environment: Json = field(default_factory=dict)
    weights: str = ""
    call_ns: float = 0.0
    spent_s: float = 0.0
    rss_bytes: list[int] = field(default_factory=list)
    flags: list[Json] = field(default_factory=list)
    blocks: list[Json] = field(default_factory=list)
    beaten_by: str = ""
    evaluation: Json | None = None

    @property
    def live(self) -> bool:
        return not self.status

    def add_cold_compile(self, seconds: float) -> None:
        """Keep how long a compile from empty caches took; the cost is the median of all."""
        samples = [*self.costs.get("compile_cold_samples_s", ()), seconds]
        self.costs["compile_cold_samples_s"] = samples
        self.costs["compile_cold_s"] = statistics.median(samples)

    def fail(self, error: NGraphBenchError, stage: Stage) -> None:
        """Take the cell out of the race for a reason that its record will give.

        Raises a StoreError: a full disk is no fault of the cell, and ends the session.
        """
        if isinstance(error, StoreError):
            raise error
        self.status, self.stage = status_of(error), stage
        self.reason, self.message = error.reason, error.message
        detail = dict(error.detail) if isinstance(error, WorkerFailed) else {}
        if error.hint:
            detail["hint"] = error.hint
        if error.__cause__ is not None:
            # The worker's own traceback, where it sent one.
            detail["cause"] = str(error.__cause__)[-4000:]
        self.detail = detail

    def finish(self) -> None:
        """Call the cell measured, if nothing took it out before."""
        if self.live:
            self.status, self.stage = "ok", "measure"

    def flag(self, name: str, detail: str) -> None:
        """Add a flag once."""
        if all(known["flag"] != name for known in self.flags):
            self.flags.append({"flag": name, "detail": detail})


@dataclass(slots=True)
class SessionState:
    """All cells of a session by case id, and how many epochs are done.

    ``launch_prior`` is what was believed of the host's launches when the session began;
    ``sentinel`` the case whose second process is the A/A control, chosen in the first epoch.
    ``beside`` is the co-runner, where there is one, ``beside_launches`` what it did.
    """

    cases: dict[str, CaseState] = field(default_factory=dict)
    epochs_done: int = 0
    rounds: int = 0
    ended: list[str] = field(default_factory=list)
    canary_rows: list[list[int]] = field(default_factory=list)
    thermal: list[Json] = field(default_factory=list)
    deferred: list[str] = field(default_factory=list)
    started_at: str = field(default_factory=now_utc)
    flags: list[Json] = field(default_factory=list)
    launch_prior: Json = field(default_factory=lambda: asdict(LAUNCH_PRIOR))
    sentinel: str = ""
    beside: CaseState = field(default_factory=CaseState)
    beside_launches: list[Json] = field(default_factory=list)

    @property
    def prior(self) -> Launch:
        return Launch(**self.launch_prior)

    def flag(self, name: str, detail: str) -> None:
        """Add a flag of the whole session once."""
        if all(known["flag"] != name for known in self.flags):
            self.flags.append({"flag": name, "detail": detail})

    def save(self, path: Path) -> None:
        """Write the state to ``path``: whole or not at all, and on disk when this returns."""
        write_whole(path, json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> SessionState | None:
        """Return the saved state; None when nothing was saved, or by another version."""
        if not path.exists():
            return None
        try:
            data: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            cases = {key: CaseState(**value) for key, value in data["cases"].items()}
            beside = CaseState(**data["beside"])
            return cls(**{**data, "cases": cases, "beside": beside})
        except (ValueError, KeyError, TypeError):
            # What another version measured is not mixed with what this one will.
            return None
