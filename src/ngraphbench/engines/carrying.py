"""How this package reaches a board that has nothing but Python: as an archive, for a while.

``start_command`` is what a shell on the board runs. It makes a folder, unpacks the archive that
comes first on stdin, starts a desk there, and removes the folder whatever comes of it.
"""

from __future__ import annotations

import io
import shlex
import tarfile
from functools import lru_cache
from pathlib import Path

import ngraphbench
from ngraphbench.plugin import discover

__all__ = ["NEEDS", "archive", "start_command"]

NEEDS = {"numpy": "numpy", "scipy": "scipy"}
"""Modules that a desk imports, and the packages that have them."""

_SHELL = """\
umask 077
d=$(mktemp -d "${TMPDIR:-/tmp}/ngb-XXXXXX") || exit 97
trap : HUP INT TERM
PYTHON -c BOOT "$d"
code=$?
for i in 1 2 3 4 5; do rm -rf "$d" 2>/dev/null; [ -e "$d" ] || break; sleep 1; done
exit $code
"""

_BOOT = """\
import importlib.util, io, os, subprocess, sys, tarfile
root, needs = sys.argv[1], NEEDS
if sys.version_info < (3, 10):
    sys.exit("ngb: Python %d.%d is too old; 3.10 is needed. Name another one:"
        " ssh://HOST?python=/path/to/python" % sys.version_info[:2])
def take(size):
    parts = []
    while size:
        part = os.read(0, min(size, 65536))
        if not part:
            sys.exit("ngb: the archive was cut off")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
site = os.path.join(root, "site")
packed = tarfile.open(fileobj=io.BytesIO(take(int(take(16), 16))))
# A link, a device or a path out of the folder is refused; the oldest Pythons have no such filter.
packed.extractall(site, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
python = sys.executable
lacks = [needs[name] for name in needs if importlib.util.find_spec(name) is None]
if lacks:
    home = os.path.join(root, "environment")
    make = [python, "-m", "venv", "--system-site-packages", home]
    python = os.path.join(home, "bin", "python")
    for command in (make, [python, "-m", "pip", "install", "-q", *lacks]):
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2).returncode:
            sys.exit("ngb: %s cannot be installed for the time of the run: install %s on the"
                " board, or name a Python that has them: ssh://HOST?python=/path/to/python"
                % (", ".join(lacks), " ".join(lacks)))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [site, os.environ.get("PYTHONPATH")]))
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
desk = os.path.join(root, "desk")
os.execv(python, [python, "-m", "ngraphbench.engines.doorstep", desk])
"""


def start_command(python: str = "python3") -> str:
    """Return the command line that starts a desk on a board, as its shell takes it."""
    boot = _BOOT.replace("NEEDS", repr(NEEDS))
    script = _SHELL.replace("PYTHON", shlex.quote(python)).replace("BOOT", shlex.quote(boot))
    return f"sh -c {shlex.quote(script)}"


@lru_cache(maxsize=1)
def archive() -> bytes:
    """Return what comes first on the command's stdin: a length, then this package as an archive."""
    package = Path(ngraphbench.__file__).parent
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for path in sorted(package.rglob("*")):
            if path.is_file() and path.suffix not in (".pyc", ".pyo"):
                tar.add(path, arcname=f"ngraphbench/{path.relative_to(package)}")
        # Without it no compiler would be found there.
        about = f"ngraphbench-{ngraphbench.__version__}.dist-info"
        points = [
            f"{name} = {target}"
            for name, target in discover().items()
            if target.startswith("ngraphbench.")
        ]
        _add(tar, f"{about}/entry_points.txt", "\n".join(["[ngraphbench.compilers]", *points, ""]))
        lines = ["Metadata-Version: 2.1", "Name: ngraphbench"]
        lines.append(f"Version: {ngraphbench.__version__}")
        _add(tar, f"{about}/METADATA", "\n".join([*lines, ""]))
    data = buffer.getvalue()
    return b"%016x" % len(data) + data


def _add(tar: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode()
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
