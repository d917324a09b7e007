"""Locks: which distributions a compiler's own environment holds, and what such one is asked for.

A lock is a pair of requirements files: ``NAME.in`` says what is wanted, ``NAME.txt`` what that
came to, exact versions for every supported Python and platform. Lines ``# size: 90 MB``,
``# python: 3.11`` and ``# without: torch`` in ``NAME.in`` state how large the environment gets,
the least Python, and what is asked for by others there but not needed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ngraphbench.case import digest
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.places import expanded
from ngraphbench.types import Json

__all__ = [
    "ENTRY_POINT_GROUP",
    "EnvironmentRequest",
    "Lock",
    "distribution_of",
    "find_lock",
    "is_path",
    "lock_names",
    "plain_name",
    "request_for",
    "requirement_lines",
    "size_text",
]

ENTRY_POINT_GROUP = "ngraphbench.locks"
"""Entry points of third parties: the name of a lock, and the package in whose folder it lies."""

_OWN = Path(__file__).parent / "environments" / "locks"
_STATED = re.compile(r"^#\s*(size|python|without):\s*(.+?)\s*$", re.MULTILINE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(MB|GB)")
_UNITS = {"MB": 10**6, "GB": 10**9}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Lock:
    """A compiler's lock: the texts of both files; one that was not solved yet has no ``text``."""

    name: str
    text: str
    wanted: str
    folder: Path

    @property
    def size_bytes(self) -> int | None:
        """About how large the environment gets, None where the lock does not say."""
        found = _SIZE.fullmatch(self._stated("size"))
        return int(float(found[1]) * _UNITS[found[2]]) if found else None

    @property
    def least_python(self) -> tuple[int, ...]:
        """The least Python, such as ``(3, 11)``; empty where the lock does not say."""
        stated = self._stated("python").removeprefix(">=").strip()
        return tuple(map(int, stated.split("."))) if re.fullmatch(r"\d+(\.\d+)*", stated) else ()

    @property
    def without(self) -> tuple[str, ...]:
        """The distributions that are left out, and with them what they alone need."""
        return tuple(self._stated("without").replace(",", " ").split())

    def _stated(self, key: str) -> str:
        stated: dict[str, str] = dict(_STATED.findall(self.wanted))
        return stated.get(key, "")


@dataclass(frozen=True, slots=True)
class EnvironmentRequest:
    """What a candidate's own environment must be.

    ``kind``: ``managed`` (made from a lock), ``interpreter`` (``python`` is the path the user
    gave). ``requirements`` are tried in turn until one can be solved. ``distribution`` is the
    compiler's own, which must be there in the end. ``whole``: they name all that is wanted, so
    that nothing is added.
    """

    kind: str
    name: str
    version: str = ""
    distribution: str = ""
    requirements: tuple[str, ...] = ()
    size_bytes: int | None = None
    least_python: tuple[int, ...] = ()
    whole: bool = False
    python: str = ""

    @property
    def head(self) -> str:
        """Name and version as people write them: ``onnxruntime@1.31.0``."""
        return f"{self.name}@{self.version}" if self.version else self.name

    @property
    def size(self) -> str:
        """About how large it gets, for people; empty where its lock does not say."""
        return size_text(self.size_bytes)

    def id(self, interpreter: str) -> str:
        """Return the id of the managed environment under an interpreter: 16 hex digits."""
        wanted = [requirement_lines(text) for text in self.requirements]
        return digest([wanted, interpreter, *([True] if self.whole else [])])[:16]

    def to_json(self) -> Json:
        lists = {"requirements": list(self.requirements), "least_python": list(self.least_python)}
        return {**asdict(self), **lists}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EnvironmentRequest:
        lists = {key: tuple(data[key]) for key in ("requirements", "least_python")}
        return cls(**{**data, **lists})


def size_text(size_bytes: int | None) -> str:
    """Return a stated size for people: ``about 90 MB``, or nothing."""
    return f"about {size_bytes / 1e6:.0f} MB" if size_bytes else ""


def is_path(version: str) -> bool:
    """Return whether what stands after ``@`` is a place and not a version."""
    return version[:1] in ("/", "~", ".")


def lock_names() -> list[str]:
    """Return the names of all locks, those of third parties too."""
    own = {path.stem for path in _OWN.glob("*.in")}
    return sorted(own | set(_foreign()))


def find_lock(name: str) -> Lock | None:
    """Return the lock called ``name``, or None. No plugin's vendor is imported."""
    folder: Path | None = _OWN
    if not (_OWN / f"{name}.in").is_file():
        point = _foreign().get(name)
        folder = _folder_of(point) if point else None
    if folder is None or not (folder / f"{name}.in").is_file():
        return None
    solved = folder / f"{name}.txt"
    return Lock(
        name=name,
        text=solved.read_text(encoding="utf-8") if solved.is_file() else "",
        wanted=(folder / f"{name}.in").read_text(encoding="utf-8"),
        folder=folder,
    )


def request_for(
    name: str, *, distributions: Sequence[str] = (), version: str = ""
) -> EnvironmentRequest:
    """Return what must be made for the lock ``name``, or found where ``version`` is a path.

    ``distributions`` are those of the compiler, its main one first. With a version that one is
    pinned to it, and those that have the same version now: first the other pins of the lock
    are kept, then only what its input asks for.

    Raises EnvironmentFailed where there is no lock, or a path is not absolute.
    """
    main = next(iter(distributions), "")
    if is_path(version):
        place = _absolute(version, name)
        return EnvironmentRequest("interpreter", name, version, main, python=str(place))
    lock = find_lock(name)
    if lock is None:
        raise EnvironmentFailed(
            f"There is no lock for {name}, so no environment can be made for it.",
            reason="no-lock",
            hint=f"Name an interpreter that has it, {name}@/path/to/env, or use"
            " `environments: current`.",
        )
    whole = bool(lock.text and lock.without)
    texts = [text for text in (lock.text, lock.wanted) if text][: 1 if whole else 2]
    plain = texts[0]
    if version:
        if not main:
            raise EnvironmentFailed(
                f"{name}@{version}: its plugin does not say which distribution has that version.",
                reason="no-distribution",
                hint=f"Make an environment by hand and name its place: {name}@/path/to/env.",
            )
        texts = list(dict.fromkeys(_pinned(text, distributions, version) for text in texts))
    # Where the lock has that version anyway, it is the same environment.
    same = texts[0] == plain
    return EnvironmentRequest(
        kind="managed",
        name=name,
        version="" if same else version,
        distribution=main,
        requirements=(plain,) if same else tuple(texts),
        size_bytes=lock.size_bytes,
        least_python=lock.least_python if same else (),
        whole=whole,
    )


def _absolute(path: str, name: str) -> Path:
    place = expanded(path)
    if not place.is_absolute():
        raise EnvironmentFailed(
            f"{name}@{path}: the path of an environment must be absolute.",
            reason="path",
            hint=f"Write {name}@{place.resolve()}.",
        )
    return place


def requirement_lines(text: str) -> list[str]:
    """Return the requirements in a file's text, without comments.

    >>> requirement_lines("# size: 1 MB\\nnumpy==2.0  # via x\\n\\n")
    ['numpy==2.0']
    """
    lines = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def plain_name(distribution: str) -> str:
    """Return the one spelling of a distribution's name.

    >>> plain_name("Tuner_Core")
    'tuner-core'
    """
    return re.sub(r"[-_.]+", "-", distribution).lower()


def distribution_of(requirement: str) -> str:
    """Return the plain name of the distribution that one requirement is about.

    >>> distribution_of("Tuner_Core[fast]==2.0 ; python_version < '3.11'")
    'tuner-core'
    """
    found = _NAME.match(requirement)
    return plain_name(found[0]) if found else ""


def _pinned(text: str, names: Sequence[str], version: str) -> str:
    """Return the requirements with the first of ``names`` at exactly ``version``.

    The others of them that go with it now, at the same version, go with it still.
    """
    lines = requirement_lines(text)
    plain = [plain_name(name) for name in names]
    now = {
        name: {_version(line) for line in lines if distribution_of(line) == name} for name in plain
    }
    if now[plain[0]] == {version}:
        return text
    alike = [name for name in plain[1:] if now[name] and now[name] == now[plain[0]]]
    moved = [plain[0], *alike]
    pins = []
    for name in moved:
        own = (line for line in lines if distribution_of(line) == name)
        extras = next((found[0] for line in own if (found := re.search(r"\[.*?\]", line))), "")
        pins.append(f"{name}{extras}=={version}")
    others = [line for line in lines if distribution_of(line) not in moved]
    return "\n".join([*pins, *others, ""])


def _version(requirement: str) -> str:
    """Return the version that a requirement pins, empty where it pins none."""
    found = re.search(r"==\s*([^\s;,]+)", requirement.partition(";")[0])
    return found[1] if found else ""


def _foreign() -> dict[str, str]:
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    return {point.name: point.value for point in points}


def _folder_of(package: str) -> Path | None:
    with suppress(ImportError):
        spec = importlib.util.find_spec(package)
        places = spec.submodule_search_locations if spec else None
        return next(map(Path, places or ()), None)
    return None
