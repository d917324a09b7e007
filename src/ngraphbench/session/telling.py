"""What the client is told while a session runs: events, as JSON."""

from __future__ import annotations

from ngraphbench.case import Case, Session
from ngraphbench.session.kernel import Progress
from ngraphbench.session.racing import Drop, Race
from ngraphbench.session.state import CaseState
from ngraphbench.types import Json

__all__ = ["case_event", "drop_event", "labels_of", "phase_event", "round_event", "standing"]


def phase_event(phase: str, text: str, done: int, of: int) -> Json:
    """Return what is done between the rounds: step ``done`` of ``of``."""
    return {"event": "phase", "phase": phase, "text": text, "done": done, "of": of}


def case_event(case: Case, found: CaseState) -> Json:
    """Return what is told of a cell that is out."""
    return {
        "event": "case",
        "label": case.title,
        "status": found.status,
        "message": found.message,
    }


def round_event(session: Session, race: Race | None, epoch: int, progress: Progress) -> Json:
    """Return how far a launch has come, and who is still in the race."""
    return {
        "event": "round",
        "epoch": epoch,
        "epochs": session.profile.epochs,
        "round": progress.round,
        "rounds_max": progress.rounds_max,
        "elapsed_s": progress.elapsed_ns / 1e9,
        "left_s": progress.left_ns / 1e9,
        **standing(session, race),
    }


def drop_event(session: Session, drop: Drop, *, leaves: bool) -> Json:
    """Return what the client is told of one that was beaten."""
    labels = labels_of(session)
    stays = "" if leaves else "; it stays as the baseline"
    text = f"{labels[drop.key]}: surely slower than {labels[drop.by]},"
    text += f" at least {drop.factor:.2f} times{stays}"
    return {"event": "dropped", "label": labels[drop.key], "text": text}


def labels_of(session: Session) -> dict[str, str]:
    """Return what tells the cases apart: the compiler, and the model and batch if they differ."""
    several = len(session.groups) > 1
    return {case.case_id: case.title if several else case.label for case in session.cases}


def standing(session: Session, race: Race | None) -> Json:
    """Return who may still turn out the fastest, for the client; nothing where none race."""
    if race is None:
        return {}
    labels = labels_of(session)
    names = [labels[key] for key in race.contenders]
    return {"racing": names, "starters": len(session.cases)}
