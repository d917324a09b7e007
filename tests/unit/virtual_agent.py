"""An engine that runs the agent here, over programs that answer at once: runs of milliseconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from run_fixture import HOST, VERIFIED

from ngraphbench import agent
from ngraphbench.case import Case, CompilerRef, Limits, ModelRef, Session
from ngraphbench.engines.agentprocess import write_message
from ngraphbench.errors import ClusterError, NGraphBenchError
from ngraphbench.plan import Plan
from ngraphbench.profiles import MS, SECOND, Profile
from ngraphbench.session import conductor, recording
from ngraphbench.session.kernel import SlotResult
from ngraphbench.session.resident import Resident
from ngraphbench.session.schedule import SlotRequest
from ngraphbench.session.verify import Reference
from ngraphbench.types import Device, Json

EPOCHS, ROUNDS = 2, 2
CALLS_NS = {"fake": 1e6, "fake:work_us=1": 2e6}
PROFILE = Profile(
    name="quick",
    epochs=EPOCHS,
    rounds_min=ROUNDS,
    rounds_max=ROUNDS,
    slot_ns=MS,
    half_width=1e-9,
    confidence=0.90,
    tie=0.03,
    budget_ns=60 * SECOND,
    claim="none: a test",
)


class Exporter:
    """A worker that makes an empty workload."""

    peak_rss_bytes = 0
    log_truncated = False
    origin: ClassVar[Json] = {}

    def __init__(self) -> None:
        self._root = Path()

    def request(self, op: str, *, deadline_s: float, **fields: object) -> Json:
        if op == "open":
            self._root = Path(str(fields["root"]))
        else:
            (self._root / f"b{fields['batch']}").mkdir(exist_ok=True)
        return {"weights": "file", "seconds": 0.1, "denormals": ""}

    def kill(self) -> None: ...


class VirtualResident(Resident):
    """A program that was built, is right, and answers at once."""

    def prepare(self) -> None:
        self.state.call_ns = CALLS_NS[self.case.label]
        self.state.verification = VERIFIED

    def check_after(self) -> None: ...

    def resume(self) -> None: ...

    def suspend(self) -> None: ...

    def close(self) -> None: ...

    def kill(self) -> None: ...

    def save_artifact(self) -> None:
        self.artifact.mkdir(exist_ok=True)

    def slot(self, request: SlotRequest) -> SlotResult:
        call_ns = self.state.call_ns
        slot_ns = int(5 * call_ns)
        return SlotResult(5, slot_ns, call_ns, 1, 1, 0, (call_ns,) * 5, rss_bytes=10**8)


class _Still:
    """A host on which nothing happens, and no canary sings: both would take real time."""

    rows: ClassVar[list[tuple[int, int, int, int]]] = []

    def __init__(self, *_: object) -> None: ...

    def sing(self, epoch: int, number: int) -> None: ...

    def look(self) -> None: ...

    def flags(self) -> list[Json]:
        return []

    def to_json(self) -> Json:
        return {"source": "", "sensors": [], "on_battery": None, "rows": []}

    def close(self) -> None: ...


class _NoProvision:
    def __init__(self, *_: object) -> None: ...

    def provide(self, cases: list[Case]) -> None: ...


class VirtualEngine:
    """Runs ``agent.run`` in the campaign's thread; what it raises is a dead agent."""

    def devices(self) -> Json:
        return {"local": {"threads": 1}}

    def submit(self, session: Session, run: Path, emit: Callable[[Json], None]) -> Json:
        message = write_message(run, session, agent.spool_folder(run, session))
        try:
            outcome: Json = json.loads(agent.run(message.read_text(), emit=emit))
        except (NGraphBenchError, OSError) as error:
            raise ClusterError(str(error), reason="agent") from error
        return outcome

    def interrupt(self) -> None: ...


@contextmanager
def virtual_agents(
    *,
    resident: type[Resident] = VirtualResident,
    spawn: Callable[..., Any] = lambda case, key, epoch: Exporter(),
    references: Mapping[str, Reference] | None = None,
) -> Iterator[None]:
    """Let ``agent.run`` start no process, take no lock of the host, and look at no clock long."""
    with (
        mock.patch.multiple(
            agent,
            host_lock=lambda *_: nullcontext(None),
            _guarded=lambda: nullcontext("token"),
            build_kit=lambda root: root,
            Provision=lambda *_: nullcontext(_NoProvision()),
            _spawner=lambda *_: spawn,
            host_facts=lambda: HOST,
            discover=dict,
        ),
        mock.patch.multiple(
            conductor,
            HostWatch=_Still,
            Resident=resident,
            compile_cold_again=lambda *_, **more: None,
            compile_warm=lambda *_: None,
            load_references=lambda root, batch: dict(references or {}),
        ),
        mock.patch.object(conductor.canary, "Canaries", _Still),
        mock.patch.object(conductor.entrants, "fits_beside", lambda residents: True),
        mock.patch.object(recording, "steadiness_flags", lambda *_: {}),
    ):
        yield


def virtual_plan(*models: str) -> Plan:
    """Return a plan with a session of two candidates for each model; the first keeps programs."""
    target = "ngraphbench.compilers.fake:FakeCompiler"
    refs = [
        CompilerRef("fake", target),
        CompilerRef("fake", target, {"work_us": 1}, {"work_us": 1}),
    ]
    sessions = [
        Session(
            cases=tuple(
                Case(
                    model=ModelRef(source=name, label=name, kind="onnx", content=name * 64),
                    compiler=ref,
                    device=Device(threads=1),
                    batch=1,
                    label=ref.text,
                )
                for ref in refs
            ),
            baseline="fake",
            profile=PROFILE,
            limits=Limits(),
            keep_artifacts=name == models[0],
        )
        for name in models
    ]
    return Plan("virtual", tuple(sessions))
