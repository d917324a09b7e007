"""The co-runner: one more program, kept busy on the same CPUs while others are measured.

It is compiled and verified like any candidate, and not suspended during rounds and blocks.
Whatever becomes of it is said of the launch, whose results stand without it then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from ngraphbench.case import Case
from ngraphbench.errors import NGraphBenchError
from ngraphbench.session.resident import Resident, Stopped
from ngraphbench.session.state import CaseState
from ngraphbench.types import Json

__all__ = ["BESIDE", "LOST", "beside_facts", "kept_busy"]

BESIDE = "beside"
LOST = "co-runner-lost"

Tell: TypeAlias = Callable[[str], None]


@contextmanager
def kept_busy(
    make: Callable[[], Resident], state: CaseState, *, epoch: int, launches: list[Json], tell: Tell
) -> Iterator[None]:
    """Keep the program that ``make`` gives busy meanwhile.

    What it did is added to ``launches``; ``tell`` hears why it was not there to the end.
    """
    launch: Json = {"epoch": epoch, "calls": 0, "seconds": 0.0, "lost": ""}
    launches.append(launch)
    if not state.live:
        _lose(launch, tell, f"it was not exported: {state.message}")
        yield
        return
    resident = make()
    try:
        try:
            resident.prepare()
            resident.busy(on=True)
        except (Stopped, NGraphBenchError) as error:
            resident.kill()
            _lose(launch, tell, f"it did not start: {error}")
            yield
            return
        yield
        try:
            did = resident.busy(on=False)
            launch |= {"calls": did["calls"], "seconds": did["seconds"]}
            if did["error"]:
                _lose(launch, tell, f"it failed: {did['error']}")
        except NGraphBenchError as error:
            _lose(launch, tell, f"it did not last: {error}")
    finally:
        resident.kill()


def _lose(launch: Json, tell: Tell, why: str) -> None:
    launch["lost"] = why
    tell(f"launch {launch['epoch'] + 1} was measured without the co-runner, or in part: {why}")


def beside_facts(case: Case | None, launches: Sequence[Json]) -> Json | None:
    """Return the ``beside`` part of a session record; None where nothing ran beside.

    ``calls_per_s`` is over the launches it lasted through.
    """
    if case is None:
        return None
    lasted = [launch for launch in launches if not launch["lost"] and launch["seconds"]]
    seconds = sum(launch["seconds"] for launch in lasted)
    calls = sum(launch["calls"] for launch in lasted)
    return {
        "case": case.to_json(),
        "label": case.label,
        "calls_per_s": calls / seconds if seconds else None,
        "launches": list(launches),
    }
