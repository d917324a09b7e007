"""Managed environments: each in a folder of its own, named by what decides what is in it.

A folder with a marker is whole: the marker is written last, and holds what was installed. All
else that may lie there, half-made or edited since, is made anew.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ngraphbench.environments.installing import Installer, Observe
from ngraphbench.environments.interpreters import distributions_in, interpreter_tag
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.locks import (
    EnvironmentRequest,
    distribution_of,
    plain_name,
    requirement_lines,
)
from ngraphbench.places import own_folder
from ngraphbench.records import now_utc
from ngraphbench.types import Json

__all__ = [
    "FOLDER_VARIABLE",
    "Environment",
    "environments",
    "find_environment",
    "provided",
    "remove_environment",
    "root_folder",
]

FOLDER_VARIABLE = "NGRAPHBENCH_ENVIRONMENTS"
MARKER = "ngraphbench-environment.json"
LOCK_EVERY_S = 0.2
SPARE_BYTES = 200 * 10**6
SIZE_MARGIN = 1.2
"""What is downloaded lies on the disk as well for a while."""

KIT_NEEDS = "numpy"

_KINDS = {"name": str, "made_at": str, "distributions": dict, "size_bytes": int}
"""What is looked for in every marker."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A managed environment: ``about`` is its marker, ``state`` what became of it.

    ``state``: ``ready | half-made | edited | broken`` (its interpreter is gone).
    """

    id: str
    folder: Path
    state: str
    about: Json = field(default_factory=dict)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def facts(self) -> Json:
        """Return what a record says of it."""
        return {
            "lock": self.id,
            "lock_name": self.about["name"],
            "distributions": self.about["distributions"],
        }


def root_folder() -> Path:
    """Return the folder of all managed environments."""
    folder = own_folder(FOLDER_VARIABLE, "XDG_DATA_HOME", "environments")
    if folder is None:
        raise EnvironmentFailed(
            "This user has no home folder to keep environments in.",
            reason="home",
            hint=f"Set HOME, XDG_DATA_HOME or {FOLDER_VARIABLE}.",
        )
    return folder


def find_environment(id_: str) -> Environment | None:
    """Return the environment with that id in whatever state, None where nothing lies."""
    folder = root_folder() / id_
    if not folder.is_dir():
        return None
    try:
        about: Json = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        whole = {key: type(about[key]) for key in _KINDS} == _KINDS
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        whole = False
    if not whole:
        return Environment(id_, folder, "half-made")
    if not (folder / "bin" / "python").exists():
        return Environment(id_, folder, "broken", about)
    same = distributions_in(folder) == about["distributions"]
    return Environment(id_, folder, "ready" if same else "edited", about)


def environments() -> list[Environment]:
    """Return all managed environments, by name and age."""
    with suppress(FileNotFoundError):
        ids = [path.name for path in root_folder().iterdir() if path.is_dir()]
        found = [one for id_ in ids if (one := find_environment(id_))]
        return sorted(found, key=lambda e: (e.about.get("name", ""), e.about.get("made_at", "")))
    return []


@contextmanager
def provided(
    request: EnvironmentRequest,
    *,
    observe: Observe = lambda text: None,
    begin: Callable[[], None] = lambda: None,
    stop: Callable[[], bool] = lambda: False,
    variables: Mapping[str, str] | None = None,
    words: list[str] | None = None,
) -> Iterator[Environment]:
    """Yield the environment that is asked for, made where it is not there or not whole.

    While this lasts nobody can remove or remake it. ``begin`` is called before it is made, by
    nobody else. ``words`` gets what the installer prints.
    Raises EnvironmentFailed, KeyboardInterrupt when ``stop()`` comes true.
    """
    _check_python(request)
    id_ = request.id(interpreter_tag())
    with _locked(id_, fcntl.LOCK_SH, observe=observe, stop=stop):
        found = find_environment(id_)
        if found is not None and found.state == "ready":
            yield found
            return
    with _locked(id_, fcntl.LOCK_EX, observe=observe, stop=stop) as descriptor:
        found = find_environment(id_)
        if found is None or found.state != "ready":
            begin()
            if found is not None:
                observe(f"{found.folder} is {found.state}: it is made anew")
            installer = Installer(
                root_folder() / id_,
                observe,
                stop=stop,
                variables=variables or {},
                pass_fds=(descriptor,),
                words=[] if words is None else words,
            )
            try:
                found = _make(request, id_, installer)
            except BaseException:
                _forget(id_)
                raise
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield found


def remove_environment(id_: str) -> bool:
    """Remove one environment, with all that is left of it; False where nothing lay there.

    Raises EnvironmentFailed while it is in use, or where it cannot be removed.
    """
    folder = root_folder() / id_
    if not folder.exists():
        return False

    def busy() -> bool:
        raise EnvironmentFailed(
            f"The environment {id_} is in use by a measurement, or is being made.",
            reason="in-use",
            hint="Try again when that has ended.",
        )

    with _locked(id_, fcntl.LOCK_EX, observe=lambda text: None, stop=busy):
        _forget(id_)
    return True


def _forget(id_: str) -> None:
    """Remove an environment, its lock, which is held, and folders that are empty then."""
    _clear(root_folder() / id_)
    _lock_path(id_).unlink(missing_ok=True)
    root = root_folder()
    with suppress(OSError):
        root.rmdir()
        if not os.environ.get(FOLDER_VARIABLE):
            root.parent.rmdir()


def _make(request: EnvironmentRequest, id_: str, installer: Installer) -> Environment:
    folder = installer.folder
    _clear(folder)
    _check_disk(request, folder)
    try:
        about = _fill(request, id_, installer)
    except EnvironmentFailed as error:
        raise EnvironmentFailed(
            f"The environment of {request.head} could not be made. {error.message}",
            reason=error.reason,
            hint=error.hint,
        ) from error
    except OSError as error:
        raise EnvironmentFailed(
            f"The environment of {request.head} could not be made in {folder}: {error}.",
            reason="disk",
            hint=f"Set {FOLDER_VARIABLE} to a folder that can be written.",
        ) from error
    installer.observe(f"ready: {about['size_bytes'] / 1e6:.0f} MB in {about['seconds']:.0f} s")
    return Environment(id_, folder, "ready", about)


def _fill(request: EnvironmentRequest, id_: str, installer: Installer) -> Json:
    """Return the marker, which is written last."""
    folder, started = installer.folder, time.monotonic()
    folder.mkdir(parents=True)
    texts = [_with_kit_needs(text) for text in request.requirements]
    tool = installer.make(texts, whole=request.whole)
    _check_there(request, folder)
    about: Json = {
        "id": id_,
        "name": request.name,
        "version": request.version,
        "distribution": request.distribution,
        "requirements": list(request.requirements),
        "interpreter": interpreter_tag(),
        "python": platform.python_version(),
        "tool": tool,
        "made_at": now_utc(),
        "seconds": time.monotonic() - started,
        "size_bytes": _size_bytes(folder),
        "distributions": distributions_in(folder),
    }
    partial = folder / f"{MARKER}.part"
    partial.write_text(json.dumps(about, indent=1), encoding="utf-8")
    partial.replace(folder / MARKER)
    return about


def _with_kit_needs(text: str) -> str:
    names = map(distribution_of, requirement_lines(text))
    return text if KIT_NEEDS in names else f"{text.rstrip()}\n{KIT_NEEDS}\n"


def _check_python(request: EnvironmentRequest) -> None:
    least = request.least_python
    if sys.version_info[: len(least)] < least:
        needed = ".".join(map(str, least))
        raise EnvironmentFailed(
            f"There is no lock of {request.name} for Python {platform.python_version()}; it"
            f" needs {needed} or newer.",
            reason="no-lock",
            hint=f"Run this tool under Python {needed}, or name an interpreter that has it.",
        )


def _check_disk(request: EnvironmentRequest, folder: Path) -> None:
    place = next(path for path in folder.parents if path.exists())
    free_bytes = shutil.disk_usage(place).free
    needed_bytes = (request.size_bytes or 0) * SIZE_MARGIN + SPARE_BYTES
    if free_bytes < needed_bytes:
        raise EnvironmentFailed(
            f"The environment of {request.head} needs about {needed_bytes / 1e9:.1f} GB; below"
            f" {folder.parent} {free_bytes / 1e9:.1f} GB are free.",
            reason="disk",
            hint=f"Free some space (`ngb env remove`), or set {FOLDER_VARIABLE} to another disk.",
        )


def _check_there(request: EnvironmentRequest, folder: Path) -> None:
    if request.distribution and plain_name(request.distribution) not in distributions_in(folder):
        raise EnvironmentFailed(
            f"Its lock holds no {request.distribution} for {interpreter_tag()}.",
            reason="no-lock",
            hint="Try another Python, or name an interpreter that has it.",
        )


def _clear(folder: Path) -> None:
    # Without its marker, what is left when this breaks off is known to be no environment.
    with suppress(FileNotFoundError, NotADirectoryError):
        (folder / MARKER).unlink()
    try:
        if folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        raise EnvironmentFailed(
            f"{folder} cannot be removed: {error}.",
            reason="disk",
            hint="Remove it by hand.",
        ) from error


def _size_bytes(folder: Path) -> int:
    return sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    )


def _lock_path(id_: str) -> Path:
    return root_folder() / f"{id_}.lock"


@contextmanager
def _locked(id_: str, kind: int, *, observe: Observe, stop: Callable[[], bool]) -> Iterator[int]:
    """Hold the lock of one environment; yields its descriptor. Who waits says so once."""
    path = _lock_path(id_)
    told = False
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise EnvironmentFailed(
                f"{path} cannot be written: {error.strerror}.",
                reason="disk",
                hint=f"Set {FOLDER_VARIABLE} to a folder that can be written.",
            ) from error
        try:
            while not _taken(descriptor, kind):
                if stop():
                    raise KeyboardInterrupt
                if not told:
                    observe("waiting: someone else uses or makes this environment")
                    told = True
                time.sleep(LOCK_EVERY_S)
            if _is_current(descriptor, path):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _taken(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_current(descriptor: int, path: Path) -> bool:
    """Return whether the file that was locked is the one at ``path``; a removal takes it away."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False
