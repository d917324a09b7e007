"""What is written past the module in which faults are injected, ``ngraphbench.store.disk``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ngraphbench

PACKAGE = Path(ngraphbench.__file__).parent
WRITING = ("open", "os.rename", "os.mkdir", "os.truncate", "os.link")
NOTHING = re.compile("(?!)")


@dataclass
class _Watch:
    """An audit hook, which cannot be taken away again: it looks only while it has a ``root``."""

    root: Path | None = None
    but: re.Pattern[str] = NOTHING
    beside: list[str] = field(default_factory=list)
    is_hooked: bool = False

    def __call__(self, event: str, given: tuple[Any, ...]) -> None:
        if self.root is None or event not in WRITING:
            return
        target = given[1] if event in ("os.rename", "os.link") else given[0]
        if event == "open" and not given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        if not isinstance(target, (str, os.PathLike)) or self.root not in Path(target).parents:
            return
        path = Path(target).relative_to(self.root).as_posix()
        frame: Any = sys._getframe()
        while frame and PACKAGE not in Path(frame.f_code.co_filename).parents:
            frame = frame.f_back
        writer = Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix() if frame else "?"
        if writer != "store/disk.py" and not self.but.match(path):
            self.beside.append(f"{event} {path} by {writer}")


_watch = _Watch()


@contextmanager
def writes_beside(root: Path, *, but: re.Pattern[str] = NOTHING) -> Iterator[list[str]]:
    """Yield a list of what is written below ``root`` by anything but the store's ``disk``.

    Paths that ``but`` matches are left out.
    """
    if not _watch.is_hooked:
        sys.addaudithook(_watch)
    _watch.is_hooked, _watch.root, _watch.but, _watch.beside = True, root, but, []
    try:
        yield _watch.beside
    finally:
        _watch.root = None
