"""The next step of a study: the cells whose measurement would change or settle its decision.

An experiment is a product of models, compilers and batch sizes, so the file may hold a few
cells more than are wanted. Run into the folder of the study, it adds sessions of its own.
"""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ngraphbench.analysis.tables import Cell
from ngraphbench.case import Case, Limits, Method, ModelRef, canonical
from ngraphbench.errors import SpecError
from ngraphbench.profiles import PROFILES
from ngraphbench.report.wording import visible
from ngraphbench.spec import build_experiment, load_experiment
from ngraphbench.store.disk import write_whole, writing
from ngraphbench.types import VENDOR_THREADS, Json

__all__ = [
    "AGAIN",
    "LONGER",
    "NEXT",
    "Refinement",
    "Wanted",
    "model_entry",
    "refine",
    "run_limits",
    "write_refinement",
]

NEXT = "next.yaml"

AGAIN = ("timeout", "oom", "unstable")
"""Statuses that another measurement may change; a crash or a wrong output is an answer."""

LONGER = {"quick": "default", "default": "thorough"}
"""The profile that says more; there is none beyond ``thorough``, which is run once more."""

RAISED = {"timeout": ("first_call_s", "compile_s", "cell_s"), "oom": ("memory_bytes",)}
"""Limits that stood in the way of a cell of some status; they are doubled."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Cells to measure (again), and ``why`` in a few words.

    ``longer``: under a profile that says more. ``batches`` are further batch sizes of theirs,
    ``depths`` further depths of blocks.
    """

    cells: tuple[Cell, ...]
    why: str
    longer: bool = False
    batches: tuple[int, ...] = ()
    depths: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Refinement:
    """An experiment that would settle a decision; ``reasons`` say what each part is for."""

    experiment: Json
    reasons: tuple[str, ...]

    def text(self, path: Path, run: Path) -> str:
        """Return it as an experiment file, with its reasons and command as comments."""
        from ruamel.yaml import YAML

        writer, text = YAML(typ="safe", pure=True), io.StringIO()
        writer.default_flow_style = False
        # Names are written as they are, unless one of them would act on who looks at the file.
        writer.allow_unicode = json.dumps(self.experiment, ensure_ascii=False).isprintable()
        writer.dump(self.experiment, text)
        head = [
            "Cells whose measurement would change or settle the decision:",
            *(f"- {reason}" for reason in self.reasons),
            f"Run it with `{shlex.join(['ngb', 'run', str(path), '--out', str(run)])}`,",
            "then study that folder again.",
        ]
        # A control character in a comment would make the whole file unreadable.
        lines = [f"# {visible(line)}" for part in head for line in part.splitlines()]
        return "\n".join(lines) + "\n" + text.getvalue()


def refine(
    wanted: Sequence[Wanted],
    sessions: Mapping[str, Json],
    *,
    name: str,
    limits: Limits | None = None,
    measure: Json | None = None,
    interleave: Sequence[str] = ("compiler", "batch", "model", "precision"),
) -> Refinement | None:
    """Return the experiment that measures what is wanted, or None where nothing is.

    ``sessions`` are session records by id, ``limits`` those of the run, ``measure`` what the
    experiment says there in any case, ``interleave`` what a session holds. Models that are files
    are named by their whole paths, so that the file may lie anywhere.
    """
    wanted = [one for one in wanted if one.cells]
    if not wanted:
        return None
    cells = [cell for one in wanted for cell in one.cells]
    cases = [Case.from_json(cell.record["case"]) for cell in cells]
    found = [sessions[cell.key[0]] for cell in cells if cell.key[0] in sessions]
    baseline = str(found[0]["baseline"]) if found else None
    data: Json = {
        "name": name,
        "models": _distinct([*(model_entry(case.model) for case in cases), *_deeper(wanted)]),
        "compilers": _compilers(cases, baseline),
        "devices": _distinct([_device(case) for case in cases]),
        "batch_sizes": sorted(
            {case.batch for case in cases} | {batch for one in wanted for batch in one.batches}
        ),
        "precision": _distinct([case.precision for case in cases]),
        "interleave": list(interleave),
        "measure": {**_measure(wanted, cases, sessions), **(measure or {})},
        "limits": _limits(limits or Limits(), {cell.status for cell in cells}),
        # Another order of slots, so that it is another session than the one that is there.
        "seed": max((int(session["seed"]) for session in sessions.values()), default=0) + 1,
    }
    if baseline:
        data["baseline"] = baseline
    if any("@" not in head for one in found for head in _environments(one)):
        data["environments"] = "managed"
    if shapes := _shapes(cases):
        data["shapes"] = shapes
    build_experiment(data)
    return Refinement(data, tuple(dict.fromkeys(one.why for one in wanted)))


def model_entry(model: ModelRef) -> Json:
    """Return a model as an experiment file names it, wherever that file lies."""
    entry: Json = {"model": _source(model), "label": model.label}
    if model.seed:
        entry["seed"] = model.seed
    if model.weights == "pretrained":
        entry["pretrained"] = True
    if model.evaluation:
        entry |= {"eval": model.evaluation["file"], "metric": model.evaluation["metric"]}
    if model.calibration:
        entry["calib"] = model.calibration["file"]
    others = {
        "args": model.args,
        "checkpoint": model.checkpoint,
        "inputs": model.inputs,
        "inputs_file": model.inputs_file,
    }
    return entry | {key: value for key, value in others.items() if value}


def _source(model: ModelRef) -> str:
    head = model.source.partition("?")[0] if model.args else model.source
    if model.kind in ("onnx", "saved"):
        return model.path
    if model.kind == "file":
        return f"{model.path}:{head.rpartition(':')[2]}"
    if model.kind == "transformers" and model.path:
        return f"transformers:{model.path}"
    return head


def _deeper(wanted: Sequence[Wanted]) -> list[Json]:
    """Return the models that differ from those wanted in their depth alone."""
    found = []
    for one in wanted:
        for cell in one.cells if one.depths else ():
            model = Case.from_json(cell.record["case"]).model
            for depth in one.depths:
                args = {**model.args, "depth": depth}
                query = "&".join(f"{key}={value}" for key, value in args.items())
                label = f"{_source(model).rpartition(':')[2]}?{query}"
                found.append(model_entry(replace(model, args=args, label=label)))
    return found


def _distinct(values: Sequence[Any]) -> list[Any]:
    """Return each value once, in order; values may be mappings."""
    return list({canonical(value): value for value in values}.values())


def _compilers(cases: Sequence[Case], baseline: str | None) -> list[Json | str]:
    """Return the candidates; the baseline is there without being named, unless it is alone."""
    refs = {(case.compiler.text, case.replica): case.compiler for case in cases}
    named = {key: ref for key, ref in refs.items() if ref.text != baseline} or refs
    return [{ref.head: dict(ref.given)} if ref.given else ref.head for ref in named.values()]


def _device(case: Case) -> str:
    device = case.device
    return device.name if device.accelerator == "cpu" else f"{device.name}/{device.accelerator}"


def _measure(wanted: Sequence[Wanted], cases: Sequence[Case], sessions: Mapping[str, Json]) -> Json:
    profiles = [
        _profile(sessions.get(cell.key[0]), longer=one.longer)
        for one in wanted
        for cell in one.cells
    ]
    measure: Json = {"profile": max(profiles, key=list(PROFILES).index)}
    threads = {case.device.threads for case in cases}
    measure["threads"] = max(threads) or VENDOR_THREADS
    sources = (sessions.get(cell.key[0]) for one in wanted for cell in one.cells)
    method = Method.from_json(next((_conditions(s) for s in sources if s), {}))
    return measure | _method(replace(method, best=False), measure["profile"])


def _conditions(session: Json) -> Json:
    found: Json = session.get("conditions") or {}
    return found


def _method(method: Method, profile: str) -> Json:
    found: Json = {
        "mode": method.mode,
        "tails": method.tails_s,
        "rate": method.rate_per_s,
        "in_flight": list(method.in_flight) or None,
        "sustained": method.sustained_s or None,
        "beside": _source(method.beside.model) if method.beside else None,
    }
    # A claim about compilers is what a thorough profile makes by itself.
    if method.claim == "compiler" and PROFILES[profile].epochs > 1:
        found["claim"] = method.claim
    return {key: value for key, value in found.items() if value is not None}


def _profile(session: Json | None, *, longer: bool) -> str:
    name = str(session["profile"]["name"]) if session else "default"
    name = name if name in PROFILES else "default"
    return LONGER.get(name, name) if longer else name


def _limits(limits: Limits, statuses: set[str]) -> Json:
    raised = {key for status in statuses for key in RAISED.get(status, ())}
    changed = replace(limits, **{key: 2 * getattr(limits, key) for key in raised})
    return {
        "first_call": f"{changed.first_call_s:g}s",
        "compile": f"{changed.compile_s:g}s",
        "cell": f"{changed.cell_s:g}s",
        "memory": changed.memory_bytes,
    }


def _environments(session: Json) -> Json:
    found: Json = session.get("fingerprint", {}).get("environments") or {}
    return found


def _shapes(cases: Sequence[Case]) -> Json:
    rows = [case.shapes for case in cases if case.shapes]
    rows = _distinct(rows)
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def run_limits(folder: Path) -> Limits:
    """Return the limits of a run's experiment; the usual ones where it does not say."""
    try:
        return load_experiment(folder / "experiment.yaml").limits
    except SpecError:
        return Limits()


def write_refinement(
    folder: Path, found: Refinement | None, *, run: Path | None = None
) -> Path | None:
    """Write ``next.yaml`` into a folder and return its path; an old one goes where none is needed.

    ``run`` is the run directory that it adds to, the folder itself unless given. Raises
    StoreError where it cannot be written.
    """
    path = folder / NEXT
    if found is None:
        with writing(path):
            path.unlink(missing_ok=True)
        return None
    write_whole(path, found.text(path, run or folder))
    return path
