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

import numpy as np

from ngraphbench.types import Json

__all__ = ["Done", "ngb", "records", "write_model"]

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


def _shorten() -> None:
    from ngraphbench.profiles import MS, PROFILES, TAILS_S

    TAILS_S["default"] = 0.1
    for name, epochs in (("quick", 1), ("default", 2)):
        PROFILES[name] = dataclasses.replace(
            PROFILES[name], epochs=epochs, rounds_min=3, rounds_max=4, slot_ns=5 * MS
        )


if __name__ == "__main__":
    from ngraphbench.cli import main

    _shorten()
    main()
