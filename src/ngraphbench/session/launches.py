"""What this host has shown of the spread from launch to launch, kept in the user's state folder.

Where nothing was learned, or the file cannot be used, ``stats.LAUNCH_PRIOR`` holds, and ``ONCE``
for a session of one launch: a host that forgets is only more careful.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ngraphbench.environments.host import host_id
from ngraphbench.errors import StoreError
from ngraphbench.stats import LAUNCH_PRIOR, Launch
from ngraphbench.store.disk import make_folders, write_whole
from ngraphbench.types import Json

__all__ = [
    "DEGREES_MAX",
    "ONCE",
    "Learned",
    "believed",
    "fold",
    "fold_twins",
    "learn",
    "learn_from_twins",
    "learned",
    "state_file",
]

KEEP = 0.8
"""Weight of what was believed, at each session that shows no more spread than that."""
DEGREES_MAX = 8.0
"""No belief weighs more: a host may change, and programs on it differ."""
FEWEST_DEGREES = 1.0
SD_RANGE = (1e-4, 0.5)


@dataclass(frozen=True, slots=True)
class Learned:
    """The spread believed of a host, and how many ``sessions`` it stands on."""

    sd: float = LAUNCH_PRIOR.sd
    degrees: float = LAUNCH_PRIOR.degrees
    sessions: int = 0

    def launch(self, claim: str = "artefact") -> Launch:
        """Return the belief as the prior of a session with that claim."""
        return Launch(self.sd, self.degrees, claim)


ONCE = Learned(sd=0.03, degrees=4.0)
"""What a session of one launch starts from: it cannot see the spread, and hosts differ, so that it
must claim no more than the profile ``quick`` says it does (10 %)."""
_ONCE_NAME = "-once"


def fold(believed: Learned, seen: Launch) -> Learned:
    """Return what to believe after a session whose launches spread by ``seen``.

    More spread than was believed replaces the belief, less moves it: intervals that are too
    narrow are lies, those that are too wide cost time alone. ``seen`` is what that session
    showed by itself, no prior in it; without degrees of freedom it teaches nothing.

    >>> fold(Learned(), Launch(0.04, 2.0)).sd
    0.04
    """
    if seen.degrees < FEWEST_DEGREES:
        return believed
    keep = KEEP if seen.sd <= believed.sd else 0.0
    degrees = keep * believed.degrees + seen.degrees
    squares = keep * believed.degrees * believed.sd**2 + seen.degrees * seen.sd**2
    sd = min(max(math.sqrt(squares / degrees), SD_RANGE[0]), SD_RANGE[1])
    return Learned(sd, min(degrees, DEGREES_MAX), believed.sessions + 1)


def fold_twins(believed: Learned, difference: float, error: float) -> Learned:
    """Return what to believe after a session of one launch, by what its A/A control differed.

    ``difference`` is the log ratio of two launches of one program, ``error`` its standard error
    within the launch. Beyond that error, the square of the difference is twice that of the spread,
    with one degree of freedom; the larger the error, the less it teaches.

    >>> known = fold_twins(ONCE, difference=0.5, error=10.0)
    >>> round(known.sd, 6), round(known.degrees, 6)
    (0.03, 4.0)
    """
    expected = 2 * believed.sd**2
    weight = (expected / (expected + error**2)) ** 2
    kept = (1 - (1 - KEEP) * weight) * believed.degrees
    degrees = kept + weight
    squares = kept * believed.sd**2 + weight * max(difference**2 - error**2, 0.0) / 2
    sd = min(max(math.sqrt(squares / degrees), SD_RANGE[0]), SD_RANGE[1])
    return Learned(sd, min(degrees, DEGREES_MAX), believed.sessions + 1)


def state_file(variables: Mapping[str, str] | None = None) -> Path | None:
    """Return where this host's spread is kept; None where the user has no state folder.

    ``variables`` is ``os.environ`` unless given.
    """
    found = os.environ if variables is None else variables
    folder = Path(found.get("XDG_STATE_HOME", ""))
    if not folder.is_absolute():
        home = Path(found.get("HOME", ""))
        folder = home / ".local" / "state"
        if not home.is_absolute():
            return None
    return folder / "ngraphbench" / f"launch-{host_id()}.json"


def learned(claim: str = "artefact", *, path: Path | None = None, once: bool = False) -> Learned:
    """Return what was learned for a claim, or the start where nothing usable was.

    ``once``: what sessions of one launch have learned, from their A/A controls.
    """
    return _known(claim + _ONCE_NAME if once else claim, path or state_file())


def believed(claim: str, *, launches: int, path: Path | None = None) -> Learned:
    """Return what a session of that many launches is to believe of them before it starts.

    One of a single launch stands on what sessions of several have shown; where there was none, on
    what its like have.
    """
    known = learned(claim, path=path)
    if launches > 1 or known.sessions:
        return known
    return learned(claim, path=path, once=True)


def learn(seen: Launch, claim: str = "artefact", *, path: Path | None = None) -> None:
    """Fold what a session has seen into the file; silently not, where that cannot be written."""
    if seen.degrees >= FEWEST_DEGREES:
        _keep(claim, fold(learned(claim, path=path), seen), path or state_file())


def learn_from_twins(
    difference: float, error: float, claim: str = "artefact", *, path: Path | None = None
) -> None:
    """Fold what the A/A control of a session of one launch has shown into the file."""
    known = fold_twins(learned(claim, path=path, once=True), difference, error)
    _keep(claim + _ONCE_NAME, known, path or state_file())


def _known(name: str, path: Path | None) -> Learned:
    start = ONCE if name.endswith(_ONCE_NAME) else Learned()
    found = _read(path).get(name)
    try:
        known = Learned(**found) if isinstance(found, dict) else start
        sound = SD_RANGE[0] <= known.sd <= SD_RANGE[1] and known.sessions >= 0
        return known if sound and 0 < known.degrees <= DEGREES_MAX else start
    except TypeError:
        return start


def _keep(name: str, known: Learned, path: Path | None) -> None:
    if path is None:
        return
    kept = {one: asdict(_known(one, path)) for one in _read(path)} | {name: asdict(known)}
    with suppress(StoreError):
        make_folders(path.parent)
        write_whole(path, json.dumps(kept))


def _read(path: Path | None) -> Json:
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
