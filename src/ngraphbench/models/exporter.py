"""The exporter process: turns a model into a workload folder, batch size by batch size.

``python -m ngraphbench.models.exporter FD`` answers the worker protocol with three ops:
``open`` (the model, once), ``batch`` (one batch size) and ``close``. It runs the user's
code, so it is a process of its own.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ngraphbench.errors import (
    CompileFailed,
    NGraphBenchError,
    Unavailable,
    Unsupported,
    WorkerFailed,
    first_line,
)
from ngraphbench.models.batch import rows_problem, windows
from ngraphbench.models.calibration import write_calibration
from ngraphbench.models.doubts import is_constant, notes_on
from ngraphbench.models.evaluation import evaluate_source, score_outputs
from ngraphbench.models.feeds import Feed, feed_from_file, make_feed
from ngraphbench.models.flushed import write_flushed
from ngraphbench.models.guesses import all_failed, with_sizes
from ngraphbench.models.inputs import InputPlan, merge_overrides
from ngraphbench.models.origins import OnnxSource, Source, TorchSource
from ngraphbench.models.prebuilt import ArtefactSource
from ngraphbench.models.reference import Outputs, Reference, relative_error
from ngraphbench.types import BFLOAT16, INT8, Json, TensorSpec
from ngraphbench.workload import (
    ARTEFACT,
    CALIBRATION,
    NO_REFERENCE,
    PORTABLE,
    batch_folder,
    write_arrays,
)

__all__ = ["Exporter", "main"]


def _torch_source(model: Json, overrides: Json, root: Path) -> TorchSource:
    try:
        return TorchSource(model, overrides, root)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise Unavailable(
            "A model of PyTorch needs torch, which is not installed here.",
            reason="torch",
            hint="Run: pip install 'ngraphbench[torch]', or bench an ONNX file.",
        ) from error


class Exporter:
    """The ops of the exporter process on one model."""

    def __init__(self) -> None:
        self._source: Source | None = None
        self._model: Json = {}
        self._root = Path()
        self._seed = 0
        self._attempt = 0
        self._denormals = ""
        self._calibrate_by = ""

    def operations(self) -> dict[str, Callable[[Json], Json]]:
        """Return the function of each op, by its name in the protocol."""
        return {
            "open": self.open,
            "batch": self.batch,
            "evaluate": self.evaluate,
            "score": score_outputs,
            "close": lambda request: {},
        }

    def open(self, request: Json) -> Json:
        """Read the model, write ``workload.json``, and return its inputs and forms.

        Request: ``model`` (a ModelRef), ``root``, ``precision``, ``seed``, ``shapes``,
        ``memory_bytes`` (the limit of this process, if any), and the ``signature`` of an artefact.
        Raises SpecError, Unsupported, Unavailable or CompileFailed.
        """
        started = time.monotonic()
        self._source, self._attempt = None, 0
        self._model = dict(request["model"])
        self._root = Path(request["root"])
        self._seed = int(request.get("seed", 0))
        self._root.mkdir(parents=True, exist_ok=True)
        overrides = merge_overrides(self._model.get("inputs", {}), request.get("shapes") or {})
        if self._model["kind"].startswith(ARTEFACT):
            self._source = ArtefactSource(self._model, overrides, request.get("signature"))
        elif self._model["kind"] == "onnx":
            self._source = OnnxSource(self._model, overrides)
        else:
            self._source = _torch_source(self._model, overrides, self._root)
        calibration = self._model.get("calibration") or {}
        int8 = request.get("precision") == INT8
        self._calibrate_by = str(calibration.get("file", "")) if int8 else ""
        source = self._source
        source.memory_bytes = int(request.get("memory_bytes") or 0)
        whole = {
            "model": self._model,
            "forms": list(source.forms),
            "inputs": [spec.to_json() for spec in source.plan.specs],
            "weights": source.weights,
            "precision": request.get("precision", "fp32"),
            "notes": [*source.notes, *source.plan.notes],
        }
        _write_json(self._root / "workload.json", whole)
        reply = {key: whole[key] for key in ("forms", "inputs", "weights", "notes")}
        self._denormals = source.denormals()
        return reply | {"seconds": time.monotonic() - started}

    def batch(self, request: Json) -> Json:
        """Write the folder of one batch size, and return what is in it.

        Request: ``batch``, ``seed``, ``forms`` (those to write besides the usual ones).
        Raises Unsupported or CompileFailed.
        """
        started = time.monotonic()
        source = self._opened()
        batch, seed = int(request["batch"]), int(request.get("seed", self._seed))
        if batch < 1:
            raise Unsupported(
                f"A batch of {batch} was asked for; it must be 1 or more.", reason="batch"
            )
        folder = batch_folder(self._root, batch)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "batch.json").unlink(missing_ok=True)
        feed, reference = self._referenced(source, batch, seed, folder=folder)
        bound = source.finish(feed, folder, reference)
        if PORTABLE in request.get("forms", ()):
            bound = source.finish_portable(feed, folder, reference, bound=bound)
        for which, inputs, outputs in (("a", feed.a, reference.a), ("b", feed.b, reference.b)):
            write_arrays(folder / f"inputs-{which}.npz", inputs)
            write_arrays(folder / f"reference-{which}.npz", outputs)
        if self._calibrate_by:
            write_calibration(
                Path(self._calibrate_by), feed, batch=batch, target=folder / CALIBRATION
            )
        notes = [*reference.notes, *bound.notes, *notes_on(source, feed, reference, batch)]
        whole = _described(feed, reference) | {
            "forms": list(bound.forms),
            "export_error": bound.export_error,
            "pt2_error": bound.pt2_error,
            "notes": notes,
        }
        _write_json(folder / "batch.json", whole)
        whole["denormals"] = self._told_denormals(batch)
        return whole | {"seconds": time.monotonic() - started}

    def _told_denormals(self, batch: int) -> str:
        """Return how many weights are denormal, and why no copy shows what they cost, if so."""
        if not self._denormals:
            return ""
        try:
            if write_flushed(self._root, batch):
                return self._denormals
            why = "the model is too large for a copy without them"
        except Exception as error:  # a copy in passing: the model itself was exported
            why = f"{type(error).__name__}: {first_line(error)}"
        return f"{self._denormals}; what they cost was not measured: {why}"

    def evaluate(self, request: Json) -> Json:
        """Return the metric of the uncompiled model on a labelled set; keep the set in ``folder``.

        Request: ``batch``, of which ``batch.json`` is there, ``folder`` and ``evaluation``.
        Raises SpecError or Unsupported for a set or a metric that does not fit the model.
        """
        source, batch = self._opened(), batch_folder(self._root, int(request["batch"]))
        return evaluate_source(source, batch, Path(request["folder"]), request["evaluation"])

    def _opened(self) -> Source:
        if self._source is None:
            raise WorkerFailed("No model is open.", status="failed", reason="protocol")
        return self._source

    def _referenced(
        self, source: Source, batch: int, seed: int, *, folder: Path
    ) -> tuple[Feed, Reference]:
        """Return inputs and reference, at other sizes where the guess fails or says nothing."""
        plan = source.plan
        if plan.fixed_batch not in (None, batch) and self._rewrites(source):
            return self._rewritten(source, batch, seed, folder=folder)
        failures: list[NGraphBenchError] = []
        constant: int | None = None
        last = self._attempt + 1 if self._model.get("inputs_file") else plan.attempts
        for attempt in range(self._attempt, last):
            feed = self._feed(source, plan, batch, seed=seed, attempt=attempt)
            try:
                reference = source.reference(feed, folder)
            except CompileFailed as error:
                failures.append(error)
                continue
            if last == 1 or not is_constant(feed, reference):
                self._attempt = attempt
                return feed, with_sizes(reference, plan, attempt)
            # Too little to tell inputs apart by, say one frame less its own mean: try others.
            constant = attempt if constant is None else constant
        if constant is not None:
            self._attempt = constant
            feed = self._feed(source, plan, batch, seed=seed, attempt=constant)
            return feed, with_sizes(source.reference(feed, folder), plan, constant)
        failure = failures[0]
        short_of_memory = "alloc" in failure.message.lower()
        if batch > 1 and not short_of_memory and self._runs_alone(source, seed):
            raise Unsupported(
                f"The model runs at batch 1 and fails at batch {batch}: {failure.message}",
                reason="batch-fixed",
                hint="Its inputs declare a batch that its operators do not follow.",
            ) from failure
        raise all_failed(failures, plan)

    def _rewrites(self, source: Source) -> bool:
        return source.rewritable and source.plan.declared and not self._model.get("inputs_file")

    def _rewritten(
        self, source: Source, batch: int, seed: int, *, folder: Path
    ) -> tuple[Feed, Reference]:
        """Return inputs and reference at a batch size that the file does not declare.

        Raises Unsupported (``batch-fixed``) unless every row is proved right.
        """
        declared = source.plan.fixed_batch
        assert declared is not None
        problems = []
        for plan in source.plan.rewritten():
            for attempt in range(self._attempt, plan.attempts):
                feed = self._feed(source, plan, batch, seed=seed, attempt=attempt)
                try:
                    reference = source.reference(feed, folder)
                    run = source.plain(feed.specs)
                    if run is None:
                        problems.append("it is too large to prove that the rows stay right")
                        break
                    sizes = (declared, batch)
                    problem = rows_problem(run, feed.a, reference.own, axes=feed.axes, sizes=sizes)
                except CompileFailed as error:
                    problems.append(error.message)
                    continue
                if not problem:
                    self._attempt = attempt
                    tried = len({row for rows in windows(*sizes) for row in rows})
                    note = (
                        f"batch-rewritten: the file declares batch {declared}; its rows agree"
                        f" ({tried} of {batch} were tried)"
                    )
                    return feed, replace(reference, notes=(note, *reference.notes))
                problems.append(problem)
        why = problems[0].rstrip(".") if problems else "there is no axis that could be the batch"
        raise Unsupported(
            f"Batch {batch} was asked for; the model is fixed to batch {declared}, and with"
            f" another size {why}.",
            reason="batch-fixed",
            hint=f"Export it with a dynamic batch, or use -b {declared}.",
        )

    def _runs_alone(self, source: Source, seed: int) -> bool:
        if source.plan.fixed_batch is not None or self._model.get("inputs_file"):
            return False
        try:
            feed = self._feed(source, source.plan, 1, seed=seed, attempt=self._attempt)
            with tempfile.TemporaryDirectory(dir=self._root) as folder:
                source.reference(feed, Path(folder) / "b1")
        except NGraphBenchError:
            return False
        return True

    def _feed(
        self, source: Source, plan: InputPlan, batch: int, *, seed: int, attempt: int
    ) -> Feed:
        if self._model.get("inputs_file"):
            path = Path(self._model["inputs_file"])
            return feed_from_file(plan, batch, path=path, seed=seed)
        return make_feed(
            plan,
            batch,
            seed=seed,
            attempt=attempt,
            examples=lambda seed: source.examples(batch, seed=seed),
        )


def _described(feed: Feed, reference: Reference) -> Json:
    return {
        "inputs": [spec.to_json() for spec in feed.specs],
        "axes": dict(feed.axes),
        "outputs": [spec.to_json() for spec in _output_specs(reference)],
        "reference": reference.name,
        "deterministic": reference.deterministic,
        "constant": is_constant(feed, reference),
        "baseline_rel_l2": reference.baseline_rel_l2,
        "ill_conditioned": reference.ill_conditioned,
        "quantised": reference.quantised,
        "stateful": reference.stateful,
        "spread": _spread(feed, reference),
    }


def _output_specs(reference: Reference) -> list[TensorSpec]:
    """Return the outputs; a dim that depends on the input's values is a name, not a size."""
    specs = []
    for spec in reference.own.specs():
        other = reference.b[spec.name].shape
        if len(other) == len(spec.shape):
            pairs = enumerate(zip(spec.shape, other, strict=True))
            dims = tuple(n if n == m else f"?{axis}" for axis, (n, m) in pairs)
            specs.append(replace(spec, shape=dims))
        else:
            specs.append(spec)
    return specs


def _spread(feed: Feed, reference: Reference) -> float | None:
    """Return how far the outputs of the two input sets are apart, relative to their size.

    None where that says nothing: equal inputs, and integers among the outputs.
    """
    if not feed.differs or reference.name == NO_REFERENCE:
        return None
    dtypes = {name: array.dtype.name for name, array in reference.a.items()}
    for name, dtype in reference.own.dtypes.items():
        if dtype == BFLOAT16 and dtypes[name] == "uint16":
            dtypes[name] = dtype
    if any(dtype.startswith(("int", "uint", "bool")) for dtype in dtypes.values()):
        return None
    far = relative_error(Outputs(reference.b, dtypes), Outputs(reference.a, dtypes))
    return far if np.isfinite(far) else None


def _write_json(path: Path, value: Json) -> None:
    partial = path.with_name(path.name + ".part")
    partial.write_text(json.dumps(value, indent=1, ensure_ascii=True))
    partial.replace(path)


def main(arguments: Sequence[str]) -> None:
    """Answer requests on the inherited descriptor until ``close`` or its end; then exit."""
    from ngraphbench.worker.__main__ import main as serve_process

    if len(arguments) != 1 or not arguments[0].isdecimal():
        raise SystemExit("usage: python -m ngraphbench.models.exporter FD")
    serve_process(int(arguments[0]), Exporter().operations())


if __name__ == "__main__":
    main(sys.argv[1:])
