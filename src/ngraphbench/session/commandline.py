"""The command line that measures one cell again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from urllib.parse import quote

from ngraphbench.case import BENCH_LIMITS, Case, Limits, Method, ModelRef, Session
from ngraphbench.profiles import Profile, claim_of
from ngraphbench.types import VENDOR_THREADS

__all__ = ["reproduce_command"]


def reproduce_command(case: Case, session: Session) -> str:
    """Return the shell command that measures this one cell again."""
    words = ["ngb", "bench", _model_text(case.model), "-c", case.compiler.text]
    words += ["-b", str(case.batch), "--profile", session.profile.name]
    words += ["--threads", str(case.device.threads or VENDOR_THREADS)]
    if case.precision != "fp32":
        words += ["--precision", case.precision]
    if case.model.weights == "pretrained":
        words.append("--pretrained")
    if case.model.checkpoint:
        words += ["--checkpoint", case.model.checkpoint]
    for name, override in case.model.inputs.items():
        words += ["--input", _input_text(name, override)]
    if case.model.inputs_file:
        words += ["--inputs", case.model.inputs_file]
    if own := case.model.evaluation:
        words += ["--eval", own["file"], "--metric", own["metric"]]
    if case.calibrated:
        words += ["--calib", case.model.calibration["file"]]
    for name, shape in case.shapes.items():
        words += ["--shape", f"{name}={'x'.join(map(str, shape))}"]
    words += _method_words(session.method, session.profile)
    words += _limit_words(session.limits)
    if any("@" not in head for head in session.environments):
        words += ["--environments", "managed"]
    words += ["--seed", str(session.seed)] if session.seed else []
    return shlex.join(words)


def _limit_words(limits: Limits) -> list[str]:
    """Return the limits that ``bench`` would not have by itself; a limit decides what fails."""
    given = {
        "first_call": f"{limits.first_call_s:g}s",
        "compile": f"{limits.compile_s:g}s",
        "cell": f"{limits.cell_s:g}s",
        "memory": str(limits.memory_bytes),
    }
    plain = BENCH_LIMITS.to_json()
    own = limits.to_json()
    keys = dict(zip(given, own, strict=True))
    return [
        word
        for name, text in given.items()
        if own[keys[name]] != plain[keys[name]]
        for word in ("--limit", f"{name}={text}")
    ]


def _method_words(method: Method, profile: Profile) -> list[str]:
    words: list[str] = []
    if method.mode != "sync":
        words += ["--mode", method.mode]
    if method.claim != claim_of("auto", profile):
        words += ["--claim", method.claim]
    if method.tails_s is not None:
        words += ["--tails", f"{method.tails_s:g}s"]
    if method.rate_per_s is not None:
        words += ["--rate", f"{method.rate_per_s:g}"]
    if method.in_flight:
        words += ["--in-flight", ",".join(map(str, method.in_flight))]
    if method.sustained_s:
        words += ["--sustained", f"{method.sustained_s:g}s"]
    if method.beside is not None:
        words += ["--beside", method.beside.model.source]
    return words


def _model_text(model: ModelRef) -> str:
    """Return the model as the command line takes it, with arguments that a file gave it."""
    if not model.args:
        return model.source
    given = (f"{key}={quote(json.dumps(value), safe='[],.')}" for key, value in model.args.items())
    return f"{model.source.partition('?')[0]}?{'&'.join(given)}"


def _input_text(name: str, override: Mapping[str, object]) -> str:
    shape = override.get("shape")
    parts: list[str] = []
    if isinstance(shape, (list, tuple)):
        parts.append("x".join(str(dim) for dim in shape) or "scalar")
    if override.get("dtype"):
        parts.append(str(override["dtype"]))
    generator = str(override.get("generator", ""))
    if generator.count(":") == 2:
        _, low, high = generator.split(":")
        parts.append(f"{low}..{high}")
    elif generator.startswith("const:"):
        parts.append(f"const({generator.removeprefix('const:')})")
    elif generator == "normal":
        parts.append(generator)
    return f"{name}={':'.join(parts)}"
