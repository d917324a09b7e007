"""Workloads made once per model by an exporter process; a crash there is a record, not an end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ngraphbench.case import Case, Limits, digest
from ngraphbench.errors import NGraphBenchError, PluginError, StoreError, WorkerFailed
from ngraphbench.plugin import load_compiler
from ngraphbench.session.evaluating import referenced
from ngraphbench.session.state import CaseState
from ngraphbench.session.verify import Reference
from ngraphbench.session.workers import Worker
from ngraphbench.store.disk import make_folders, write_whole
from ngraphbench.types import Json, TensorSpec
from ngraphbench.workload import ARTEFACT, INPUT_SETS, PORTABLE, batch_folder, read_arrays

__all__ = ["export_key", "export_workloads", "load_references", "workload_key"]

DONE = "done.json"
DOUBTS = (
    *("batch-rewritten", "output-has-no-batch", "rows-depend-on-batch", "batch-shared"),
    *("quantised", "stateful", "ill-conditioned", "fp64-disagrees", "constant", "not-finite"),
    *("export-differs", "invalid-onnx"),
)
"""Notes of the exporter on which the meaning of a figure hangs: they become flags."""

CLOSE_S = 5.0


def workload_key(case: Case) -> str:
    """Return the name of the workload folder: what the model, its inputs and shapes decide."""
    identity = [case.model.content, case.model.inputs, case.shapes, case.precision]
    return digest([*identity, *([case.model.calibration] if case.calibrated else [])])[:16]


def export_key(case: Case) -> str:
    """Return the name of the exporter's log for a case's model."""
    return f"export-{workload_key(case)[:8]}"


@dataclass(slots=True)
class _Exporter:
    """One model's exporter process, started when first needed and again after a crash."""

    spawn: Callable[[str], Worker]
    root: Path
    case: Case
    limits: Limits
    sign: Callable[[Case], Worker] | None
    worker: Worker | None = None
    opened: Json | None = None

    def batch(self, batch: int, seed: int, forms: Sequence[str]) -> Json:
        """Return what the exporter says of one batch size, with ``export_s`` and ``weights``."""
        try:
            opened = self._open(seed)
            deadline_s = min(self.limits.compile_s, self.limits.cell_s)
            worker = self.worker
            assert worker is not None
            wish: Json = {"batch": batch, "seed": seed, "forms": list(forms)}
            made = worker.request("batch", deadline_s=deadline_s, **wish)
        except WorkerFailed:
            self.end()
            raise
        return {
            "weights": opened["weights"],
            "denormals": made["denormals"],
            "notes": [*opened.get("notes", []), *made.get("notes", [])],
            "export_s": float(opened["seconds"]) + float(made["seconds"]),
            "seed": seed,
            "asked": list(forms),
        }

    def evaluation(self, batch: int, seed: int) -> Json | None:
        """Return the task metric of the uncompiled model, where one was asked for."""

        def ask(op: str, *, deadline_s: float, **fields: object) -> Json:
            self._open(seed)
            assert self.worker is not None
            return self.worker.request(op, deadline_s=deadline_s, **fields)

        try:
            return referenced(
                ask,
                root=self.root,
                batch=batch,
                wish=self.case.model.evaluation,
                limits=self.limits,
            )
        except WorkerFailed:
            self.end()
            raise

    def _open(self, seed: int) -> Json:
        if self.worker is None:
            self.worker = self.spawn(export_key(self.case))
            self.opened = None
        if self.opened is None:
            self.opened = self.worker.request(
                "open",
                deadline_s=self.limits.compile_s,
                model=self.case.model.to_json(),
                root=str(self.root),
                precision=self.case.precision,
                seed=self.case.model.seed,
                shapes=self.case.shapes,
                memory_bytes=self.limits.memory_bytes,
                signature=self._signature(),
            )
        return self.opened

    def _signature(self) -> Json | None:
        """Return what an artefact's own compiler reads in it; None for other models."""
        model, device = self.case.model, self.case.device.to_json()
        plain = not model.kind.startswith(ARTEFACT)
        if plain or model.args.get("reference") or self.sign is None:
            return None
        worker = self.sign(self.case)
        limit_s, plugin = self.limits.compile_s, self.case.compiler.target
        try:
            worker.request("hello", deadline_s=limit_s, plugin=plugin, device=device)
            worker.request("import", deadline_s=limit_s)
            found = worker.request(
                "signature", deadline_s=limit_s, path=model.path, given=_given(model.inputs)
            )
        finally:
            worker.kill()
        return {key: found[key] for key in ("inputs", "outputs")}

    def end(self) -> None:
        if self.worker is not None:
            self.worker.kill()
        self.worker, self.opened = None, None


def _given(overrides: Mapping[str, Json]) -> list[Json]:
    """Return the inputs of which the user gave a whole shape."""
    return [
        TensorSpec(name, one.get("dtype") or "float32", tuple(one["shape"])).to_json()
        for name, one in overrides.items()
        if one.get("shape") and all(isinstance(dim, int) for dim in one["shape"])
    ]


def export_workloads(
    cases: Sequence[tuple[Case, CaseState]],
    *,
    folder: Path,
    limits: Limits,
    seed: int,
    spawn: Callable[[str], Worker],
    observe: Callable[[str, int, int], None],
    sign: Callable[[Case], Worker] | None = None,
) -> None:
    """Make every workload that the live cases need; cases that have none fail with the reason.

    A batch size already exported with this seed is used again: folders are named by their
    content. ``sign`` starts a worker of a case's compiler, to read an artefact's signature.
    """
    groups: dict[str, dict[int, list[tuple[Case, CaseState]]]] = {}
    for case, state in cases:
        batches = groups.setdefault(workload_key(case), {})
        batches.setdefault(case.batch, []).append((case, state))
    total = sum(len(batches) for batches in groups.values())
    done = 0
    for key, batches in groups.items():
        first = next(iter(batches.values()))[0][0]
        root = folder / key
        make_folders(root)
        exporter = _Exporter(spawn, root, first, limits, sign)
        try:
            for batch, members in batches.items():
                observe(f"{first.model.label} b={batch}", done, total)
                _export_batch(exporter, batch, members, seed=seed)
                done += 1
        finally:
            exporter.end()


def _export_batch(
    exporter: _Exporter, batch: int, members: list[tuple[Case, CaseState]], *, seed: int
) -> None:
    states = [state for _, state in members]
    if not any(state.live for state in states):
        return
    forms = _forms_asked_for([case for case, state in members if state.live])
    done = batch_folder(exporter.root, batch) / DONE
    try:
        made = json.loads(done.read_text(encoding="utf-8")) if done.exists() else {}
        same = made.get("seed") == seed
        had = set(made.get("asked", ())) if same else set()
        if not same or forms - had:
            # Broken off in the middle, it must not pass for what was there before.
            done.unlink(missing_ok=True)
            made = exporter.batch(batch, seed, sorted(forms | had))
            write_whole(done, json.dumps(made))
        if "failed" in made:
            # It was tried where the model is, and this is what came of it.
            for state in states:
                _take_failure(state, made["failed"])
            return
        evaluation = exporter.evaluation(batch, seed)
    except StoreError:
        # A full disk is no fault of these cells: they are measured once there is room.
        raise
    except NGraphBenchError as error:
        for state in states:
            state.fail(error, "export")
        return
    for state in states:
        state.weights = made["weights"]
        if evaluation is not None and state.evaluation is None:
            state.evaluation = dict(evaluation)
        if made.get("denormals"):
            state.flag("denormals", made["denormals"])
        state.costs["export_s"] = made["export_s"]
        for note in made["notes"]:
            name, _, detail = note.partition(": ")
            if name in DOUBTS:
                state.flag(name, detail)


def _take_failure(state: CaseState, told: Json) -> None:
    state.stage, state.status, state.reason = "export", told["status"], told["reason"]
    state.message, state.detail = told["message"], dict(told["detail"])


def _forms_asked_for(cases: Sequence[Case]) -> set[str]:
    """Return the forms that are written only where a compiler takes them."""
    found: set[str] = set()
    for target in {case.compiler.target for case in cases}:
        # A plugin that cannot be loaded is told of when its case is prepared.
        with suppress(PluginError):
            found.update(load_compiler(target).accepts)
    return found & {PORTABLE}


def load_references(root: Path, batch: int) -> dict[str, Reference]:
    """Return what is right for each input set of one batch size."""
    folder = batch_folder(root, batch)
    about: Json = json.loads((folder / "batch.json").read_text(encoding="utf-8"))
    outputs = tuple(TensorSpec.from_json(spec) for spec in about["outputs"])
    return {
        name: Reference(
            name=about["reference"],
            arrays=read_arrays(folder / f"reference-{name}.npz"),
            outputs=outputs,
            deterministic=about["deterministic"],
            constant=about["constant"],
            baseline_rel_l2=about.get("baseline_rel_l2"),
            ill_conditioned=about.get("ill_conditioned", False),
            quantised=about.get("quantised", False),
            stateful=about.get("stateful", ""),
            spread=about.get("spread"),
            notes=tuple(about.get("notes", ())),
        )
        for name in INPUT_SETS
    }
