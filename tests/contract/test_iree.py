"""The conformance suite on IREE, and what is special to it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from artefacts import check_prebuilt, saved

from ngraphbench.compilers import iree
from ngraphbench.compilers.iree import Iree
from ngraphbench.compilers.iree_prebuilt import signature_of
from ngraphbench.errors import CompileFailed, Unsupported
from ngraphbench.plugin import resolve_options
from ngraphbench.testing import CompilerContract
from ngraphbench.testing.observe import open_workload, relative_error
from ngraphbench.testing.workloads import write_workload
from ngraphbench.types import Device, TensorSpec

COMPILER = Iree()


class TestIree(CompilerContract):
    compiler = COMPILER
    known_gaps: ClassVar = {
        "test_threads_asked_for_are_used": "the thread that prepares and submits each call is"
        " seen busy beside the workers, whose number is checked below",
    }


def compiled(folder: Path, *, threads: int = 1, **options: Any) -> Any:
    """Return the convolution sample, compiled with ``options``."""
    if not (support := COMPILER.probe(Device())).ok:
        pytest.skip(support.hint)
    root = write_workload(folder / "conv", "conv", batches=(1,))
    workload = open_workload(root, batch=1)
    return COMPILER.compile(workload, Device(threads=threads), resolve_options(COMPILER, options))


def test_what_was_compiled_with_which_flags_is_told(tmp_path: Path) -> None:
    program = compiled(tmp_path, flags="--iree-opt-const-eval=false")
    told = program.coverage()
    program.close()
    assert told["share"] == 1.0
    assert told["parts"]["llvm-cpu dispatches"] >= 1
    assert "--iree-opt-const-eval=false" in told["flags"]
    assert "--iree-opt-data-tiling" in told["flags"]
    assert any("channels-last" in flag for flag in told["flags"])
    assert told["notes"] == []


def test_a_wish_of_the_preset_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = iree._run

    def fail_with_tiles(command: Sequence[str], *, folder: Path, reason: str) -> None:
        if "--iree-opt-data-tiling" in command:
            raise CompileFailed("no tiles today", reason=reason)
        run(command, folder=folder, reason=reason)

    monkeypatch.setattr(iree, "_run", fail_with_tiles)
    program = compiled(tmp_path)
    told = program.coverage()
    program.close()
    assert "--iree-opt-data-tiling" not in told["flags"]
    assert "no tiles today" in told["notes"][0]
    with pytest.raises(CompileFailed, match="no tiles today"):
        compiled(tmp_path / "asked", preset="shipped", data_tiling=True)


def test_a_flag_that_is_none_fails_in_the_vendors_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with pytest.raises(CompileFailed, match="--no-such-flag"):
        compiled(tmp_path, flags="--no-such-flag")
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_there_are_as_many_workers_as_asked_for(tmp_path: Path, threads: int) -> None:
    before = workers()
    program = compiled(tmp_path, threads=threads)
    # A thread takes its name when it runs for the first time.
    deadline = time.monotonic() + 20
    while len(workers() - before) < threads and time.monotonic() < deadline:
        time.sleep(0.01)
    found = workers() - before
    program.close()
    assert len(found) == threads


def workers() -> set[str]:
    """Return the thread ids of the task workers of this process."""
    names = {path.parent.name: path.read_text() for path in Path("/proc/self/task").glob("*/comm")}
    return {thread for thread, name in names.items() if name.startswith("iree-worker")}


def test_presets_compute_the_same(tmp_path: Path) -> None:
    found = {}
    for preset in ("shipped", "recommended"):
        program = compiled(tmp_path / preset, preset=preset)
        workload = open_workload(tmp_path / preset / "conv", batch=1)
        program.load(workload.input_arrays("a"))
        program.run()
        found[preset] = program.outputs()["output"]
        program.close()
    assert relative_error(found["recommended"], found["shipped"]) < 1e-5


def test_a_vmfb_runs_as_it_is_once_its_inputs_are_told(tmp_path: Path) -> None:
    if not (support := Iree().probe(Device())).ok:
        pytest.skip(support.hint)
    file = saved(Iree(), tmp_path, "conv")
    with pytest.raises(Unsupported, match="does not tell") as caught:
        Iree().signature(file, ())
    assert "--input" in caught.value.hint
    given = [TensorSpec("image", "float32", (2, 3, 8, 8))]
    check_prebuilt(Iree(), file, tmp_path, "conv", given=given)
    with pytest.raises(Unsupported, match="does not run on inputs"):
        Iree().signature(file, [TensorSpec("image", "float32", (1, 3, 8, 8))])
    file.write_bytes(b"this is no module")
    with pytest.raises(CompileFailed):
        Iree().signature(file, given)


def test_a_declared_signature_is_read() -> None:
    declared = (
        "sync func @main(%input0: tensor<1x?x4xf32> {a = 1}, %input1: tensor<si64>)"
        " -> (%output0: tensor<2xbf16>)"
    )
    module = SimpleNamespace(
        function=SimpleNamespace(reflection=[("iree.abi.declaration", declared)])
    )
    inputs, outputs = signature_of(module, ())
    assert [(s.name, s.dtype, s.shape) for s in inputs] == [
        ("input0", "float32", (1, "?input0.1", 4)),
        ("input1", "int64", ()),
    ]
    assert [(s.name, s.dtype, s.shape) for s in outputs] == [("output0", "bfloat16", (2,))]
