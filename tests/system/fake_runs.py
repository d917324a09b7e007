"""Runs of the vendor-free compiler: plans made by hand, and a client to run them in.

``python fake_runs.py FOLDER PLAN.json`` is that client: events go to stdout as JSON lines.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ngraphbench.campaign import Campaign
from ngraphbench.case import Case, CompilerRef, Limits, Session
from ngraphbench.engines.base import Interrupted
from ngraphbench.engines.local import LocalEngine
from ngraphbench.models.sources import resolve_model
from ngraphbench.plan import Plan
from ngraphbench.plugin import load_compiler, resolve_options
from ngraphbench.profiles import MS, SECOND, Profile
from ngraphbench.store.rundir import RunDir
from ngraphbench.testing.workloads import write_onnx
from ngraphbench.types import Device, Json

__all__ = ["FAKE", "campaign", "client", "compiler", "fake_plan", "small_profile"]

FAKE = "ngraphbench.compilers.fake:FakeCompiler"


def small_profile(*, epochs: int = 1, rounds: int = 8, slot_ms: int = 5) -> Profile:
    """Return a profile of very short slots."""
    return Profile(
        name="quick",
        epochs=epochs,
        rounds_min=6,
        rounds_max=rounds,
        slot_ns=slot_ms * MS,
        half_width=1e-9,
        confidence=0.90,
        tie=0.03,
        budget_ns=60 * SECOND,
        claim="none: a test",
    )


def compiler(target: str = FAKE, **options: Any) -> CompilerRef:
    """Return a candidate with its options filled in."""
    plugin = load_compiler(target)
    return CompilerRef(plugin.name, target, resolve_options(plugin, options), options)


def fake_plan(
    folder: Path,
    compilers: Sequence[CompilerRef],
    *,
    profile: Profile | None = None,
    limits: Mapping[str, Any] | None = None,
    batches: Iterable[int] = (1,),
) -> Plan:
    """Return a plan of one session over ``y = 2 x + 1``; the first compiler is the baseline."""
    path = folder / "double.onnx"
    if not path.exists():
        write_onnx(path, "fake")
    model = resolve_model(str(path), base=folder)
    cases = tuple(
        Case(
            model=model,
            compiler=ref,
            device=Device(threads=1),
            batch=batch,
            replica=[other.text for other in compilers[:place]].count(ref.text),
            label=ref.text,
        )
        for batch in batches
        for place, ref in enumerate(compilers)
    )
    session = Session(
        cases=cases,
        baseline=compilers[0].text,
        profile=profile or small_profile(),
        limits=Limits(**(limits or {})),
    )
    return Plan("fake", (session,))


def campaign(folder: Path, plan: Plan, emit: Any = lambda event: None) -> Campaign:
    """Return the campaign of ``plan`` in ``folder`` over the local engine."""
    return Campaign(plan, RunDir.open(folder, create=True), LocalEngine(), emit)


def client(folder: Path, plan: Plan, **more: Any) -> subprocess.Popen[str]:
    """Return a client in its own process, started on ``plan``; its events come on stdout."""
    path = folder.with_suffix(".plan.json")
    path.write_text(json.dumps(plan.to_json()))
    command = [sys.executable, __file__, str(folder), str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more)


def _tell(event: Json) -> None:
    print(json.dumps(event), flush=True)


def _main(folder: Path, plan: Plan) -> int:
    # A shell's background job ignores SIGINT; the client under test must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    running = campaign(folder, plan, _tell)
    try:
        with running.directory.lock():
            running.run()
    except (Interrupted, KeyboardInterrupt):
        return 130
    return 0


if __name__ == "__main__":
    _plan = Plan.from_json(json.loads(Path(sys.argv[2]).read_text()))
    sys.exit(_main(Path(sys.argv[1]), _plan))
