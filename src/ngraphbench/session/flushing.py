"""What denormal weights cost a program: a twin without them, in turns with it, alone.

The twin is what the same compiler makes of a copy of the model whose denormal weights are
zeros. It is started after all else and belongs to no result. Whether the processor or the
compiler flushes denormals by itself need not be known: then the twin is no faster.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ngraphbench.environments.systemfiles import available_bytes
from ngraphbench.errors import NGraphBenchError
from ngraphbench.session.resident import Resident, Stopped
from ngraphbench.workload import batch_folder, flushed_root

__all__ = ["TURNS", "describe_factor", "tell_flush_factors"]

TURNS = 9
TURN_NS = 50e6
CALLS_MIN, CALLS_MAX = 5, 500
FLAG = "denormals"
ALIKE = 1.25
"""An interval wider than this is no evidence that there is no difference."""


def tell_flush_factors(
    residents: Mapping[str, Resident],
    twin_of: Callable[[Resident], Resident],
    *,
    observe: Callable[[str, int, int], None] = lambda text, done, of: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> None:
    """Put into each flag of denormal weights what they cost the program, as measured.

    ``twin_of`` gives a resident of the same case that is not started yet. Where the factor
    cannot be measured the flag says why. Never raises.
    """
    flagged = [resident for resident in residents.values() if _copy_is_there(resident)]
    for done, resident in enumerate(flagged):
        if interrupted():
            return
        observe(f"denormals: {resident.case.title}", done, len(flagged))
        resident.seal_usage()
        twin = twin_of(resident)
        try:
            text = _measured(resident, replace(twin, workload_root=_copy(resident)))
        except (NGraphBenchError, Stopped) as error:
            why = error.error.message if isinstance(error, Stopped) else error.message
            text = f"what they cost could not be measured: {why}"
        _add(resident, text)


def describe_factor(ratios: list[float]) -> str:
    """Return what the times of the program relative to those of its twin say.

    The interval leaves out the least and the largest ratio: of nine turns it holds the median
    with 96 % (sign test).

    >>> describe_factor([0.5, *[4.0] * 3, 4.2, *[4.4] * 3, 600.0])
    'with them set to 0 it runs 4.2x as fast (4x to 4.4x in 9 turns, alone)'
    >>> describe_factor([0.9, *[0.99] * 4, *[1.01] * 4])
    'no difference was seen with them set to 0: 0.99x to 1.01x as fast in 9 turns, alone'
    >>> describe_factor([0.7, *[0.8] * 4, *[50.0] * 4])
    'what they cost was not resolved: with them set to 0 0.8x to 50x as fast in 9 turns, alone'
    """
    ordered = sorted(ratios)
    low, high = ordered[1], ordered[-2]
    span, turns = f"{low:.3g}x to {high:.3g}x", f"{len(ratios)} turns, alone"
    if not low <= 1 <= high:
        middle = statistics.median(ordered)
        return f"with them set to 0 it runs {middle:.3g}x as fast ({span} in {turns})"
    if high / low <= ALIKE:
        return f"no difference was seen with them set to 0: {span} as fast in {turns}"
    return f"what they cost was not resolved: with them set to 0 {span} as fast in {turns}"


def _copy_is_there(resident: Resident) -> bool:
    return (
        any(flag["flag"] == FLAG for flag in resident.state.flags)
        and (batch_folder(_copy(resident), resident.case.batch) / "batch.json").exists()
    )


def _copy(resident: Resident) -> Path:
    return flushed_root(resident.workload_root)


def _measured(resident: Resident, twin: Resident) -> str:
    room = available_bytes()
    peak = resident.state.costs["peak_rss_bytes"] or 0
    if room is not None and room < 1.5 * peak:
        return "what they cost was not measured: there is no memory for a second program"
    try:
        twin.compile_only()
        for one in (resident, twin):
            one.resume()
            one.ask_beyond("load", seconds=one.limits.first_call_s, set="a")
            _call_ns(one, CALLS_MIN)
            one.suspend()
        calls = int(TURN_NS / max(resident.state.call_ns, 1.0))
        calls = min(CALLS_MAX, max(CALLS_MIN, calls))
        ratios = []
        for turn in range(TURNS):
            pair = (resident, twin) if turn % 2 else (twin, resident)
            took = {id(one): _turn_ns(one, calls) for one in pair}
            ratios.append(took[id(resident)] / took[id(twin)])
        return describe_factor(ratios)
    finally:
        twin.kill()
        # A turn that failed would leave it running beside those that come after.
        with suppress(NGraphBenchError):
            resident.suspend()


def _turn_ns(resident: Resident, calls: int) -> float:
    resident.resume()
    _call_ns(resident, 1)
    found = _call_ns(resident, calls)
    resident.suspend()
    return found


def _call_ns(resident: Resident, calls: int) -> float:
    seconds = max(resident.limits.first_call_s, 20 * calls * resident.state.call_ns / 1e9)
    reply = resident.ask_beyond("run", seconds=seconds, calls=calls)
    return float(statistics.median(reply["ns"]))


def _add(resident: Resident, text: str) -> None:
    for flag in resident.state.flags:
        if flag["flag"] == FLAG:
            flag["detail"] = f"{flag['detail']}; {text}"
