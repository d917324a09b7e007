"""The command line as a process of its own; as a script, the same with very short slots."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from ngraphbench.types import Json

__all__ = ["Done", "ngb", "records", "shorten", "start", "write_model"]

Done = subprocess.CompletedProcess
PATIENCE_S = 420.0
ESCAPE = "\x1b"


def ngb(
    *arguments: object,
    cwd: Path,
    short: bool = False,
    env: Mapping[str, str] | None = None,
    check: int | None = None,
) -> Done[str]:
    """Return what one ``ngb`` command said; ``short`` measures next to nothing.

    Its host lock is private to ``cwd``, its width is 80 columns, and ``check`` is the exit
    code it must have.
    """
    folder = cwd / "tmp"
    folder.mkdir(exist_ok=True)
    start = [str(Path(__file__))] if short else ["-m", "ngraphbench"]
    done = subprocess.run(
        [sys.executable, *start, *map(str, arguments)],
        cwd=cwd,
        env={
            **os.environ,
            "TMPDIR": str(folder),
            "NGRAPHBENCH_LOCK": str(folder / "host.lock"),
            "COLUMNS": "80",
            **(env or {}),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert check is None or done.returncode == check, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert ESCAPE not in done.stdout + done.stderr
    return done


def start(
    *arguments: object, cwd: Path, env: Mapping[str, str] | None = None, rounds: int = 0
) -> subprocess.Popen[str]:
    """Return an ``ngb`` command that runs, and that Ctrl-C stops.

    Its slots are very short; with ``rounds`` they are as they are, and a launch of the profile
    ``default`` has so many of them at most.
    """
    # A process that a shell put into the background ignores SIGINT; a terminal's does not.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        f" sys.path.insert(0, {str(Path(__file__).parent)!r}); import command_line;"
        f" command_line.cut_off({rounds}) if {rounds} else command_line.shorten();"
        " from ngraphbench.cli import main; main()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def records(done: Done[str]) -> list[Json]:
    """Return the records that a command printed: stdout is one JSON array."""
    found: Any = json.loads(done.stdout)
    assert isinstance(found, list)
    return found


def write_model(path: Path, *, batch: int | str = "N", size: int = 8) -> None:
    """Write an ONNX model of one MatMul."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, size])],
        [numpy_helper.from_array(weights, "w")],
    )
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), str(path))


def cut_off(rounds: int) -> None:
    """Make launches of the profile ``default`` of this process end after so many rounds."""
    from ngraphbench.profiles import PROFILES, TAILS_S

    TAILS_S["default"] = 0.3
    PROFILES["default"] = dataclasses.replace(PROFILES["default"], rounds_max=rounds)


def shorten() -> None:
    """Make profiles of this process measure next to nothing."""
    from ngraphbench.analysis.tables import Evidence
    from ngraphbench.profiles import MS, PROFILES, TAILS_S

    # The A/A control fails one right session in a hundred, and more of them where other work runs
    # beside so few rounds. The tests make some sixty such sessions, and ask of what is decided in
    # one; what a control that failed does has tests of its own.
    mock.patch.object(Evidence, "untrusted", return_value=False).start()

    TAILS_S["default"] = 0.1
    for name, epochs in (("quick", 1), ("default", 2)):
        PROFILES[name] = dataclasses.replace(
            PROFILES[name], epochs=epochs, rounds_min=3, rounds_max=4, slot_ns=5 * MS
        )


if __name__ == "__main__":
    from ngraphbench.cli import main

    shorten()
    main()
