"""The conductor of a session: exports, prepares every candidate, measures epoch by epoch.

Whatever a compiler does, crash, exit, hang, eat memory, answer wrongly, it becomes the
record of its cell, and the others go on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import TypeAlias

from ngraphbench.case import Case, Session
from ngraphbench.environments.topology import bound_to
from ngraphbench.errors import NGraphBenchError
from ngraphbench.profiles import SECOND
from ngraphbench.records import Stage
from ngraphbench.session import canary, entrants, telling
from ngraphbench.session.beside import BESIDE, LOST, kept_busy
from ngraphbench.session.boundary import Trials, tell_boundaries
from ngraphbench.session.clock import Clock, RealClock
from ngraphbench.session.compiling import compile_cold_again, compile_warm
from ngraphbench.session.entrants import SENTINEL
from ngraphbench.session.evaluating import evaluate_all
from ngraphbench.session.export import export_workloads, load_references, workload_key
from ngraphbench.session.flushing import tell_flush_factors
from ngraphbench.session.hostwatch import HostWatch
from ngraphbench.session.kernel import EpochResult, Progress, measure_epoch
from ngraphbench.session.racing import Drop
from ngraphbench.session.resident import Resident, Stopped
from ngraphbench.session.schedule import FEWEST_ROUNDS
from ngraphbench.session.solo import measure_blocks
from ngraphbench.session.state import CaseState, SessionState, Site
from ngraphbench.session.workers import Worker
from ngraphbench.stats import LAUNCH_PRIOR, Launch
from ngraphbench.store.disk import make_folders
from ngraphbench.store.samples import append_samples, drop_unfinished_epochs, sample_file
from ngraphbench.types import Json

__all__ = ["Conductor", "Emit", "Spawn"]

COMPILE_SHARE = 0.5
"""Of a candidate's measuring time, for compiles that are done for their cost alone."""

Emit: TypeAlias = Callable[[Json], None]
Spawn: TypeAlias = "Callable[[Case | None, str, int], Worker]"
"""Start a worker for a case (None: the exporter), a key that names its log and folder, an epoch."""


@dataclass(slots=True)
class Conductor:
    """Runs one session and leaves its state, samples and logs in the spool.

    ``interrupted`` is asked between slots and between candidates: the first Ctrl-C ends
    the epoch there. ``launch_prior`` is what is believed of the host's launches; a session
    that goes on keeps what it began with. ``ready`` gets the cases before the first is built.
    """

    session: Session
    site: Site
    spawn: Spawn
    emit: Emit
    interrupted: Callable[[], bool] = lambda: False
    clock: Clock = field(default_factory=RealClock)
    launch_prior: Launch = LAUNCH_PRIOR
    ready: Callable[[list[Case]], None] = lambda cases: None
    state: SessionState = field(default_factory=SessionState)

    def run(self) -> bool:
        """Run what is left of the session; True when it is finished, False when interrupted."""
        self.state = SessionState.load(self.site.state) or self._fresh()
        for folder in (self.site.samples, self.site.logs):
            make_folders(folder)
        for path in self.site.samples.glob("*.csv"):
            # Rows are written before the state that vouches for them.
            drop_unfinished_epochs(path, self.state.epochs_done)
        if self.state.epochs_done:
            done, of = self.state.epochs_done, self.session.profile.epochs
            self.emit({"event": "note", "text": f"going on: {done} of {of} launches are kept"})
        self._export()
        self.ready(self._live())
        for epoch in range(self.state.epochs_done, self.session.profile.epochs):
            if self.state.ended[-1:] == ["decided"] or (epoch and not self._live()):
                break
            if self.interrupted() or not self._epoch(epoch):
                return False
        for case_state in self.state.cases.values():
            case_state.finish()
        return self._tell_boundaries()

    def _fresh(self) -> SessionState:
        return SessionState(
            cases={case.case_id: CaseState() for case in self.session.cases},
            launch_prior=asdict(self.launch_prior),
        )

    def _live(self) -> list[Case]:
        live = [case for case in self.session.cases if self.state.cases[case.case_id].live]
        return [case for case in live if case.case_id not in self.state.deferred]

    # -- export

    def _export(self) -> None:
        wanted = [(case, self.state.cases[case.case_id]) for case in self._live()]
        beside = self.session.method.beside
        self._export_all([*wanted, *([(beside, self.state.beside)] if beside else [])])
        for case in self.session.cases:
            self._announce(case)

    def _export_all(self, wanted: list[tuple[Case, CaseState]]) -> None:
        def observe(text: str, done: int, total: int) -> None:
            self.emit(telling.phase_event("export", text, done, total))

        export_workloads(
            wanted,
            folder=self.site.run / "workloads",
            limits=self.session.limits,
            seed=self.session.seed,
            spawn=lambda key: self.spawn(None, key, 0),
            sign=lambda case: self.spawn(case, f"sign-{case.case_id[:8]}", 0),
            observe=observe,
        )

    def _announce(self, case: Case) -> None:
        """Tell the client of a cell that is out of the race."""
        found = self.state.cases[case.case_id]
        if not found.live:
            self.emit(telling.case_event(case, found))

    # -- one epoch

    def _epoch(self, epoch: int) -> bool:
        residents: dict[str, Resident] = {}
        try:
            self._prepare_all(residents, epoch)
            if not residents:
                if self.interrupted():
                    return False
                self._checkpoint(epoch, EpochResult(ended="empty"), [])
                return True
            canaries = canary.Canaries(self.clock.now_ns)
            with self._co_runner(residents, epoch):
                result = self._measure(residents, epoch, canaries)
                enough = result.rounds >= FEWEST_ROUNDS or result.ended != "interrupted"
                if not enough:
                    return False
                self._check_after(residents)
                self._evaluate(residents)
                self._measure_alone(residents, epoch)
            self._close(residents, epoch)
            self._checkpoint(epoch, result, canaries.rows)
            return True
        finally:
            for resident in residents.values():
                resident.kill()

    def _prepare_all(self, residents: dict[str, Resident], epoch: int) -> None:
        """Build every live candidate, one at a time while the others are suspended."""
        cases = self._live()
        for done, case in enumerate(cases):
            if self.interrupted():
                return
            self._phase("compile", case.title, done, len(cases) + 1, epoch)
            if self._defer(case, residents, epoch):
                continue
            state = self.state.cases[case.case_id]
            resident = self._resident(case, state, case.case_id, epoch)
            if resident.artifact.exists() and state.costs["compile_warm_s"] is None:
                compile_warm(self._resident(case, CaseState(), case.case_id, epoch), state)
            if self._prepare(resident):
                residents[case.case_id] = resident
                if epoch == 0:
                    self._compile_again(case, state)
        self._prepare_sentinel(residents, epoch)

    def _compile_again(self, case: Case, state: CaseState) -> None:
        profile = self.session.profile
        if self._builds_anew or profile.epochs < 2:
            return

        def make(number: int) -> Resident:
            return self._resident(case, CaseState(), f"cold{number}-{case.case_id}", 0)

        budget_s = profile.budget_ns / SECOND * COMPILE_SHARE
        compile_cold_again(make, state, budget_s=budget_s, interrupted=self.interrupted)

    def _prepare(self, resident: Resident) -> bool:
        try:
            resident.prepare()
        except Stopped as stopped:
            if stopped.stage == "verify" and stopped.error.reason == "values":
                self._evaluate({resident.case.case_id: resident})
            self._lose(resident, stopped.error, stopped.stage)
            return False
        return True

    def _lose(self, resident: Resident, error: NGraphBenchError, stage: Stage) -> None:
        """End a program that failed, and tell of its cell; a sentinel has none."""
        resident.kill()
        resident.state.fail(error, stage)
        if resident.state is self.state.cases[resident.case.case_id]:
            self._announce(resident.case)

    def _prepare_sentinel(self, residents: dict[str, Resident], epoch: int) -> None:
        """A second process of a baseline: two that are equal must not be declared different."""
        cases = [resident.case for resident in residents.values()]
        chosen = entrants.sentinel_case(self.session, cases, self.state.sentinel)
        if chosen is None or len(residents) < 2 or self.interrupted():
            return
        self.state.sentinel = chosen.case_id
        self._phase("compile", "A/A sentinel", len(residents), len(residents) + 1, epoch)
        resident = self._resident(chosen, CaseState(), SENTINEL, epoch)
        try:
            resident.prepare()
        except Stopped:
            resident.kill()
            return
        residents[SENTINEL] = resident

    def _resident(self, case: Case, state: CaseState, key: str, epoch: int) -> Resident:
        root = self.site.run / "workloads" / workload_key(case)
        scratch = self.site.work(key[:16])
        if self._builds_anew:
            shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True, exist_ok=True)
        return Resident(
            case=case,
            state=state,
            limits=self.session.limits,
            spawn=lambda: self.spawn(case, key, epoch),
            workload_root=root,
            scratch=scratch,
            references=load_references(root, case.batch),
            cold=epoch == 0 or self._builds_anew,
            folders=self.site.folders,
        )

    def _co_runner(
        self, residents: dict[str, Resident], epoch: int
    ) -> AbstractContextManager[None]:
        """Return what keeps the program beside the candidates busy, where one was asked for."""
        case, state = self.session.method.beside, self.state.beside
        if case is None:
            return nullcontext()

        def tell(why: str) -> None:
            self.state.flag(LOST, why)
            for resident in residents.values():
                resident.state.flag(LOST, why)

        return kept_busy(
            lambda: self._resident(case, state, BESIDE, epoch),
            state,
            epoch=epoch,
            launches=self.state.beside_launches,
            tell=tell,
        )

    @property
    def _builds_anew(self) -> bool:
        """Whether every launch builds from empty caches: then the claim is of the compiler."""
        return self.session.method.claim == "compiler"

    def _defer(self, case: Case, residents: dict[str, Resident], epoch: int) -> bool:
        """Leave a case to a later part of the session when memory would not hold it."""
        if epoch or not residents or entrants.fits_beside(residents.values()):
            return False
        self.state.deferred.append(case.case_id)
        return True

    def _measure(
        self, residents: dict[str, Resident], epoch: int, canaries: canary.Canaries
    ) -> EpochResult:
        several = len({case.batch for case in self.session.cases}) > 1
        race = entrants.race_of(
            self.session,
            self.state,
            running=residents,
            samples=self.site.samples,
            leave=lambda drop: self._leave(residents, drop),
        )

        def observe(progress: Progress) -> None:
            self.emit(telling.round_event(self.session, race, epoch, progress))

        device = self.session.device
        watch = HostWatch(self.clock.now_ns, device)

        def control(number: int) -> None:
            with bound_to(device.cpus):
                canaries.sing(epoch, number)
                watch.look()

        result = measure_epoch(
            residents,
            profile=self.session.profile,
            epoch=epoch,
            clock=self.clock,
            seed=self.session.seed,
            call_ns={key: resident.state.call_ns for key, resident in residents.items()},
            pairs=entrants.pairs_of(self.session, residents),
            mode=self.session.method.mode,
            repeats={k: 2 for k, r in residents.items() if several and r.case.batch == 1},
            controls=control,
            observe=observe,
            interrupted=self.interrupted,
            race=race,
        )
        for flag in watch.flags():
            self.state.flag(flag["flag"], flag["detail"])
        self.state.thermal.append(watch.to_json())
        watch.close()
        self._drop_failed(residents, result)
        return result

    def _drop_failed(self, residents: dict[str, Resident], result: EpochResult) -> None:
        for failure in result.failures:
            self._lose(residents.pop(failure.key), failure.error, "measure")

    def _leave(self, residents: dict[str, Resident], drop: Drop) -> None:
        """End who is beaten, once its outputs proved right to the last; a baseline stays."""
        leaves = entrants.beat(self.session, self.state, drop)
        if leaves:
            resident = residents.pop(drop.key)
            self._check_after({drop.key: resident})
            resident.close()
            resident.state.finish()
        self.emit(telling.drop_event(self.session, drop, leaves=leaves))

    def _evaluate(self, residents: dict[str, Resident]) -> None:
        """Score the programs on the user's labelled sets."""
        evaluate_all(
            [resident for key, resident in residents.items() if key != SENTINEL],
            spawn=lambda key: self.spawn(None, key, 0),
            limits=self.session.limits,
            observe=lambda text: self._phase("evaluate", text, 0, 1, self.state.epochs_done),
            interrupted=self.interrupted,
        )

    def _measure_alone(self, residents: dict[str, Resident], epoch: int) -> None:
        """Measure what interleaved slots cannot tell; what denormals cost, in the first launch."""
        programs = {k: r for k, r in residents.items() if k != SENTINEL and r.state.live}

        def observe(text: str, done: int, of: int) -> None:
            self._phase("alone", text, done, of, epoch)

        measure_blocks(
            programs,
            session=self.session,
            epoch=epoch,
            folder=self.site.samples,
            observe=observe,
            interrupted=self.interrupted,
        )
        if epoch == 0:
            tell_flush_factors(
                programs,
                lambda r: self._resident(r.case, CaseState(), f"flushed-{r.case.case_id}", epoch),
                observe=observe,
                interrupted=self.interrupted,
            )

    def _check_after(self, residents: dict[str, Resident]) -> None:
        for resident in residents.values():
            try:
                resident.check_after()
            except Stopped as stopped:
                self._lose(resident, stopped.error, stopped.stage)

    def _tell_boundaries(self) -> bool:
        if all(found.status != "oom" for found in self.state.cases.values()):
            return True
        trials = Trials(
            export=lambda case, state: self._export_all([(case, state)]),
            resident=lambda case, state: self._resident(case, state, f"fit-{case.case_id}", 0),
        )
        done = tell_boundaries(
            self.session,
            self.state,
            trials,
            interrupted=self.interrupted,
            observe=lambda text: self._phase("memory", text, 0, 1, self.state.epochs_done),
        )
        self.state.save(self.site.state)
        return done

    def _close(self, residents: dict[str, Resident], epoch: int) -> None:
        kept = epoch == 0 and self.session.saves_artifacts and not self._builds_anew
        for resident in residents.values():
            if kept and resident.state.live:
                resident.save_artifact()
            resident.close()

    def _checkpoint(
        self, epoch: int, result: EpochResult, canary_rows: list[tuple[int, int, int, int]]
    ) -> None:
        """Make the epoch durable: samples first, then the state that says they are there."""
        if entrants.reinstate(self.state) and result.ended == "decided":
            result.ended = "undecided"
        for key, rows in result.rows.items():
            append_samples(self.site.samples / sample_file(key), [row.columns() for row in rows])
        self.state.canary_rows += [list(row) for row in canary_rows]
        self.state.epochs_done = epoch + 1
        self.state.rounds += result.rounds
        self.state.ended.append(result.ended)
        self.state.save(self.site.state)
        self.emit({"event": "epoch_done", "epoch": epoch, "ended": result.ended})

    def _phase(self, phase: str, text: str, done: int, of: int, epoch: int) -> None:
        place = {"epoch": epoch, "epochs": self.session.profile.epochs}
        self.emit({**telling.phase_event(phase, text, done, of), **place})
