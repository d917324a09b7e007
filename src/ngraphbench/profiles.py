"""The three measuring profiles and what each may honestly claim."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ngraphbench.types import Json

__all__ = [
    "FEWEST_BUILDS",
    "MS",
    "PROFILES",
    "SECOND",
    "TAILS_S",
    "Profile",
    "claim_of",
    "claim_problem",
]

MS = 1_000_000
SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Profile:
    """How long and how often to measure. Times end in ``_ns``; shares are fractions.

    ``half_width`` is the within-launch target at which a sweep stops; ``tie`` the zone in
    which two candidates are called equal; ``budget_ns`` measuring time per candidate over
    all epochs. Rounds go on until the target or the budget, so a noisy machine gets more.

    Slots are short because calls of one slot share the machine's state of that moment: on a
    shared host, twice the slots say more than slots of twice the length.
    """

    name: str
    epochs: int
    rounds_min: int
    rounds_max: int
    slot_ns: int
    half_width: float
    confidence: float
    tie: float
    budget_ns: int
    claim: str

    @property
    def tails_s(self) -> float:
        """Seconds of solo calls per candidate, over all launches, unless the user says."""
        return TAILS_S.get(self.name, 0.0)

    def to_json(self) -> Json:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json) -> Profile:
        return cls(**data)


TAILS_S = {"quick": 0.0, "default": 3.0, "thorough": 20.0}
"""By the profile's name; not among its fields, which are part of a session's id."""

PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            name="quick",
            epochs=1,
            rounds_min=8,
            rounds_max=100,
            slot_ns=50 * MS,
            half_width=0.03,
            confidence=0.90,
            tie=0.03,
            budget_ns=5 * SECOND,
            claim="single launch: differences of 10 % and more",
        ),
        Profile(
            name="default",
            epochs=3,
            rounds_min=12,
            rounds_max=300,
            slot_ns=50 * MS,
            half_width=0.01,
            confidence=0.95,
            tie=0.02,
            budget_ns=30 * SECOND,
            claim="differences of 3 % and more, when launches differ by 1 % or less",
        ),
        Profile(
            name="thorough",
            epochs=8,
            rounds_min=15,
            rounds_max=500,
            slot_ns=100 * MS,
            half_width=0.005,
            confidence=0.99,
            tie=0.01,
            budget_ns=180 * SECOND,
            claim="differences of 1 to 1.5 % and more",
        ),
    )
}


FEWEST_BUILDS = 3
"""A claim about a compiler needs this many independent builds."""


def claim_of(wish: str, profile: Profile) -> str:
    """Return what a session's intervals hold for, ``artefact`` or ``compiler``.

    ``auto`` is ``compiler`` where the profile is thorough: there, differences are claimed
    that are smaller than what a compiler's own choices may vary by.

    >>> claim_of("auto", PROFILES["default"]), claim_of("auto", PROFILES["thorough"])
    ('artefact', 'compiler')
    """
    if wish != "auto":
        return wish
    return "compiler" if profile.name == "thorough" else "artefact"


def claim_problem(wish: str, profile: Profile) -> str:
    """Return why a claim cannot be had of a profile and what to do, or an empty string."""
    if wish != "compiler" or profile.epochs >= FEWEST_BUILDS:
        return ""
    return (
        f"cannot be compiler with the {profile.epochs} launch of profile {profile.name}: it takes"
        f" {FEWEST_BUILDS} builds. Use profile default or thorough, or claim artefact"
    )
