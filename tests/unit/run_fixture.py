"""A synthetic run: records, sessions and samples as a real run leaves them, and hostile names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ngraphbench.case import Case, CompilerRef, ModelRef
from ngraphbench.profiles import PROFILES, Profile
from ngraphbench.records import SCHEMA_VERSION, empty_costs
from ngraphbench.stats import Launch
from ngraphbench.summary import Samples, summarise
from ngraphbench.types import Device, Json, OptionValue

HOSTILE = "<img src=x onerror=alert(1)>"
ESCAPES = "evil\x1b[31m[bold]\u202ered\x07[/bold]"
LAUNCH = Launch(sd=0.002, degrees=40.0)

COMPILERS = {
    "eager": CompilerRef("eager", "ngraphbench.compilers.pytorch:Eager"),
    "onnxruntime": CompilerRef("onnxruntime", "ngraphbench.compilers.onnxruntime:OnnxRuntime"),
    "onnxruntime:level=none": CompilerRef(
        "onnxruntime",
        "ngraphbench.compilers.onnxruntime:OnnxRuntime",
        options={"level": "none"},
        given={"level": "none"},
    ),
    "openvino": CompilerRef("openvino", "ngraphbench.compilers.openvino:OpenVino"),
    "inductor": CompilerRef("inductor", "ngraphbench.compilers.pytorch:Inductor"),
}


def model(label: str, kind: str = "timm") -> ModelRef:
    return ModelRef(source=f"{kind}:{label}", label=label, kind=kind, content=f"sha-{label}")


def compiler(text: str) -> CompilerRef:
    """Return a known compiler, or an unknown one of that name."""
    if text in COMPILERS:
        return COMPILERS[text]
    name, _, options = text.partition(":")
    items = (item.partition("=") for item in options.split(",") if item)
    given: dict[str, OptionValue] = {key: value for key, _, value in items}
    return CompilerRef(name, "elsewhere:Plugin", options=given, given=given)


@dataclass
class Run:
    """Builds a run cell by cell; ``read`` returns samples as the store does."""

    profile: Profile = PROFILES["default"]
    rounds: int = 12
    noise: float = 0.004
    records: list[Json] = field(default_factory=list)
    sessions: list[Json] = field(default_factory=list)
    samples: dict[str, Samples] = field(default_factory=dict)
    _rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    _drift: dict[tuple[str, int, int], float] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[list[Json], list[Json], Any]:
        """What analyses and reports take: records, sessions, read."""
        return self.records, self.sessions, self.read

    def read(self, path: str) -> Samples:
        if path not in self.samples:
            raise FileNotFoundError(path)
        return self.samples[path]

    def session(self, name: str = "s0", *, baseline: str = "eager", **changes: Any) -> str:
        session_id = f"{name:0<16}"
        record: Json = {
            "schema_version": SCHEMA_VERSION,
            "kind": "session",
            "session_id": session_id,
            "started_at": "2026-11-30T13:00:00Z",
            "finished_at": "2026-11-30T13:05:00Z",
            "tool_version": "0.1.0",
            "profile": self.profile.to_json(),
            "seed": 0,
            "mode": "sync",
            "attempt": 0,
            "baseline": baseline,
            "cases": [],
            "fingerprint": {"torch": "2.14.1"},
            "host": HOST,
            "canaries": {
                "compute": {"median_ns": 1.0e6, "p05_ns": 0.99e6, "p95_ns": 1.02e6, "spread": 0.03}
            },
            "sentinel": {
                "case_id": "0" * 64,
                "estimate": 1.001,
                "low": 0.997,
                "high": 1.005,
                "confidence": 0.99,
                "excludes_one": False,
                "samples": f"samples/{session_id}/sentinel.csv",
            },
            "epochs_done": self.profile.epochs,
            "launch_sd": 0.002,
            "flags": [],
            "status": "done",
        }
        self.sessions.append({**record, **changes})
        return session_id

    def cell(
        self,
        session_id: str,
        model: ModelRef,
        text: str,
        batch: int,
        *,
        ms: float | None = None,
        status: str = "ok",
        device: str = "local",
        shapes: Json | None = None,
        **changes: Any,
    ) -> Json:
        """Add a cell; ``ms`` is its true time per call, None for one that has no timing."""
        place = Device(device, threads=2)
        case = Case(model, compiler(text), place, batch, shapes=shapes or {}, label=text)
        record = self._record(session_id, case, status)
        if ms is not None:
            path = f"samples/{session_id}/{case.case_id[:16]}.csv"
            self.samples[path] = self._samples(session_id, ms)
            record["measurement"] = {
                "samples": path,
                "mode": "sync",
                "epochs": self.profile.epochs,
                "rounds": self.rounds,
                "calls": 10 * self.rounds * self.profile.epochs,
                "outlier_share": 0.0,
            }
        record.update(changes)
        self.records.append(record)
        return record

    def summarise(self) -> Run:
        """Fill in the summaries, as a session does at its end."""
        for record in self.records:
            if record["measurement"] and record["status"] != "wrong":
                record["summary"] = summarise(
                    self.read(record["measurement"]["samples"]),
                    batch=record["case"]["batch"],
                    confidence=self.profile.confidence,
                    tie=self.profile.tie,
                    launch=LAUNCH,
                    baseline=self._baseline_samples(record),
                    baseline_label=self._baseline(record),
                )
        return self

    def _baseline(self, record: Json) -> str:
        only_onnx = record["case"]["model"]["kind"] == "onnx"
        return "onnxruntime:level=none" if only_onnx else "eager"

    def _baseline_samples(self, record: Json) -> Samples | None:
        for other in self.records:
            here = all(
                other["case"][key] == record["case"][key]
                for key in ("model", "batch", "precision", "shapes")
            )
            here = here and other["session_id"] == record["session_id"]
            if here and other["label"] == self._baseline(record) and other is not record:
                return self.read(other["measurement"]["samples"]) if other["measurement"] else None
        return None

    def _samples(self, session_id: str, ms: float) -> Samples:
        epochs, rounds = self.profile.epochs, self.rounds
        epoch = np.repeat(np.arange(epochs), rounds)
        number = np.tile(np.arange(rounds), epochs)
        drift = [
            self._drift.setdefault((session_id, int(e), int(r)), self._rng.normal(0, 0.03))
            for e, r in zip(epoch, number, strict=True)
        ]
        call_ns = ms * 1e6 * np.exp(np.array(drift) + self._rng.normal(0, self.noise, len(epoch)))
        return {
            "epoch": epoch,
            "round": number,
            "position": np.zeros(len(epoch)),
            "calls": np.full(len(epoch), 10),
            "slot_ns": call_ns * 10,
            "call_ns": call_ns,
            "first_ns": call_ns * 1.05,
            "cpu_ns": call_ns * 20,
            "nivcsw": np.zeros(len(epoch)),
        }

    def _record(self, session_id: str, case: Case, status: str) -> Json:
        failed = status not in ("ok", "unverifiable", "unstable")
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "case",
            "case_id": case.case_id,
            "session_id": session_id,
            "case": case.to_json(),
            "label": case.label,
            "status": status,
            "reason": "",
            "stage": "measure",
            "message": "",
            "detail": {},
            "started_at": "2026-11-30T13:00:00Z",
            "tool_version": "0.1.0",
            "profile": self.profile.name,
            "seed": 0,
            "measurement": None,
            "summary": None,
            "costs": {
                **empty_costs(),
                "import_s": 1.8,
                **({} if failed else {"compile_cold_s": 4.2, "first_run_s": 0.031}),
                "peak_rss_bytes": 512 * 1024**2,
            },
            "coverage": None,
            "verification": None if failed else VERIFIED,
            "flags": [],
            "weights": "random(seed 0)",
            "environment": {
                "python": "3.11.7",
                "compiler_version": "1.2.3",
                "packages": {case.compiler.name: "1.2.3", "numpy": "2.1.0"},
                "variables": {"OMP_NUM_THREADS": "2"},
                "lock": "",
            },
            "command": f"ngb bench {case.model.source} -c {case.label} -b {case.batch}",
            "log": f"logs/{session_id}/{case.case_id[:16]}.log",
        }


HOST: Json = {
    "cpu_model": "Example CPU 7000 2-Core",
    "cpu_flags": ["avx2", "fma"],
    "logical_cpus": 2,
    "physical_cores": 2,
    "smt": False,
    "numa_nodes": 1,
    "governor": None,
    "frequency_khz": None,
    "quota_cpus": None,
    "thp": "madvise",
    "os": "Linux",
    "kernel": "6.1.0",
    "python": "3.11.7",
    "memory_bytes": 16 * 1024**3,
    "hypervisor": True,
    "affinity": [0, 1],
}

VERIFIED: Json = {
    "verdict": "ok",
    "reason": "",
    "max_abs": 2.1e-6,
    "rel_l2": 8.4e-7,
    "tolerance": 1e-4,
    "smallest_rtol": 1.2e-6,
    "baseline_rel_l2": 5.0e-7,
    "reference": "eager-fp64",
    "outputs": [
        {
            "name": "logits",
            "dtype": "float32",
            "shape": [1, 1000],
            "max_abs": 2.1e-6,
            "rel_l2": 8.4e-7,
        }
    ],
    "checks": ["a", "b", "after"],
    "notes": [],
}

WRONG: Json = {
    **VERIFIED,
    "verdict": "wrong",
    "reason": "values",
    "max_abs": 1.7,
    "rel_l2": 0.31,
    "smallest_rtol": 0.9,
}


def run_of_lengths() -> Run:
    """Return two models x two candidates x two batch sizes x two lengths of their input."""
    run = Run(PROFILES["quick"])
    session = run.session()
    for ref, size in ((model("bert"), 4.0), (model("mlp"), 1.0)):
        for length in (128, 256):
            shapes = {"ids": ["batch", length]}
            for batch in (1, 8):
                ms = size * batch * length / 128
                run.cell(session, ref, "eager", batch, ms=ms, shapes=shapes)
                run.cell(session, ref, "openvino", batch, ms=ms / 2, shapes=shapes)
    return run.summarise()


FELL_BACK = "38% of its FLOPs ran outside what was compiled"


def run_of_devices() -> Run:
    """Return two models x three candidates x two devices x three batch sizes x two lengths.

    OpenVINO is only partly compiled for the first model at batch 1 on the first device.
    """
    run = Run(PROFILES["quick"])
    for device, slow in (("laptop", 1.0), ("board", 5.0)):
        session = run.session(device)
        for ref, size in ((model("bert"), 4.0), (model("mlp"), 1.0)):
            for length in (128, 256):
                for batch in (1, 4, 16):
                    ms = slow * size * batch * length / 128
                    for text, speed in (("eager", 1.0), ("onnxruntime", 1.5), ("openvino", 2.0)):
                        run.cell(
                            session,
                            ref,
                            text,
                            batch,
                            ms=ms / speed,
                            device=device,
                            shapes={"ids": ["batch", length]},
                        )
    run.records[2]["flags"] = [{"flag": "partly-compiled", "detail": FELL_BACK}]
    return run.summarise()


def full_run(profile: str = "default") -> Run:
    """Return two models x four candidates x two batches with a reversal at batch 8.

    Inductor crashed, is unsupported, gave wrong outputs, or worked, once each; a third,
    hostile model has one cell.
    """
    run = Run(PROFILES[profile])
    effnet, deit = model("efficientnet_b0"), model("deit_tiny_patch16_224")
    s = run.session(flags=[{"flag": "interference", "detail": "PSI cpu 22 %"}])
    times = {
        (effnet.label, 1): {"eager": 20.0, "onnxruntime": 10.0, "openvino": 9.0},
        (effnet.label, 8): {"eager": 127.0, "onnxruntime": 40.1, "openvino": 40.0},
        (deit.label, 1): {"eager": 18.0, "onnxruntime": 12.0, "openvino": 18.6},
        (deit.label, 8): {"eager": 114.0, "onnxruntime": 66.0, "openvino": 60.0},
    }
    for ref in (effnet, deit):
        for batch in (1, 8):
            for text, ms in times[ref.label, batch].items():
                run.cell(s, ref, text, batch, ms=ms)
    run.cell(s, effnet, "inductor", 1, ms=11.0)
    run.cell(
        s,
        effnet,
        "inductor",
        8,
        status="crashed",
        stage="compile",
        reason="signal:SIGSEGV",
        message="The worker died while it compiled the program.\nSee its log.",
    )
    run.cell(
        s,
        deit,
        "inductor",
        1,
        ms=3.0,
        status="wrong",
        stage="verify",
        reason="values",
        message="Outputs differ from eager-fp64: rel_l2 0.31, tolerance 1e-4.",
        verification=WRONG,
    )
    run.cell(
        s,
        deit,
        "inductor",
        8,
        status="unsupported",
        stage="export",
        reason="batch-fixed",
        message="The exported graph fixes its batch size at 1.",
    )
    run.cell(
        s,
        model(HOSTILE),
        f"bad:{ESCAPES}=1",
        1,
        status="failed",
        stage="compile",
        reason=ESCAPES,
        message=f"{HOSTILE}\n{ESCAPES}",
        command=f"ngb bench {HOSTILE}",
        log="javascript:alert(1)",
    )
    run.records[1]["flags"] = [{"flag": "interference", "detail": f"switches {HOSTILE}"}]
    return run.summarise()
