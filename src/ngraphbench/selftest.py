"""Proves the kernel on this machine: programs of known work, ranked by the whole arrow.

Four programs do 100, 100, 103 and 110 fixed pieces of work in a call. The twins must not be
declared different, and no pair may be ranked the wrong way round; ``unresolved`` is allowed,
wrong is not. A CPU hog beside them must be seen.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ngraphbench.campaign import Campaign
from ngraphbench.case import Case, CompilerRef, Limits, Method, Session
from ngraphbench.engines.local import LocalEngine
from ngraphbench.models.sources import resolve_model
from ngraphbench.plan import Plan
from ngraphbench.plugin import load_compiler, resolve_options
from ngraphbench.profiles import PROFILES, SECOND
from ngraphbench.stats import LAUNCH_PRIOR
from ngraphbench.store.rundir import RunDir
from ngraphbench.store.samples import read_samples
from ngraphbench.summary import Comparison, Samples, compare, launch_of, verdict
from ngraphbench.types import Device, Json

__all__ = ["UNITS", "Finding", "SelfTest", "run_selftest"]

SPINNER = "ngraphbench.compilers.fake:FakeCompiler"
UNITS = (100, 100, 103, 110)
"""Work of each program; the first is what the others are compared with."""

HOG = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""
"""Keeps a CPU busy for as long as its parent lives, however that ends."""

TIE = 0.01
EPOCHS = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One program against the first: ``truth`` and ``ratio`` are its time over the first's."""

    units: int
    truth: float
    ratio: Comparison
    verdict: str
    wrong: bool


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What the self-test found. ``flags`` are the names of all that was flagged."""

    findings: tuple[Finding, ...]
    flags: tuple[str, ...]
    hog: bool

    @property
    def passed(self) -> bool:
        """Nothing was ranked wrongly, and a hog was seen."""
        wrong = any(finding.wrong for finding in self.findings)
        return not wrong and (not self.hog or "interference" in self.flags)

    def to_json(self) -> Json:
        return {
            "passed": self.passed,
            "hog": self.hog,
            "flags": list(self.flags),
            "findings": [
                {
                    "units": finding.units,
                    "truth": finding.truth,
                    "ratio": finding.ratio.to_json(),
                    "verdict": finding.verdict,
                    "wrong": finding.wrong,
                }
                for finding in self.findings
            ],
        }


def run_selftest(
    *,
    seconds: float = 20.0,
    hog: bool = False,
    seed: int = 0,
    observe: Callable[[Json], None] = lambda event: None,
) -> SelfTest:
    """Return what the kernel makes of programs whose order is known.

    ``seconds`` is the measuring time of all; ``hog`` keeps every CPU busy beside them.
    """
    with tempfile.TemporaryDirectory(prefix="ngb-selftest-") as folder, _hogs(hog):
        root = Path(folder)
        plan = _plan(root, seconds=seconds, seed=seed)
        directory = RunDir.open(root / "run", create=True)
        Campaign(plan, directory, LocalEngine(), observe).run()
        return _judged(directory, plan.sessions[0], hog=hog)


def _plan(root: Path, *, seconds: float, seed: int) -> Plan:
    model = resolve_model(str(_write_model(root / "double.onnx")), base=root)
    plugin = load_compiler(SPINNER)
    cases = tuple(
        Case(
            model=model,
            compiler=CompilerRef(
                plugin.name, SPINNER, resolve_options(plugin, {"units": units}), {"units": units}
            ),
            device=Device(threads=1),
            batch=1,
            replica=UNITS[:place].count(units),
            label=f"{units} units",
        )
        for place, units in enumerate(UNITS)
    )
    profile = replace(
        PROFILES["default"],
        epochs=EPOCHS,
        slot_ns=PROFILES["quick"].slot_ns,
        half_width=1e-4,
        rounds_max=1000,
        budget_ns=int(seconds * SECOND / len(UNITS)),
    )
    # Percentiles are not what is proved here, so nothing is measured alone.
    method = Method(tails_s=0.0)
    baseline = cases[0].compiler.text
    session = Session(cases, baseline, profile, Limits(), seed=seed, method=method)
    return Plan("selftest", (session,))


def _write_model(path: Path) -> Path:
    """Write the ONNX file of y = 2 x + 1, which is what the spinner computes."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    nodes = [
        helper.make_node("Mul", ["x", "two"], ["m"]),
        helper.make_node("Add", ["m", "o"], ["y"]),
    ]
    shape, kind = ["batch", 4], onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "double",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, shape)],
        [
            numpy_helper.from_array(np.float32(value), name)
            for value, name in ((2, "two"), (1, "o"))
        ],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


def _judged(directory: RunDir, session: Session, *, hog: bool) -> SelfTest:
    records = {record["case_id"]: record for record in directory.latest()}
    samples: list[Samples] = [
        read_samples(directory.path / records[case.case_id]["measurement"]["samples"])
        for case in session.cases
    ]
    # Not what this host has learned: the proof must not lean on what it is to prove.
    launch = launch_of(samples, LAUNCH_PRIOR)
    findings = []
    for units, found in zip(UNITS[1:], samples[1:], strict=True):
        ratio = compare(found, samples[0], confidence=session.profile.confidence, launch=launch)
        assert ratio is not None, "a session has at least two rounds"
        said, truth = verdict(ratio, TIE), units / UNITS[0]
        # The first program does the least work: "faster" is said of it, and is right.
        allowed = {"faster", "unresolved"} if truth > 1 else {"tie", "unresolved"}
        findings.append(Finding(units, truth, ratio, said, said not in allowed))
    flagged = [*directory.sessions(), *records.values()]
    flags = dict.fromkeys(flag["flag"] for record in flagged for flag in record["flags"])
    return SelfTest(tuple(findings), tuple(flags), hog)


@contextlib.contextmanager
def _hogs(wanted: bool) -> Iterator[None]:
    """Keep every CPU busy meanwhile."""
    count = len(os.sched_getaffinity(0)) if wanted else 0
    command = [sys.executable, "-c", HOG, str(os.getpid())]
    hogs = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
