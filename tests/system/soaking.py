"""Many sessions with a compiler in which something goes wrong, and what they leave behind.

One process is client and agent: it runs ``agent.run`` itself, so that what one session leaves in
it meets the next. Each ``WHOLE_EVERY``-th session has an agent process of its own, as in use, and
where the system allows it that one is confined, as on the devices of a fleet.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from fake_runs import compiler, fake_plan, small_profile
from processes import processes_of, wait_until
from soak_worker import FAULTS, LITTER

from ngraphbench import agent
from ngraphbench.campaign import Campaign
from ngraphbench.case import Limits, Session
from ngraphbench.engines.agentprocess import AgentProcess, outcome_of, write_message
from ngraphbench.engines.confine import can_confine, confined
from ngraphbench.plan import Plan
from ngraphbench.store.rundir import RunDir
from ngraphbench.types import Json

__all__ = ["Soaked", "soak"]

EXTERNAL = "ngraphbench.compilers.external:External"
WORKER = Path(__file__).with_name("soak_worker.py")
WHOLE_EVERY = 20
SHARED = ("/tmp", "/dev/shm")
LIMITS = {"first_call_s": 2.0, "compile_s": 20.0, "cell_s": 30.0}
EXPORT_BYTES, MEMORY_BYTES = 2 * 1024**3, 96 * 1024**2
WARM_SHARE = 0.2
"""Of the sessions come first: what they load for good is no growth."""


@dataclass
class Soaked:
    """A row for each session: memory, descriptors and threads of this process after it."""

    rows: list[tuple[int, int, int]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    whole: int = 0

    def growth_per_1000(self) -> tuple[float, float, float]:
        """Return by how much bytes, descriptors and threads grow in 1,000 sessions."""
        later = np.array(self.rows[int(len(self.rows) * WARM_SHARE) :], dtype=float)
        slopes = [float(np.polyfit(np.arange(len(later)), column, 1)[0]) for column in later.T]
        return slopes[0] * 1000, slopes[1] * 1000, slopes[2] * 1000


class SoakEngine:
    """Runs sessions in this process, and each so many-th in one of its own."""

    def __init__(self, folder: Path, whole_every: int) -> None:
        self._whole_every = whole_every
        self._confined = can_confine()
        self._private = folder / "private"
        self._number = 0
        self.whole = 0

    def devices(self) -> Json:
        return {"local": {"threads": 1}}

    def submit(self, session: Session, run: Path, emit: Callable[[Json], None]) -> Json:
        self._number += 1
        spool = agent.spool_folder(run, session)
        message = write_message(run, session, spool)
        if self._number % self._whole_every:
            return dict(json.loads(agent.run(message.read_text(), emit=emit)))
        self.whole += 1
        before: list[str] = []
        if self._confined:
            seen = [run.parent, WORKER.parent, sys.prefix, sys.base_prefix, *filter(None, sys.path)]
            before = confined(self._private, [Path(place).resolve() for place in seen])
        process = AgentProcess(message, spool / "agent.log", before=before)
        return outcome_of(spool, process.follow(emit), stopped=False)

    def interrupt(self) -> None: ...


def soak(
    folder: Path,
    sessions: int,
    *,
    seed: int = 0,
    whole_every: int = WHOLE_EVERY,
    told: Callable[[Soaked], None] = lambda found: None,
) -> Soaked:
    """Return what ``sessions`` in a run below ``folder`` came to; ``told`` after each of them.

    TMPDIR and HOME must lie in ``folder``, and the host lock too.
    """
    found = Soaked()
    engine = SoakEngine(folder, whole_every)
    sharing = whole_every if can_confine() else sessions + 1
    plan = _plan(folder, sessions, random.Random(seed), found, sharing_every=sharing)
    before = _places(folder)
    commits = 0

    def emit(event: Json) -> None:
        nonlocal commits
        if event["event"] != "record":
            return
        found.statuses[event["record"]["status"]] += 1
        commits += 1
        # The two cells of a session are told of after its commit.
        if commits % 2 == 0:
            _look(folder, found, before)
            told(found)

    directory = RunDir.open(folder / "run", create=True)
    Campaign(plan, directory, engine, emit).run()
    found.whole = engine.whole
    assert len(directory.latest()) == len(plan.cases())
    assert len(directory.sessions()) == sessions
    found.left += [str(path) for path in (folder / "run" / "spool").iterdir()]
    return found


def _plan(
    folder: Path, sessions: int, dice: random.Random, found: Soaked, *, sharing_every: int
) -> Plan:
    planned: list[Session] = []
    for number in range(sessions):
        # Each fault is met before any comes again.
        fault = FAULTS[number % len(FAULTS)] if number < len(FAULTS) else dice.choice(FAULTS)
        found.faults[fault] += 1
        everywhere = SHARED if (number + 1) % sharing_every == 0 else ()
        refs = [
            compiler(EXTERNAL, command=_command(name, more), variant=f"{place}-{number}")
            for place, (name, more) in enumerate((("none", ()), (fault, everywhere)))
        ]
        one = fake_plan(folder, refs, profile=small_profile(rounds=6, slot_ms=1), limits=LIMITS)
        memory_bytes = MEMORY_BYTES if number else EXPORT_BYTES
        limits = Limits(**LIMITS, memory_bytes=memory_bytes)
        planned.append(replace(one.sessions[0], limits=limits))
    return Plan("soak", tuple(planned))


def _command(fault: str, shared: Sequence[str]) -> str:
    return " ".join([sys.executable, "-I", "-S", str(WORKER), fault, *shared])


def _look(folder: Path, found: Soaked, before: set[str]) -> None:
    """Note this process's size, and what a session has left that it must not."""
    # Orphans became children of this process, which is no agent that ends after its session.
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    if not wait_until(lambda: not processes_of(folder), patience_s=10):
        found.left += [f"process {text}" for text in processes_of(folder).values()]
    left = sorted(_places(folder) - before)
    found.left += left
    before.update(left)
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    threads = len(list(Path("/proc/self/task").iterdir()))
    found.rows.append((pages * os.sysconf("SC_PAGE_SIZE"), descriptors, threads))


def _places(folder: Path) -> set[str]:
    """Return what lies where compilers leave things."""
    own = [path for place in ("home", "tmp") for path in (folder / place).rglob("*")]
    own = [path for path in own if path.name != "host.lock"]
    shared = [path for place in SHARED for path in Path(place).glob(f"{LITTER}*")]
    return {str(path) for path in (*own, *shared)}
