"""What this host has shown of the spread from launch to launch, kept in the user's state folder.

Where nothing was learned, or the file cannot be used, ``stats.LAUNCH_PRIOR`` holds: a host
that forgets is only more careful.
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

__all__ = ["DEGREES_MAX", "Learned", "fold", "learn", "learned", "state_file"]

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


def learned(claim: str = "artefact", *, path: Path | None = None) -> Learned:
    """Return what was learned for a claim, or the start where nothing usable was."""
    found = _read(path or state_file()).get(claim)
    try:
        known = Learned(**found) if isinstance(found, dict) else Learned()
        sound = SD_RANGE[0] <= known.sd <= SD_RANGE[1] and known.sessions >= 0
        return known if sound and 0 < known.degrees <= DEGREES_MAX else Learned()
    except TypeError:
        return Learned()


def learn(seen: Launch, claim: str = "artefact", *, path: Path | None = None) -> None:
    """Fold what a session has seen into the file; silently not, where that cannot be written."""
    target = path or state_file()
    if target is None or seen.degrees < FEWEST_DEGREES:
        return
    kept = {name: asdict(learned(name, path=target)) for name in _read(target)}
    kept[claim] = asdict(fold(learned(claim, path=target), seen))
    with suppress(StoreError):
        make_folders(target.parent)
        write_whole(target, json.dumps(kept))


def _read(path: Path | None) -> Json:
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
