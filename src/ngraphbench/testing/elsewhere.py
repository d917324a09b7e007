"""Runs a contract test file inside a compiler's own environment, which stays as it is.

``python -m ngraphbench.testing.elsewhere PYTHON TEST_FILE [pytest arguments]``

That environment needs numpy and the compiler only: pytest, this package, the sample ONNX files
and what lies beside the test file are put within its reach by ``PYTHONPATH``.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import ngraphbench
from ngraphbench.testing.parts import HEAVY_BATCH, ContractParts
from ngraphbench.testing.workloads import SAMPLES_VARIABLE, write_samples

__all__ = ["run_suite", "suite_command"]

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = "extra =="


def run_suite(python: Path, test_file: Path, *, arguments: Sequence[str] = ()) -> int:
    """Return pytest's exit code for ``test_file`` run by ``python``, whose output is shown."""
    with tempfile.TemporaryDirectory(prefix="ngb-suite-") as name:
        folder = Path(name)
        command, variables = suite_command(python, test_file, folder=folder, arguments=arguments)
        return subprocess.run(command, env=variables, cwd=folder, check=False).returncode


def suite_command(
    python: Path, test_file: Path, *, folder: Path, arguments: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Return the command and its environment variables, after filling the empty ``folder``."""
    within = folder / "within"
    within.mkdir()
    for path in _needed():
        (within / path.name).symlink_to(path)
    samples = folder / "samples"
    samples.mkdir()
    write_samples(samples, batches={*ContractParts.batches, HEAVY_BATCH})
    settings = folder / "pytest.ini"
    settings.write_text("[pytest]\nmarkers = slow: takes more than a few seconds\n")
    where = test_file.resolve()
    command = [
        *(os.fspath(python.absolute()), "-m", "pytest", "-ra", "-p", "no:cacheprovider"),
        *("-c", str(settings), "--rootdir", str(folder), "--confcutdir", str(where.parent)),
        *("--import-mode=importlib", *arguments, str(where)),
    ]
    return command, {
        **os.environ,
        # What several suites share lies beside them.
        "PYTHONPATH": os.pathsep.join((str(within), str(where.parent))),
        # The environment's own pytest plugins were never asked for.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        SAMPLES_VARIABLE: str(samples),
    }


def _needed() -> Iterator[Path]:
    """Yield the packages to put within reach: this one, and pytest with all it needs."""
    yield Path(ngraphbench.__file__).resolve().parent
    wanted, seen = ["pytest"], set[str]()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # a requirement of another Python or platform
        wanted += [
            match[0]
            for text in found.requires or ()
            if _EXTRA not in text and (match := _NAME.match(text))
        ]
        tops = {Path(str(file)).parts[0] for file in found.files or ()}
        for top in sorted(tops - {"..", "__pycache__"}):
            yield Path(str(found.locate_file(top)))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit("usage: python -m ngraphbench.testing.elsewhere PYTHON TEST_FILE [...]")
    raise SystemExit(run_suite(Path(sys.argv[1]), Path(sys.argv[2]), arguments=sys.argv[3:]))
