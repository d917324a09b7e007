"""The environments of a session: provided on the device before its first program is built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ngraphbench.case import Case, Session
from ngraphbench.environments.capture import in_environment
from ngraphbench.environments.interpreters import inspect_python
from ngraphbench.environments.managed import provided
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.locks import EnvironmentRequest
from ngraphbench.types import Json

__all__ = ["Home", "Provision"]


@dataclass(frozen=True, slots=True)
class Home:
    """Where a worker runs: its interpreter, what a record says of it, and what making it took."""

    python: Path
    facts: Json
    virtual: bool = True
    made_s: float | None = None

    def variables(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return a worker's variables as they must be in this environment."""
        return in_environment(given, python=self.python, virtual=self.virtual)


@dataclass(slots=True)
class Provision:
    """Provides what ``session`` asks for; ``homes`` has it by ``CompilerRef.head``.

    A context: while it lasts, nobody can remove what it gave. ``logs`` is where an installer's
    words go when it fails.
    """

    session: Session
    emit: Callable[[Json], None]
    stop: Callable[[], bool]
    variables: Mapping[str, str]
    logs: Path
    homes: dict[str, Home | EnvironmentFailed] = field(default_factory=dict)
    _held: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Provision:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def provide(self, cases: Iterable[Case]) -> None:
        """Make or find the environments of ``cases``; what fails is told by ``home``."""
        asked = self.session.environments
        heads = [head for case in cases if (head := case.compiler.head) in asked]
        wanted = [head for head in dict.fromkeys(heads) if head not in self.homes]
        for done, head in enumerate(wanted):
            if self.stop():
                raise KeyboardInterrupt
            request = EnvironmentRequest.from_json(asked[head])

            def observe(text: str, head: str = head, done: int = done) -> None:
                at = {"done": done, "of": len(wanted)}
                words = f"{head}: {text}"
                self.emit({"event": "phase", "phase": "environment", "text": words, **at})

            try:
                self.homes[head] = self._home(request, observe)
            except EnvironmentFailed as error:
                self.homes[head] = error

    def home(self, case: Case) -> Home | None:
        """Return where a case's worker runs; None is the interpreter at hand.

        Raises EnvironmentFailed where its environment could not be had.
        """
        if case.compiler.head not in self.session.environments:
            return None
        self.provide([case])
        found = self.homes[case.compiler.head]
        if isinstance(found, EnvironmentFailed):
            raise found
        return found

    def _home(self, request: EnvironmentRequest, observe: Callable[[str], None]) -> Home:
        if request.kind == "interpreter":
            found = inspect_python(Path(request.python))
            facts = {"lock": found.id, "distributions": found.distributions}
            return Home(Path(found.path), facts, found.virtual)
        words: list[str] = []
        begun = False

        def begin() -> None:
            nonlocal begun
            begun = True
            size = f" ({request.size})" if request.size else ""
            note = f"making the environment of {request.head}{size}"
            self.emit({"event": "note", "text": note})

        given = provided(
            request,
            observe=observe,
            begin=begin,
            stop=self.stop,
            variables=self.variables,
            words=words,
        )
        try:
            made = self._held.enter_context(given)
        except EnvironmentFailed:
            self.logs.mkdir(parents=True, exist_ok=True)
            log = self.logs / f"environment-{request.head}.log"
            log.write_text("\n".join(words) + "\n", encoding="utf-8")
            raise
        if begun:
            self.emit({"event": "environment", "id": made.id})
        return Home(made.python, made.facts(), made_s=made.about["seconds"])
