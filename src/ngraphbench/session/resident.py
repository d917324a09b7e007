"""A resident program: one worker process that holds one case, from spawn to close.

It is the kernel's ``Candidate``. Every request has a deadline, and all requests of a cell
together the cell's own.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ngraphbench.case import Case, Limits
from ngraphbench.errors import NGraphBenchError, WorkerFailed
from ngraphbench.models.denormals import describe_denormals
from ngraphbench.records import Stage
from ngraphbench.session.kernel import SlotResult
from ngraphbench.session.replies import checked_rows, taken_arrays
from ngraphbench.session.schedule import SlotRequest
from ngraphbench.session.state import ARTIFACT, CaseState
from ngraphbench.session.verify import Reference, Verification, check, merge
from ngraphbench.session.workers import Worker
from ngraphbench.types import Arrays, Json
from ngraphbench.worker.blocks import ROWS, BlockRequest, lane_outputs
from ngraphbench.workload import INPUT_SETS

__all__ = ["Resident", "Stopped"]

IMPORT_S = 120.0
STEADY_CALLS = 40
STEADY_S = 2.0


class Stopped(Exception):
    """A stage of one cell failed: ``stage`` and the error that says why."""

    def __init__(self, stage: Stage, error: NGraphBenchError) -> None:
        super().__init__(str(error))
        self.stage = stage
        self.error = error


@dataclass(slots=True)
class Resident:
    """One case in its own process.

    ``scratch`` is where output arrays travel, and where the artefact lies; ``references``
    holds what is right for each input set; ``cold``: compile caches were empty; ``folders``
    are those of ``Site``.
    """

    case: Case
    state: CaseState
    limits: Limits
    spawn: Callable[[], Worker]
    workload_root: Path
    scratch: Path
    references: dict[str, Reference]
    cold: bool = True
    folders: Mapping[str, str] = field(default_factory=dict)
    worker: Worker | None = None
    verification: Verification | None = None
    usage_known: bool = False

    def prepare(self) -> None:
        """Start, compile, verify and warm up; end suspended. Raises Stopped."""
        # The cell's time limit is that of one launch.
        self.state.spent_s = 0.0
        self._start()
        if self.artifact.exists():
            self._load_artifact()
        else:
            self._compile()
        checks = {name: self._check_set(name, first=name == "a") for name in INPUT_SETS}
        self._conclude(merge(checks))
        self._settle()
        self._rest()

    def compile_only(self) -> None:
        """Start and compile, and no more: what that costs is in the state. Raises Stopped."""
        self.state.spent_s = 0.0
        self._start()
        self._compile()

    @property
    def artifact(self) -> Path:
        """The folder that later launches load; not there where each of them compiles."""
        return self.scratch / ARTIFACT

    def save_artifact(self) -> None:
        """Write the artefact, where the compiler has one; what that fails at is only said.

        It comes after all else: it takes memory and time that are not the program's.
        """
        self.seal_usage()
        self.state.spent_s = 0.0
        partial = self.scratch / "artifact.part"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            self.resume()
            saved = self._ask("save_artifact", self.limits.compile_s, path=str(partial))["bytes"]
        except NGraphBenchError as error:
            self._tell_recompiled("be saved", error)
            return
        if saved:
            partial.rename(self.artifact)
            self.state.costs["artifact_bytes"] = saved

    def check_after(self) -> None:
        """Verify once more, now that timing is over. Raises Stopped."""
        self.resume()
        after = self._check_set("a", first=False)
        before = self.verification or after
        merged = merge({"before": before, "after": after})
        self._conclude(replace(merged, checks=(*before.checks, "after")))
        self._rest()

    # -- the kernel's Candidate

    def resume(self) -> None:
        self._worker.resume()

    def suspend(self) -> None:
        try:
            self._worker.suspend()
        except WorkerFailed:
            self.kill()
            raise

    def slot(self, request: SlotRequest) -> SlotResult:
        """Return one slot's timings. Raises NGraphBenchError, and ends the process then."""
        calls_ns = (request.rewarm_calls + request.calls_min) * self.state.call_ns
        expected_s = (calls_ns + request.slot_ns) / 1e9
        deadline_s = max(self.limits.first_call_s, 20 * expected_s)
        try:
            reply = self._ask("slot", deadline_s, **request.to_json())
        except NGraphBenchError:
            # It is out of the race; going on, it would disturb the slots of the others.
            self.kill()
            raise
        self.state.rss_bytes.append(int(reply["rss_bytes"]))
        return SlotResult(
            calls=reply["calls"],
            slot_ns=reply["slot_ns"],
            call_ns=reply["call_ns"],
            first_ns=reply["first_ns"],
            cpu_ns=reply["cpu_ns"],
            nivcsw=reply["nivcsw"],
            sub_ns=tuple(reply["sub_ns"]),
            rss_bytes=reply["rss_bytes"],
        )

    @property
    def left_s(self) -> float:
        """What is left of the cell's time in this launch."""
        return self.limits.cell_s - self.state.spent_s

    def block(self, request: BlockRequest) -> tuple[Json, Arrays]:
        """Return a solo block's answer and its rows. Raises NGraphBenchError.

        What lanes computed at the same time must be right for the input set of each.
        """
        calls_s = 20 * self.state.call_ns / 1e9 * max(1, request.in_flight)
        deadline_s = 2 * request.seconds + max(self.limits.first_call_s, calls_s)
        # What was asked for is no fault of the cell: its time limit grows by as much.
        self.state.spent_s -= request.seconds
        reply = self._ask("block", deadline_s, folder=str(self.scratch), **request.to_json())
        rows = checked_rows(self._taken(ROWS))
        for place in range(reply["lanes"]):
            outputs = self._taken(lane_outputs(place))
            name = INPUT_SETS[place % len(INPUT_SETS)]
            found = check(outputs, self.references[name], self.case.precision)
            if found.verdict == "wrong":
                note = next(reversed(found.notes), "the outputs are wrong")
                raise WorkerFailed(
                    f"With {request.in_flight} in flight, lane {place} gave wrong outputs: {note}.",
                    status="wrong",
                    reason=found.reason,
                )
        return reply, rows

    def ask_beyond(self, op: str, *, seconds: float, **fields: object) -> Json:
        """Return the reply to what is no part of the cell, and takes nothing of its time."""
        return self._worker.request(op, deadline_s=seconds, **fields)

    def busy(self, *, on: bool) -> Json:
        """Keep the program running from now on, or stop and return what it did since.

        Raises NGraphBenchError.
        """
        return self._ask("busy", self.limits.first_call_s, on=on)

    def seal_usage(self) -> None:
        """Keep what memory was used so far; what comes now is not the program's own need."""
        self._keep_usage()
        self.usage_known = True

    def _taken(self, name: str) -> Arrays:
        return taken_arrays(self.scratch / name)

    # -- end of life

    def close(self) -> None:
        """End the process in good order and keep what it used."""
        if self.worker is None:
            return
        self.worker.close()
        self._keep_usage()

    def kill(self) -> None:
        """End the process tree now."""
        if self.worker is not None:
            self.worker.kill()
            self._keep_usage()

    # -- stages

    @property
    def _worker(self) -> Worker:
        if self.worker is None:
            raise WorkerFailed("The worker was never started.", status="failed", reason="worker")
        return self.worker

    def _ask(self, op: str, deadline_s: float, **fields: object) -> Json:
        """Return the reply; the cell's own time limit caps every deadline."""
        left_s = self.left_s
        started = time.monotonic()
        try:
            return self._worker.request(op, deadline_s=max(0.1, min(deadline_s, left_s)), **fields)
        except WorkerFailed as error:
            if error.reason == "deadline" and left_s < deadline_s:
                error.reason = "cell-deadline"
            raise
        finally:
            self.state.spent_s += time.monotonic() - started

    def _staged(self, stage: Stage, op: str, deadline_s: float, **fields: object) -> Json:
        try:
            return self._ask(op, deadline_s, **fields)
        except NGraphBenchError as error:
            raise Stopped(stage, error) from error

    def _start(self) -> None:
        started = time.monotonic()
        try:
            self.worker = self.spawn()
        except OSError as error:
            failed = WorkerFailed(
                f"The worker process did not start: {error}.", status="failed", reason="spawn"
            )
            raise Stopped("environment", failed) from error
        except NGraphBenchError as error:
            raise Stopped("environment", error) from error
        model, plugin = self.case.model, self.case.compiler.target
        search_path = [model.path] if model.kind == "package" else []
        hello = self._staged(
            "environment",
            "hello",
            IMPORT_S,
            plugin=plugin,
            device=self.case.device.to_json(),
            search_path=search_path,
        )
        found = self._staged("probe", "import", IMPORT_S)
        self.state.costs["import_s"] = time.monotonic() - started
        self.state.environment = {
            "python": hello["python"],
            "compiler_version": found["version"],
            "packages": found["packages"],
            "variables": found["variables"],
            "lock": "",
            "binding": hello.get("binding"),
            **self.worker.origin.get("environment", {}),
        }
        self.state.costs["environment_s"] = self.worker.origin.get("environment_s")

    def _compile(self) -> None:
        reply = self._staged("compile", "compile", self.limits.compile_s, **self._order())
        if self.cold:
            self.state.add_cold_compile(reply["seconds"])
            if (tuning_s := reply.get("tuning_s")) is not None:
                self.state.costs["tuning_s"] = tuning_s
        else:
            self.state.costs["compile_warm_s"] = reply["seconds"]
        self._keep_reported(reply)

    def _load_artifact(self) -> None:
        try:
            path = str(self.artifact)
            reply = self._ask("load_artifact", self.limits.compile_s, path=path, **self._order())
        except NGraphBenchError as error:
            self._tell_recompiled("be loaded", error)
            shutil.rmtree(self.artifact, ignore_errors=True)
            if isinstance(error, WorkerFailed):
                self.kill()
                self._start()
            self._compile()
            return
        self.usage_known = True
        self.state.costs["artifact_load_s"] = reply["seconds"]
        self._keep_reported(reply)

    def _order(self) -> Json:
        options = self.case.compiler.options
        return {
            "root": str(self.workload_root),
            "batch": self.case.batch,
            "precision": self.case.precision,
            "options": {k: self.folders.get(str(v), v) for k, v in options.items()},
        }

    def _keep_reported(self, reply: Json) -> None:
        self.state.costs["device_memory_bytes"] = reply.get("device_memory_bytes")
        self.state.coverage = reply.get("coverage")

    def _tell_recompiled(self, what: str, error: NGraphBenchError) -> None:
        text = f"its artefact could not {what}, so launches compile anew: {error.message}"
        self.state.flag("recompiled", text[:400])

    def _check_set(self, name: str, *, first: bool) -> Verification:
        loaded = self._staged("load", "load", self.limits.first_call_s, set=name)
        ran = self._staged("verify", "run", self.limits.first_call_s, calls=1)
        if first:
            self.state.costs["load_s"] = loaded["seconds"]
            self.state.costs["first_run_s"] = ran["ns"][0] / 1e9
        path = self.scratch / "outputs.npz"
        self._staged("verify", "outputs", self.limits.first_call_s, path=str(path))
        try:
            outputs = self._taken(path.name)
        except WorkerFailed as error:
            raise Stopped("verify", error) from error
        reference = self.references[name]
        own = [(outputs[s.name], s.dtype) for s in reference.outputs if s.name in outputs]
        if found := describe_denormals(own, what="outputs"):
            self.state.flag("denormals", found)
        return check(outputs, reference, self.case.precision)

    def _conclude(self, verification: Verification) -> None:
        self.verification = verification
        self.state.verification = verification.to_json()
        if verification.verdict == "wrong":
            message = next(reversed(verification.notes), "the outputs are wrong")
            error = WorkerFailed(
                f"Outputs differ from {verification.reference}: {message}.",
                status="wrong",
                reason=verification.reason,
            )
            raise Stopped("verify", error)

    def _settle(self) -> None:
        """Run until steady, and keep how many runs that took and how long a call is."""
        self._staged("load", "load", self.limits.first_call_s, set="a")
        times: list[int] = []
        while len(times) < STEADY_CALLS and sum(times) < STEADY_S * 1e9:
            reply = self._staged("measure", "run", self.limits.first_call_s, calls=1)
            times += reply["ns"]
        steady = statistics.median(times[len(times) // 2 :])
        self.state.call_ns = float(steady)
        if len(times) >= 6 and self.cold:
            settled = (i for i, ns in enumerate(times) if ns <= 1.05 * steady)
            self.state.costs["runs_until_steady"] = next(settled, len(times))

    def _rest(self) -> None:
        try:
            self.suspend()
        except NGraphBenchError as error:
            raise Stopped("measure", error) from error

    def _keep_usage(self) -> None:
        worker = self._worker
        if worker.leftovers:
            self.state.flag("left-behind", f"it left {worker.leftovers}, cleared after it")
        if self.usage_known:
            # Saving and loading an artefact take memory that the program itself does not.
            return
        known = self.state.costs["peak_rss_bytes"] or 0
        self.state.costs["peak_rss_bytes"] = max(known, worker.peak_rss_bytes) or None
        if worker.log_truncated:
            self.state.flag("output-flood", "the program printed megabytes; its log was cut")
