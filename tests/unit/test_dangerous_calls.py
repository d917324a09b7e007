"""What the package never does with what it is given: read pickles, start shells, unpack blindly."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import ngraphbench
from ngraphbench.engines.carrying import start_command

SOURCES = sorted(Path(ngraphbench.__file__).parent.rglob("*.py"))
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve", "cloudpickle"}
FORBIDDEN_CALLS = {"os.system", "os.popen", "eval", "exec", "tempfile.mktemp", "yaml.load"}
NEEDED = {
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
}


def faults(tree: ast.AST) -> Iterator[str]:
    """Yield what a module does that it must not."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
            yield from FORBIDDEN_MODULES & {name.partition(".")[0] for name in names}
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        given = {word.arg: word.value for word in node.keywords}
        if name in FORBIDDEN_CALLS or "shell" in given:
            yield ast.unparse(node)
        if name.endswith((".extractall", ".unpack_archive")) and "filter" not in given:
            yield ast.unparse(node)
        if (last := ".".join(name.split(".")[-2:]).lstrip("_")) in NEEDED:
            key, value = NEEDED[last]
            found = given.get(key)
            if not isinstance(found, ast.Constant) or found.value is not value:
                yield ast.unparse(node)


def test_nothing_dangerous_is_called() -> None:
    found = {path.name: list(faults(ast.parse(path.read_text()))) for path in SOURCES}
    assert len(found) > 100
    assert {name: what for name, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "text",
    [
        *("import pickle", "from joblib import load", "os.system(x)", "run(x, shell=True)"),
        *("self._torch.load(p)", "np.load(p, allow_pickle=True)", "t.extractall(p)"),
    ],
)
def test_the_rules_find_what_they_are_for(text: str) -> None:
    assert list(faults(ast.parse(text)))


def packed(name: str, *, link: str = "") -> bytes:
    """Return an archive of one member, as a board is sent it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        if link:
            member.type, member.linkname = tarfile.SYMTYPE, link
        tar.addfile(member)
    data = buffer.getvalue()
    return b"%016x" % len(data) + data


@pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="this Python has no filters")
@pytest.mark.parametrize(
    ("name", "link"), [("../../evil", ""), ("evil", "/etc"), ("x/../../e", "")]
)
def test_a_board_unpacks_nothing_outside_its_folder(tmp_path: Path, name: str, link: str) -> None:
    done = subprocess.run(
        ["sh", "-c", start_command(sys.executable)],
        input=packed(name, link=link),
        env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1 and b"Error" in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []
