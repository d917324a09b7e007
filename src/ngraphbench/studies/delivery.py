"""What a deployment study hands over: the artefact that was measured, and a script.

A study's folder holds ``race`` and ``confirm`` (two runs), ``deploy.json`` (what was asked),
``next.yaml`` where something is open, ``artefact`` and ``reproduce.sh`` of the choice.
"""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngraphbench.errors import StoreError
from ngraphbench.report.wording import visible
from ngraphbench.session.state import ARTIFACTS
from ngraphbench.store.disk import copy_folder, move, write_whole, writing
from ngraphbench.studies.constraints import Constraints
from ngraphbench.types import Json

__all__ = ["ARTEFACT", "SCRIPT", "Asked", "Delivered", "deliver"]

ASKED = "deploy.json"
ARTEFACT = "artefact"
SCRIPT = "reproduce.sh"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a study was asked: constraints, what is preferred, and where it was started."""

    constraints: Constraints
    prefer: Any
    base: str

    def write(self, folder: Path) -> None:
        """Keep it in the study's folder."""
        asked = {
            "constraints": self.constraints.to_json(),
            "prefer": self.prefer,
            "base": self.base,
        }
        write_whole(folder / ASKED, json.dumps(asked, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Asked:
        """Return what was asked. Raises StoreError where the folder holds no such study."""
        try:
            found: Json = json.loads((folder / ASKED).read_text(encoding="utf-8"))
            constraints = Constraints.from_json(found["constraints"])
            return cls(constraints, found["prefer"], found["base"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise StoreError(
                f"{folder} is not the folder of a deployment study: {error}.",
                reason="no-run",
                hint="Give the folder that `ngb deploy` wrote (--out).",
            ) from error


@dataclass(frozen=True, slots=True)
class Delivered:
    """The choice's artefact and script; None for what there is not, with ``lack`` for why."""

    artefact: Path | None
    artefact_bytes: int | None
    load_s: float | None
    script: Path | None
    lack: str = ""


def deliver(folder: Path, record: Json | None, *, base: str, baseline: str) -> Delivered:
    """Return what was handed over for the chosen cell's record, None where nobody was chosen.

    ``folder`` is the study's, ``base`` where it was started, ``baseline`` that of its sessions.
    What an earlier decision left there is replaced.
    """
    shutil.rmtree(folder / ARTEFACT, ignore_errors=True)
    (folder / SCRIPT).unlink(missing_ok=True)
    if record is None:
        return Delivered(None, None, None, None)
    command = _command(record)
    if not command:
        return Delivered(None, None, None, None, "its record's command is no `ngb bench`")
    script = folder / SCRIPT
    write_whole(script, _script(record, command, base=base, baseline=baseline))
    script.chmod(0o755)
    costs, key = record["costs"], record["case_id"][:16]
    kept = folder / "confirm" / ARTIFACTS
    # A session of the next step, which keeps none, may be newer than the one that did.
    places = [kept / record["session_id"] / key, *sorted(kept.glob(f"*/{key}"))]
    found = [place for place in places if place.is_dir()]
    if not found:
        lack = f"{record['case']['compiler']['name']} saves no artefact: each start compiles"
        return Delivered(None, None, None, script, lack)
    _copy(found[0], folder / ARTEFACT)
    load_s = costs.get("artifact_load_s")
    lack = "" if load_s is not None else "its load time was not measured: a single launch"
    return Delivered(folder / ARTEFACT, costs.get("artifact_bytes"), load_s, script, lack)


def _copy(source: Path, target: Path) -> None:
    """Copy a folder, which appears whole or not at all. Raises StoreError."""
    partial = target.with_name(f"{target.name}.part")
    # That of an earlier attempt that was killed.
    shutil.rmtree(partial, ignore_errors=True)
    with writing(target):
        copy_folder(source, partial)
    try:
        move(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _command(record: Json) -> str:
    """Return a record's command, every word quoted anew; empty where it is another's.

    Records come from devices, too, and the script is run by a shell.
    """
    try:
        words = shlex.split(record["command"])
    except ValueError:
        return ""
    return shlex.join(words) if words[:2] == ["ngb", "bench"] else ""


def _script(record: Json, command: str, *, base: str, baseline: str) -> str:
    case, environment = record["case"], record["environment"]
    packages = ", ".join(f"{k} {v}" for k, v in sorted(environment["packages"].items()))
    head = [
        f"Measures again the cell that was chosen: {record['label']}, batch {case['batch']},"
        f" {case['precision']}.",
        f"Case {record['case_id']}.",
        f"It was measured with Python {environment['python']}; {packages or 'no packages'}.",
        "Options of `ngb bench` may be added, such as --json or --out DIR.",
    ]
    comments = "".join(f"# {visible(line)}\n" for text in head for line in text.splitlines())
    whole = f"{command} --baseline {shlex.quote(baseline)}"
    return f'#!/bin/sh\n{comments}cd {shlex.quote(base)} || exit 2\nexec {whole} "$@"\n'
