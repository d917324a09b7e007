"""Which environment each candidate gets: the interpreter at hand, or one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ngraphbench.candidates import Candidate
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.locks import EnvironmentRequest, find_lock, is_path, request_for

__all__ = ["Choice", "Environments"]


class Choice(NamedTuple):
    """``request`` None: the interpreter at hand. ``problem`` says why there is none at all."""

    request: EnvironmentRequest | None = None
    id: str = ""
    reason: str = ""
    problem: str = ""


@dataclass(slots=True)
class Environments:
    """The choices for one device, whose ``facts`` an engine has told.

    ``managed``: all candidates get their own; else those do whose version is not installed, or
    that name an interpreter.
    """

    managed: bool
    facts: Mapping[str, Any]
    _known: dict[str, Choice] = field(default_factory=dict)

    def of(self, candidate: Candidate) -> Choice:
        """Return the choice for a candidate; the same for all options of one compiler."""
        head = candidate.ref.head
        if head not in self._known:
            self._known[head] = self._choose(candidate)
        return self._known[head]

    def _choose(self, candidate: Candidate) -> Choice:
        ref, installed = candidate.ref, self.facts.get("packages", {})
        found = next(iter(candidate.versions(installed).items()), None)
        if is_path(ref.version):
            return self._interpreter(candidate)
        here = found is not None and ref.version in (found[1], found[1].partition("+")[0])
        if not self.managed and (here or not ref.version):
            return Choice()
        if not candidate.packages and find_lock(candidate.environment or ref.name) is None:
            # It needs nothing that an environment could hold, such as a program of its own.
            return Choice()
        try:
            request = request_for(
                candidate.environment or ref.name,
                distributions=candidate.packages,
                version=ref.version,
            )
        except EnvironmentFailed as error:
            if self.managed or found is None:
                return Choice(reason=error.reason, problem=str(error))
            problem = (
                f"{ref.name} {ref.version} was asked for; {found[0]} {found[1]} is installed."
                f" {error.message} Install {found[0]}=={ref.version}, or leave out the version."
            )
            return Choice(reason="version", problem=problem)
        return Choice(request, request.id(self.facts.get("interpreter", "")))

    def _interpreter(self, candidate: Candidate) -> Choice:
        name = candidate.environment or candidate.ref.name
        try:
            request = request_for(name, version=candidate.ref.version)
        except EnvironmentFailed as error:
            return Choice(reason=error.reason, problem=str(error))
        told = self.facts.get("interpreters", {}).get(candidate.ref.version, {})
        if told.get("problem"):
            return Choice(reason="no-python", problem=told["problem"])
        return Choice(request, told.get("id", ""))
