"""From a session's state and samples to its records. Pure but for reading the sample files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np

from ngraphbench import __version__
from ngraphbench.blocksummary import BlockSamples, summarise_blocks, tail_percentiles
from ngraphbench.case import BENCH_LIMITS, Case, Limits, Method, ModelRef, Session
from ngraphbench.profiles import Profile, claim_of
from ngraphbench.records import MEASURED, SCHEMA_VERSION, now_utc
from ngraphbench.session.beside import beside_facts
from ngraphbench.session.canary import describe
from ngraphbench.session.entrants import SENTINEL
from ngraphbench.session.export import export_key
from ngraphbench.session.flags import (
    case_flags,
    coverage_flag,
    is_disturbed,
    leak_bytes_per_1000_calls,
    quantised_flag,
    session_flags,
)
from ngraphbench.session.hostwatch import thermal_facts
from ngraphbench.session.state import CaseState, SessionState
from ngraphbench.session.steadiness import UNSTABLE, steadiness_flags
from ngraphbench.stats import Launch
from ngraphbench.summary import Comparison, Samples, compare, launch_of, summarise
from ngraphbench.types import VENDOR_THREADS, Json

__all__ = ["make_records", "reproduce_command"]

SENTINEL_CONFIDENCE = 0.99
OUTLIER_FACTOR = 1.10


@dataclass(frozen=True, slots=True)
class _Context:
    session: Session
    state: SessionState
    samples: Mapping[str, Samples]
    launch: Launch
    host: Json
    read_blocks: Callable[[str], BlockSamples | None]
    unsteady: Mapping[str, list[Json]]

    def status(self, case: Case) -> str:
        """Return the status of a case's record: ``unstable`` where one number would lie."""
        found = _final_status(self.state.cases[case.case_id])
        return "unstable" if found in MEASURED and self.unstable(case) else found

    def unstable(self, case: Case) -> Json | None:
        """Return the flag of a case that no single number describes, or None."""
        flags = self.unsteady.get(case.case_id, [])
        return next((flag for flag in flags if flag["flag"] in UNSTABLE), None)


def make_records(
    session: Session,
    state: SessionState,
    *,
    read: Callable[[str], Samples | None],
    host: Json,
    read_blocks: Callable[[str], BlockSamples | None] = lambda key: None,
) -> list[Json]:
    """Return the case records of a finished session, then its session record.

    ``read(key)`` gives the samples of a candidate (a case id, or ``"sentinel"``), or None;
    ``read_blocks`` the rows of its solo blocks.
    Cases deferred for memory have no record here: a later session measures them.
    """
    keys = [case.case_id for case in session.cases] + [SENTINEL]
    samples = {key: found for key in keys if (found := read(key)) is not None}
    programs = [found for key, found in samples.items() if key != SENTINEL]
    launch = launch_of(programs, state.prior)
    labels = {case.case_id: _name(session, case) for case in session.cases}
    labels[SENTINEL] = "the A/A sentinel"
    unsteady = {
        key: flags
        for key, flags in steadiness_flags(samples, labels).items()
        # Whom something else took the CPU from was not unsteady by itself.
        if not is_disturbed(samples[key])
    }
    context = _Context(session, state, samples, launch, host, read_blocks, unsteady)
    records = [
        _case_record(context, case) for case in session.cases if case.case_id not in state.deferred
    ]
    return [*records, _session_record(context)]


def _case_record(context: _Context, case: Case) -> Json:
    session, found = context.session, context.state.cases[case.case_id]
    status = context.status(case)
    doubt, message = _doubt(found) if status == "unverifiable" else ("", "")
    unstable = context.unstable(case)
    if status == "unstable" and unstable is not None:
        doubt, message = unstable["flag"], f"Not steady: {unstable['detail']}."
    samples = context.samples.get(case.case_id)
    timed = samples is not None and status in MEASURED
    alone = context.read_blocks(case.case_id) if timed and found.blocks else None
    name = f"{session.session_id}/{case.case_id[:16]}"
    log = export_key(case) if found.stage == "export" else case.case_id[:16]
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "case",
        "case_id": case.case_id,
        "session_id": session.session_id,
        "case": case.to_json(),
        "label": case.label,
        "status": status,
        "reason": found.reason or doubt,
        "stage": found.stage,
        "message": found.message or message,
        "detail": found.detail,
        "started_at": found.started_at,
        "tool_version": __version__,
        "profile": session.profile.name,
        "seed": session.seed,
        "measurement": _measurement(samples, session, name) if samples is not None else None,
        "summary": _summary(context, case, alone) if timed else None,
        "blocks": _blocks(context, case, alone) if timed else [],
        "costs": _costs(found, samples if timed else None),
        "coverage": found.coverage,
        "verification": _verification(found),
        "flags": _flags(context, case, samples if timed else None),
        "weights": found.weights,
        "environment": found.environment,
        "command": reproduce_command(case, session),
        "log": f"logs/{session.session_id}/{log}.log",
    }


def _flags(context: _Context, case: Case, samples: Samples | None) -> list[Json]:
    found = context.state.cases[case.case_id]
    told = (coverage_flag(found.coverage), quantised_flag(found.coverage))
    flags = [*found.flags, *filter(None, told)]
    if samples is None:
        return flags
    flags += case_flags(
        samples,
        threads=case.device.threads,
        rounds_min=_rounds_wanted(context, found),
        rss_bytes=found.rss_bytes,
        interrupted="interrupted" in context.state.ended,
    )
    return [*flags, *context.unsteady.get(case.case_id, [])]


def _verification(found: CaseState) -> Json | None:
    """Return the numerical verdict, with the task metric beside it where one was asked for."""
    if found.verification is None or found.evaluation is None:
        return found.verification
    shown = {key: value for key, value in found.evaluation.items() if key != "axes"}
    if found.beaten_by and shown["value"] is None:
        shown["problem"] = shown["problem"] or "It left the race before its outputs were scored."
    return {**found.verification, "eval": shown}


def _costs(found: CaseState, samples: Samples | None) -> Json:
    leak = None if samples is None else leak_bytes_per_1000_calls(found.rss_bytes, samples)
    return found.costs if leak is None else {**found.costs, "leak_bytes_per_1000_calls": leak}


def _rounds_wanted(context: _Context, found: CaseState) -> int:
    """Return the least rounds of a launch: none for who left a race, or when that was decided."""
    session = context.session
    over = found.beaten_by or "budget" not in context.state.ended
    return 0 if session.method.best and over else session.profile.rounds_min


def _name(session: Session, case: Case) -> str:
    """Return a candidate's name, as long as it must be to be the only one of a session."""
    if len({(one.model.content, one.batch) for one in session.cases}) == 1:
        return case.label
    return case.title


def _final_status(found: CaseState) -> str:
    doubted = (found.verification or {}).get("verdict") == "unverifiable"
    return "unverifiable" if doubted and found.status == "ok" else found.status


def _doubt(found: CaseState) -> tuple[str, str]:
    """Return why outputs cannot be verified: a reason, and a sentence."""
    verification = found.verification or {}
    note = next(reversed(verification.get("notes", [])), "")
    return verification.get("reason", ""), f"Cannot be verified: {note}." if note else ""


def _measurement(samples: Samples, session: Session, name: str) -> Json:
    call_ns = np.asarray(samples["call_ns"], dtype=float)
    rounds = set(zip(samples["epoch"].tolist(), samples["round"].tolist(), strict=True))
    return {
        "samples": f"samples/{name}.csv",
        "mode": session.method.mode,
        "epochs": len(np.unique(samples["epoch"])),
        "rounds": len(rounds),
        "calls": int(np.sum(samples["calls"])),
        "outlier_share": float(np.mean(call_ns > OUTLIER_FACTOR * np.median(call_ns))),
    }


def _blocks(context: _Context, case: Case, alone: BlockSamples | None) -> list[Json]:
    return summarise_blocks(
        context.state.cases[case.case_id].blocks,
        alone,
        batch=case.batch,
        confidence=context.session.profile.confidence,
        launch=context.launch,
    )


def _summary(context: _Context, case: Case, alone: BlockSamples | None) -> Json | None:
    session = context.session
    baseline = session.baseline_case(case)
    other: Samples | None = None
    if baseline is not None and baseline.case_id != case.case_id:
        state = context.state.cases[baseline.case_id]
        if _final_status(state) in MEASURED:
            other = context.samples.get(baseline.case_id)
    found = summarise(
        context.samples[case.case_id],
        batch=case.batch,
        confidence=session.profile.confidence,
        tie=session.profile.tie,
        launch=context.launch,
        baseline=other,
        baseline_label=baseline.label if baseline is not None else "",
    )
    if found is not None and found["vs_baseline"] and baseline is not None:
        unstable = context.unstable(case) or context.unstable(baseline)
        if unstable is not None:
            found["vs_baseline"]["verdict"] = f"unstable({unstable['flag']})"
    if found is not None:
        found["percentiles_ms"] = tail_percentiles(alone, session.profile.confidence)
    return found


def _sentinel(context: _Context) -> tuple[Json | None, Comparison | None]:
    session, cases = context.session, context.state.cases
    chosen = next((c for c in session.cases if c.case_id == context.state.sentinel), None)
    if chosen is None or SENTINEL not in context.samples:
        return None, None
    # Where its twin failed later there is nothing to compare it with.
    if cases[chosen.case_id].status not in MEASURED:
        return None, None
    found = compare(
        context.samples[chosen.case_id],
        context.samples[SENTINEL],
        confidence=SENTINEL_CONFIDENCE,
        launch=context.launch,
    )
    if found is None:
        return None, None
    return {
        "case_id": chosen.case_id,
        "estimate": found.estimate,
        "low": found.low,
        "high": found.high,
        "confidence": found.confidence,
        "excludes_one": not found.low <= 1.0 <= found.high,
        "samples": f"samples/{session.session_id}/{SENTINEL}.csv",
    }, found


def _session_record(context: _Context) -> Json:
    session, state = context.session, context.state
    launch_sd = context.launch.sd if state.epochs_done > 1 else None
    rows = [(row[0], row[1], row[2], row[3]) for row in state.canary_rows]
    canaries = describe(rows)
    sentinel, comparison = _sentinel(context)
    flags = [
        *state.flags,
        *session_flags(canaries=canaries, sentinel=comparison, launch_sd=launch_sd),
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "session",
        "session_id": session.session_id,
        "started_at": state.started_at,
        "finished_at": now_utc(),
        "tool_version": __version__,
        "profile": session.profile.to_json(),
        "seed": session.seed,
        "mode": session.method.mode,
        "conditions": session.method.conditions,
        "attempt": session.attempt,
        "baseline": session.baseline,
        "cases": [c.case_id for c in session.cases if c.case_id not in state.deferred],
        "fingerprint": session.fingerprint,
        "host": context.host,
        "thermal": thermal_facts(state.thermal),
        "canaries": canaries,
        "sentinel": sentinel,
        "beside": beside_facts(session.method.beside, state.beside_launches),
        "epochs_done": state.epochs_done,
        "launch_sd": launch_sd,
        "launch_prior": {"sd": state.prior.sd, "degrees": state.prior.degrees},
        "flags": flags,
        "status": "done",
    }


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
