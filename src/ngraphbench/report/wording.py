"""Words and figures that the terminal and the page share: marks, legends, cautions, units."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from ngraphbench.analysis.tables import Evidence, Interval
from ngraphbench.types import VENDOR_DEFAULT, VENDOR_THREADS, Json

__all__ = [
    "CLAIMS",
    "FLAGS",
    "MARKS",
    "STATUSES",
    "cautions",
    "compile_lines",
    "cost",
    "evaluation_lines",
    "figure",
    "first_line",
    "plus_minus",
    "quantity",
    "session_notes",
    "shorten",
    "three_figures",
    "visible",
]

NUMBERS = (int, float)
MARKS = {"faster": "▲", "slower": "▼", "tie": "=", "unresolved": "?", "unstable": "~"}
"""Signs of the verdict against the baseline; they do not rely on colour."""

CLAIMS = {
    "artefact": "Speed is of these compiled files; building anew may tune them differently.",
    "compiler": "Speed is of the compilers: each launch built anew, from empty caches.",
}
"""What an interval's claim means."""

FLAGS = {
    "interference": "something else used the processor; ratios stand if the A/A control passed",
    "steal": "a hypervisor gave the processor to others",
    "quota": "the container's CPU quota throttled a slot",
    "drift": "the machine's speed moved by more than 10 %: read absolute figures as a range",
    "throttled": "heat or power limits lowered the clock",
    "not-steady": "its own speed stepped within a launch, while others' did not",
    "bimodal": "two speeds, 3 % or more apart: one number does not describe it",
    "partly-compiled": "over 5 % of its work ran outside what was compiled: it is not ranked",
    "carry-over": "the candidate before it in the round changed its speed",
    "launch": "launches of the same program differ by more than 2 %",
    "thread-unfair": "it used other threads than were asked for, or the vendor chose how many",
    "leak": "its memory grows from round to round",
    "denormals": "denormal numbers in weights or outputs may slow it down",
    "recompiled": "its artefact could not be saved or loaded: each launch compiled anew",
    "few-rounds": "it ended before the profile's least number of rounds",
    "dropped": "it left the race (--best), surely slower; its figures are of few rounds",
    "output-flood": "the program printed so much that its log was cut",
    "left-behind": "it left processes or shared memory, which were cleared after it",
    "batch-rewritten": "the file fixes another batch size; its rows were proved to stay right",
    "batch-shared": "an input whose first axis has another name was given the batch too",
    "output-has-no-batch": "an output does not grow with the batch: items may not be rows",
    "rows-depend-on-batch": "a row depends on the other rows, so batches are compared whole",
    "quantised": "the file computes in int8 itself, and is compared with the tolerance of int8",
    "batch-padded": "a call of it computes more items than were asked for; these alone count",
    "partly-quantised": "part of its products ran in wider numbers than int8",
    "constant": "outputs do not depend on the inputs, so that they agree proves nothing",
    "ill-conditioned": "rounding alone moves the outputs: only gross errors would be noticed",
    "fp64-disagrees": "the model means something else in fp64, so fp32 is compared with fp32",
    "not-finite": "outputs hold NaN or infinities, which must sit in the same places",
    "stateful": "a run changes the model, so later runs may differ",
    "export-differs": "the ONNX form gives other values than the module",
    "invalid-onnx": "the ONNX checker refuses the file",
    "co-runner-lost": "the program beside it was not there, or not to the end, in some launch",
    "parted": "memory did not hold all programs at once, so a later session has the rest",
    "untrusted": "the baseline differs from itself: nothing of the session can be trusted",
}
STATUSES = {
    "ok": "measured, and its outputs are right",
    "wrong": "its outputs are wrong, so its speed is not shown",
    "unverifiable": "measured, but there is no dependable reference for its outputs",
    "unstable": "measured, but not steady enough to be ranked",
    "unsupported": "the compiler cannot do what was asked",
    "unavailable": "not installed here, or not for this device",
    "failed": "it raised an error",
    "timeout": "it took longer than its limit",
    "oom": "it needed more memory than its limit",
    "crashed": "its process died",
    "skipped": "not attempted",
}


def visible(text: object, keep: str = "") -> str:
    """Return ``text`` with every character that could act on a screen made visible.

    Control characters become their pictures, other invisible or direction-changing ones
    become U+FFFD. Characters in ``keep`` stay.

    >>> visible("a\\x1b[31mb")
    'a␛[31mb'
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c in keep else _visible(c) for c in plain)


def _visible(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return character if character.isprintable() else "\ufffd"


def first_line(text: object) -> str:
    """Return the first line of ``text`` that is not blank, or an empty string."""
    return next((line.strip() for line in str(text).splitlines() if line.strip()), "")


def shorten(labels: Iterable[str], width: int) -> dict[str, str]:
    """Return each label cut to ``width`` with ``…``, so that no two labels read the same.

    >>> shorten(["onnxruntime:level=none", "onnxruntime:level=all"], 12)["onnxruntime:level=all"]
    'onnxrunt…all'
    """
    names = list(dict.fromkeys(labels))
    width = max(4, width)
    for head in (width - 1, 2 * width // 3, width // 3, 0):
        cut = {name: _cut(name, width, head) for name in names}
        if len(set(cut.values())) == len(names):
            return cut
    numbered = {}
    for number, name in enumerate(names, start=1):
        tail = f"…{number}"
        numbered[name] = name[: max(0, width - len(tail))] + tail
    return numbered


def _cut(name: str, width: int, head: int) -> str:
    if len(name) <= width:
        return name
    tail = width - 1 - head
    return name[:head] + "…" + (name[-tail:] if tail else "")


def figure(value: float | None) -> str:
    """Return a number to three figures, thousands apart: ``1,240``, ``63.2``, ``0.512``."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 1 else f"{value:.3g}"


def three_figures(value: object) -> object:
    """Return a number to three figures, small ones by their power; other values as they are.

    >>> three_figures(2.1e-6), three_figures(None), three_figures("nan")
    ('2.1e-06', '–', 'nan')
    """
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, NUMBERS) else value


def plus_minus(interval: Interval) -> str:
    """Return half an interval's width as ``±1.2%``."""
    percent = interval.half_percent
    if not math.isfinite(percent):
        return "±?"
    return f"±{percent:.0f}%" if percent >= 9.95 else f"±{percent:.1f}%"


def quantity(key: str, value: object) -> str:
    """Return a cost with its unit, which the end of ``key`` names.

    >>> quantity("peak_rss_bytes", 536870912), quantity("compile_cold_s", 0.0312)
    ('512 MiB', '31.2 ms')
    """
    if not isinstance(value, NUMBERS) or isinstance(value, bool) or not math.isfinite(value):
        return "–" if value is None else str(value)
    if key.endswith("_bytes") or "_bytes_per_" in key:
        units = ("B", "KiB", "MiB", "GiB", "TiB")
        power = min(len(units) - 1, int(math.log(max(1.0, abs(value)), 1024)))
        return f"{figure(value / 1024**power)} {units[power]}"
    if key.endswith("_s"):
        return f"{figure(value)} s" if value >= 1 else f"{figure(value * 1e3)} ms"
    return f"{figure(float(value))} J" if key.endswith("_joules") else f"{value:g}"


def cost(key: str, costs: Json) -> str:
    """Return a cost of a record with its unit; of a cold compile, the median and of how many.

    >>> cost("compile_cold_s", {"compile_cold_s": 2.0, "compile_cold_samples_s": [1.0, 2.0, 3.0]})
    '2.00 s (n=3)'
    """
    text = quantity(key, costs.get(key))
    if key != "compile_cold_s" or costs.get(key) is None:
        return text
    return f"{text} (n={len(costs.get('compile_cold_samples_s') or [0])})"


def compile_lines(evidence: Evidence) -> list[str]:
    """Return a line per candidate: what a cold compile took over its cells, and starting warm."""
    by_label: dict[str, list[Json]] = {}
    for cell in evidence.cells:
        if cell.record["costs"].get("compile_cold_s") is not None:
            by_label.setdefault(cell.label, []).append(cell.record["costs"])
    lines = []
    for label, costs in by_label.items():
        counts = sorted({len(c.get("compile_cold_samples_s") or [0]) for c in costs})
        n = "-".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        parts = [f"cold {_span('compile_cold_s', costs)} (median, n={n})"]
        named = {
            "tuning_s": "tuning before it",
            "compile_warm_s": "warm",
            "artifact_load_s": "from its artefact",
        }
        parts += [f"{name} {span}" for key, name in named.items() if (span := _span(key, costs))]
        lines.append(f"{label}: {', '.join(parts)}")
    return lines


def _span(key: str, costs: Sequence[Json]) -> str:
    values = sorted(value for c in costs if (value := c.get(key)) is not None)
    ends = dict.fromkeys(quantity(key, value) for value in (*values[:1], *values[-1:]))
    return " to ".join(ends)


def evaluation_lines(evidence: Evidence) -> list[str]:
    """Return a line per model and batch: the task metric of the model and of each candidate."""
    lines = []
    for group in evidence.groups:
        found = [
            (cell, told)
            for cell in group.cells
            if (told := (cell.record["verification"] or {}).get("eval"))
        ]
        if not found:
            continue
        first = found[0][1]
        head = f"{group.title}, batch {group.batch}: {first['metric']} on {first['items']:,} items"
        parts = [f"uncompiled {_score(first['reference'])}"]
        parts += [
            f"{cell.label} {_score(told['value'])}{' (wrong)' if cell.status == 'wrong' else ''}"
            for cell, told in found
        ]
        lines.append(f"{head} of {first['file']}: {', '.join(parts)}")
        lines += [f"{cell.label}: {told['problem']}" for cell, told in found if told["problem"]]
    return lines


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def flags_used(evidence: Evidence) -> list[str]:
    """Return the flags that occur in the run, those with a known meaning first."""
    used = {flag for cell in evidence.cells for flag in cell.flags}
    used |= {flag["flag"] for s in evidence.sessions.values() for flag in s["flags"]}
    return [flag for flag in FLAGS if flag in used] + sorted(used - set(FLAGS))


def session_notes(evidence: Evidence) -> list[str]:
    """Return one line per session that failed its control, was unfinished, or is flagged."""
    notes = []
    for session_id, session in evidence.sessions.items():
        name = f"session {session_id}"
        if evidence.untrusted(session_id):
            sentinel = session.get("sentinel") or {}
            seen = f": {figure(sentinel.get('estimate'))}x" if sentinel else ""
            notes.append(f"{name} is untrusted: its baseline differs from itself{seen} (A/A)")
        beside = session.get("beside")
        if beside:
            rate = figure(beside["calls_per_s"])
            notes.append(f"{name}: all was measured {beside['label']}, which made {rate} calls/s")
        if session["status"] != "done":
            notes.append(f"{name} is {session['status']}: {session['epochs_done']} epochs done")
        flags = [f for f in session["flags"] if f["flag"] != "untrusted"]
        told = (f"{f['flag']} ({f['detail'] or FLAGS.get(f['flag'], '?')})" for f in flags)
        notes += [f"{name}: {text}" for text in dict.fromkeys(told)]
    return notes


def cautions(evidence: Evidence) -> list[str]:
    """Return what the run does not tell, as sentences; those that always hold come last."""
    cells = evidence.cells
    said = [*_profile_cautions(evidence), *_launch_cautions(evidence)]
    said += _weight_cautions({c.record["weights"] for c in cells})
    if any(c.status == "unverifiable" for c in cells):
        said.append("Some outputs could not be verified; see the verification table.")
    if len({c.record["session_id"] for c in cells if c.measured}) > 1:
        said.append("Figures of different sessions are not paired: compare them with caution.")
    hosts = {str(s["host"].get("cpu_model", "")) for s in evidence.sessions.values()}
    if len(hosts) == 1:
        said.append(f"One machine ({hosts.pop() or 'unnamed'}): others may rank differently.")
    if any(c.record["case"]["device"]["threads"] == VENDOR_DEFAULT for c in cells):
        said.append(f"Threads: {VENDOR_THREADS}, so not the same for all: this is no equal race.")
    modes = sorted({str(s["mode"]) for s in evidence.sessions.values()})
    if modes:
        said.append(
            f"Loop: {', '.join(modes)}. Inputs are hot: resident, and used again and again."
        )
    return said + [CLAIMS[claim] for claim in CLAIMS if claim in _claims(evidence)]


def _claims(evidence: Evidence) -> set[str]:
    """Return what the sessions' intervals hold for: ``artefact``, ``compiler`` or both."""
    sessions = evidence.sessions.values()
    found = {str(s.get("conditions", {}).get("claim", "artefact")) for s in sessions}
    return found or {"artefact"}


def _profile_cautions(evidence: Evidence) -> list[str]:
    claims: dict[str, Json] = {}
    for session in evidence.sessions.values():
        claims.setdefault(session["profile"]["name"], session["profile"])
    return [
        f"Claim of profile {name} ({100 * profile['confidence']:.0f} % intervals): "
        f"{profile['claim']}."
        for name, profile in claims.items()
    ]


def _launch_cautions(evidence: Evidence) -> Sequence[str]:
    single = [s for s in evidence.sessions.values() if s["epochs_done"] == 1]
    believed = sorted({f"{s['launch_prior']['sd']:.1%}" for s in single if "launch_prior" in s})
    if not believed:
        return []
    spread = " or ".join(believed)
    return [
        f"One launch does not show how much launches differ: {spread} is believed of this host."
    ]


def _weight_cautions(weights: Collection[str]) -> Sequence[str]:
    random = sorted(text for text in weights if str(text).startswith("random"))
    if not random:
        return []
    return [
        f"Weights: {', '.join(random)}. Random weights can hide overflow and slow denormals; "
        "they say nothing about accuracy."
    ]
