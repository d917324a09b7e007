"""The kit: the part of this package that a compiler's environment needs, as one folder.

The kit needs the standard library and numpy only. Its folder goes on ``sys.path`` of a
worker, and nothing else of the client's environment does.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import ngraphbench
from ngraphbench.errors import EnvironmentFailed

__all__ = ["build_kit", "plugin_folder", "worker_command"]

_PATTERNS = (
    "__init__.py",
    "errors.py",
    "types.py",
    "workload.py",
    "plugin.py",
    "worker/*.py",
    "compilers/**/*.py",
    "models/__init__.py",
    "models/blocks.py",
    "models/modules.py",
    "models/configured.py",
    "models/saved.py",
    "models/onnxdata.py",
    "models/onnxgraph.py",
)
PLUGIN_BYTES = 64 * 2**20

_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); sys.path += sys.argv[3:];"
    " from ngraphbench.worker.__main__ import main; main(int(sys.argv[2]))"
)


def build_kit(root: Path) -> Path:
    """Return the folder to put on ``sys.path``, ``root/kit-<hash>``, made when it is not there.

    It appears whole or not at all, also when several processes make it at once. Raises
    EnvironmentFailed when ``root`` cannot be written.
    """
    files = _kit_files()
    folder = root / f"kit-{_digest(files)}"
    if folder.is_dir():
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".kit-", dir=root))
    except OSError as error:
        raise EnvironmentFailed(
            f"The worker kit cannot be written below {root}: {error}.",
            reason="kit",
            hint="Choose a run directory that can be written.",
        ) from error
    try:
        for name, content in files.items():
            path = partial / "ngraphbench" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        partial.chmod(0o755)
        with suppress(OSError):  # another process was faster: its folder is the same
            partial.rename(folder)
        if not folder.is_dir():
            raise EnvironmentFailed(f"The worker kit cannot be put at {folder}.", reason="kit")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def plugin_folder(root: Path, targets: Iterable[str]) -> Path | None:
    """Return a folder with the plugins of third parties, for an interpreter that lacks them.

    ``targets`` are ``module:attribute``; None when all of them are in the kit. Raises
    EnvironmentFailed for a plugin that is too large to carry along.
    """
    tops = sorted({target.partition(":")[0].partition(".")[0] for target in targets})
    folder = root / "plugins"
    for top in tops:
        spec = importlib.util.find_spec(top) if top != "ngraphbench" else None
        if spec is None or spec.origin is None:
            continue
        source = Path(spec.origin)
        folder.mkdir(parents=True, exist_ok=True)
        if source.name != "__init__.py":
            shutil.copy2(source, folder)
            continue
        files = [path for path in source.parent.rglob("*") if path.is_file()]
        if sum(path.stat().st_size for path in files) > PLUGIN_BYTES:
            raise EnvironmentFailed(
                f"The package {top}, which holds a compiler's plugin, is too large to carry into"
                " an environment.",
                reason="plugin-size",
                hint="Put it into the compiler's lock, or the plugin into a package of its own.",
            )
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source.parent, folder / top, ignore=ignored, dirs_exist_ok=True)
    return folder if folder.is_dir() else None


def worker_command(
    python: str, kit: Path, fd: int | str = "{fd}", *, plugins: Path | None = None
) -> list[str]:
    """Return the command of a worker under ``python`` that speaks on descriptor ``fd``.

    The default stands for the descriptor that ``WorkerProcess.spawn`` makes. ``plugins`` is
    searched last.
    """
    last = [] if plugins is None else [os.fspath(plugins)]
    return [python, "-c", _START, os.fspath(kit), str(fd), *last]


def _kit_files() -> dict[str, bytes]:
    source = Path(ngraphbench.__file__).parent
    paths = {path for pattern in _PATTERNS for path in source.glob(pattern)}
    return {path.relative_to(source).as_posix(): path.read_bytes() for path in sorted(paths)}


def _digest(files: dict[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name, content in files.items():
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()[:12]
