"""From a session's state and samples to its records. Pure but for reading the sample files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ngraphbench import __version__
from ngraphbench.blocksummary import (
    BlockSamples,
    joules_per_item,
    summarise_blocks,
    tail_percentiles,
)
from ngraphbench.case import Case, Session
from ngraphbench.records import MEASURED, SCHEMA_VERSION, now_utc
from ngraphbench.session.beside import beside_facts
from ngraphbench.session.canary import describe
from ngraphbench.session.commandline import reproduce_command
from ngraphbench.session.entrants import SENTINEL
from ngraphbench.session.export import export_key
from ngraphbench.session.flags import (
    batch_flag,
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
from ngraphbench.types import Json

__all__ = ["make_records"]

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
    blocks = _blocks(context, case, alone) if timed else []
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
        "blocks": blocks,
        "costs": _costs(found, samples if timed else None, blocks),
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
    told = (
        coverage_flag(found.coverage),
        quantised_flag(found.coverage),
        batch_flag(found.coverage, case.batch),
    )
    flags = [*found.flags, *filter(None, told)]
    if samples is None:
        return flags
    flags += case_flags(
        samples,
        threads=case.device.threads if case.device.accelerator == "cpu" else None,
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


def _costs(found: CaseState, samples: Samples | None, blocks: Sequence[Json]) -> Json:
    leak = None if samples is None else leak_bytes_per_1000_calls(found.rss_bytes, samples)
    costs = {**found.costs, "energy_joules": joules_per_item(blocks)}
    return costs if leak is None else {**costs, "leak_bytes_per_1000_calls": leak}


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
        *session_flags(
            canaries=canaries,
            sentinel=comparison,
            launch_sd=launch_sd,
            deferred=(len(state.deferred), len(session.cases)),
        ),
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
