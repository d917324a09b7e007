"""Cases and sessions: what is measured, and what is measured side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ngraphbench.profiles import Profile
from ngraphbench.types import INT8, Device, Json, OptionValue

__all__ = [
    "BENCH_LIMITS",
    "ONNX_BASELINE",
    "Case",
    "CompilerRef",
    "Limits",
    "Method",
    "ModelRef",
    "Session",
    "canonical",
    "digest",
]

ONNX_BASELINE = "onnxruntime:level=none"
"""What models that the baseline does not take, such as ONNX files, are compared with."""


def canonical(value: Any) -> str:
    """Return the one JSON text of ``value``: sorted keys, no spaces.

    >>> canonical({"b": 1, "a": [True]})
    '{"a":[true],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any) -> str:
    """Return the sha256 of the canonical JSON of ``value`` as 64 hex digits."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model as the user named it, and what makes it that model.

    ``kind``: ``onnx | saved | timm | torchvision | transformers | block | file | package``.
    ``content`` is what enters the case id: a digest of file bytes, or source, arguments and
    library version.
    ``path`` is absolute, for ``onnx``, ``file`` and the search path of ``package``.
    ``weights`` is the wish: ``random | pretrained | checkpoint`` (``file`` for ONNX).
    ``inputs`` holds the user's overrides: input name -> {shape?, dtype?, generator?}.
    ``evaluation`` is a labelled set and its metric: {file, metric, folder, content}, or empty;
    ``calibration`` the set by which int8 is calibrated: {file, content}, or empty.
    """

    source: str
    label: str
    kind: str
    content: str
    path: str = ""
    args: Json = field(default_factory=dict)
    seed: int = 0
    weights: str = "random"
    checkpoint: str = ""
    inputs: Json = field(default_factory=dict)
    inputs_file: str = ""
    evaluation: Json = field(default_factory=dict)
    calibration: Json = field(default_factory=dict)

    def to_json(self) -> Json:
        """Return all but the sets that were not given, as records have always been."""
        sets = ("evaluation", "calibration")
        return {k: v for k, v in asdict(self).items() if v or k not in sets}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelRef:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class CompilerRef:
    """A compiler with every option filled in. ``target`` is its plugin, ``module:attribute``.

    ``given`` holds only the options the user named, for labels and reproduce commands.
    """

    name: str
    target: str
    options: dict[str, OptionValue] = field(default_factory=dict)
    given: dict[str, OptionValue] = field(default_factory=dict)
    version: str = ""

    @property
    def head(self) -> str:
        """Name and version: ``onnxruntime@1.31.0``."""
        return f"{self.name}@{self.version}" if self.version else self.name

    @property
    def text(self) -> str:
        """The compiler as the command line takes it: ``name[@version][:opt=val,...]``."""
        options = ",".join(f"{k}={_plain(v)}" for k, v in sorted(self.given.items()))
        return f"{self.head}:{options}" if options else self.head

    def to_json(self) -> Json:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CompilerRef:
        return cls(**data)


def _plain(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Case:
    """One cell: a model, a compiler, a device, a batch size, a precision.

    ``replica`` tells apart equal candidates that the user named more than once.
    """

    model: ModelRef
    compiler: CompilerRef
    device: Device
    batch: int
    precision: str = "fp32"
    shapes: Json = field(default_factory=dict)
    replica: int = 0
    label: str = ""

    @property
    def case_id(self) -> str:
        """sha256 of what decides the result; labels, profile and limits are not in it."""
        identity: Json = {
            "model": self.model.content,
            "inputs": self.model.inputs,
            "compiler": {
                "name": self.compiler.name,
                "version": self.compiler.version,
                "options": self.compiler.options,
            },
            "device": f"{self.device.name}/{self.device.accelerator}",
            "threads": self.device.threads,
            "batch": self.batch,
            "shapes": self.shapes,
            "precision": self.precision,
        }
        if self.replica:
            identity["replica"] = self.replica
        if self.calibrated:
            identity["calibration"] = self.model.calibration["content"]
        if self.model.evaluation:
            # Where it lies does not matter, but what was measured without it lacks a metric.
            identity["evaluation"] = [self.model.evaluation[key] for key in ("metric", "content")]
        return digest(identity)

    @property
    def calibrated(self) -> bool:
        """Whether the model is to be quantised, by a set of the user's."""
        return self.precision == INT8 and bool(self.model.calibration)

    @property
    def title(self) -> str:
        """The label with the model and the batch size, as people read it."""
        return f"{self.model.label} b={self.batch} {self.label}"

    def to_json(self) -> Json:
        return {
            "model": self.model.to_json(),
            "compiler": self.compiler.to_json(),
            "device": self.device.to_json(),
            "batch": self.batch,
            "precision": self.precision,
            "shapes": self.shapes,
            "replica": self.replica,
            "label": self.label,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Case:
        return cls(
            model=ModelRef.from_json(data["model"]),
            compiler=CompilerRef.from_json(data["compiler"]),
            device=Device.from_json(data["device"]),
            batch=data["batch"],
            precision=data["precision"],
            shapes=data["shapes"],
            replica=data["replica"],
            label=data["label"],
        )


def _cell(case: Case) -> tuple[Any, ...]:
    inputs = (case.model.content, canonical(case.model.inputs))
    return (*inputs, case.batch, case.precision, canonical(case.shapes))


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines in seconds and memory in bytes for one case."""

    first_call_s: float = 60.0
    compile_s: float = 600.0
    cell_s: float = 900.0
    memory_bytes: int = 8 * 1024**3

    def to_json(self) -> Json:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Limits:
        return cls(**data)


BENCH_LIMITS = Limits(compile_s=120.0, cell_s=120.0)
"""Those of a bench without an experiment file: short ones."""


@dataclass(frozen=True, slots=True)
class Method:
    """How a session measures, beyond what its profile says.

    ``mode`` is that of the interleaved slots. ``claim``: ``artefact`` (this compiled file,
    several launches) or ``compiler`` (every launch builds anew from empty caches). ``best``
    races: a candidate that is surely slower leaves. What follows is measured in solo blocks,
    all others suspended: ``tails_s`` of calls for percentiles (None: as the profile says),
    ``rate_per_s`` requests at a fixed rate, ``in_flight`` requests at a time,
    ``sustained_s`` until heat and power are in balance. ``beside`` is a program that is kept
    busy all the while.
    """

    mode: str = "sync"
    claim: str = "artefact"
    best: bool = False
    tails_s: float | None = None
    rate_per_s: float | None = None
    in_flight: tuple[int, ...] = ()
    sustained_s: float = 0.0
    beside: Case | None = None

    def to_json(self) -> Json:
        return {
            "mode": self.mode,
            "claim": self.claim,
            "best": self.best,
            "tails_s": self.tails_s,
            "rate_per_s": self.rate_per_s,
            "in_flight": list(self.in_flight),
            "sustained_s": self.sustained_s,
            "beside": self.beside.to_json() if self.beside else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Method:
        """Return the method; keys that are absent keep their defaults."""
        given = {**data, "in_flight": tuple(data.get("in_flight", ()))}
        if data.get("beside"):
            given["beside"] = Case.from_json(data["beside"])
        return cls(**given)

    @property
    def conditions(self) -> Json:
        """What differs from the defaults: results under other conditions are not mixed."""
        plain = Method().to_json()
        return {key: value for key, value in self.to_json().items() if value != plain[key]}


@dataclass(frozen=True, slots=True)
class Session:
    """Cases measured side by side on one device, and how.

    ``baseline`` is the compiler (``CompilerRef.text``) that others are compared with, per
    model and batch size. ``fingerprint`` holds versions and host facts: a changed one
    makes a new session. ``attempt`` counts retries. ``environments`` maps the heads of
    compilers that do not run in the interpreter at hand to ``locks.EnvironmentRequest``; the
    fingerprint holds their ids. ``keep_artifacts``: the run keeps the programs as compiled.
    """

    cases: tuple[Case, ...]
    baseline: str
    profile: Profile
    limits: Limits
    seed: int = 0
    method: Method = Method()
    fingerprint: Json = field(default_factory=dict)
    attempt: int = 0
    environments: Json = field(default_factory=dict)
    keep_artifacts: bool = False

    @property
    def session_id(self) -> str:
        """16 hex digits: the cases and all that decides what is said of them but the limits."""
        identity: list[Any] = [
            sorted(case.case_id for case in self.cases),
            self.baseline,
            self.profile.to_json(),
            self.fingerprint,
            self.seed,
            self.method.mode,
            self.attempt,
        ]
        others = {k: v for k, v in self.method.conditions.items() if k != "mode"}
        return digest([*identity, others] if others else identity)[:16]

    @property
    def device(self) -> Device:
        return self.cases[0].device

    @property
    def saves_artifacts(self) -> bool:
        """Whether programs are saved as compiled: for later launches, or to be kept."""
        return self.profile.epochs > 1 or self.keep_artifacts

    def baseline_case(self, case: Case) -> Case | None:
        """Return the case that ``case`` is compared with, which may be itself.

        It has the same model, batch size, shapes and precision, and is the session's
        baseline, else ``ONNX_BASELINE``, else there is none.
        """
        peers = [peer for peer in self.cases if peer.replica == 0 and _cell(peer) == _cell(case)]
        for text in (self.baseline, ONNX_BASELINE):
            for peer in peers:
                if peer.compiler.text == text:
                    return peer
        name, _, level = ONNX_BASELINE.partition(":level=")
        for peer in peers:
            if peer.compiler.name == name and peer.compiler.options.get("level") == level:
                return peer
        return None

    @property
    def groups(self) -> tuple[tuple[Case, ...], ...]:
        """Cases that do the same work: one model, batch size, precision and set of shapes."""
        found: dict[tuple[Any, ...], list[Case]] = {}
        for case in self.cases:
            found.setdefault(_cell(case), []).append(case)
        return tuple(tuple(group) for group in found.values())

    def retry(self, cases: tuple[Case, ...], attempt: int) -> Session:
        """Return a new session of ``cases`` under the same conditions."""
        return replace(self, cases=cases, attempt=attempt)

    def to_json(self) -> Json:
        return {
            "cases": [case.to_json() for case in self.cases],
            "baseline": self.baseline,
            "profile": self.profile.to_json(),
            "limits": self.limits.to_json(),
            "seed": self.seed,
            "method": self.method.to_json(),
            "fingerprint": self.fingerprint,
            "attempt": self.attempt,
            "environments": self.environments,
            "keep_artifacts": self.keep_artifacts,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Session:
        return cls(
            cases=tuple(Case.from_json(case) for case in data["cases"]),
            baseline=data["baseline"],
            profile=Profile.from_json(data["profile"]),
            limits=Limits.from_json(data["limits"]),
            seed=data["seed"],
            method=Method.from_json(data.get("method") or {"mode": data["mode"]}),
            fingerprint=data["fingerprint"],
            attempt=data["attempt"],
            environments=data.get("environments", {}),
            keep_artifacts=data.get("keep_artifacts", False),
        )
