"""What compilers that run prebuilt files must show alike: the signature, and the same outputs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from ngraphbench.plugin import Compiler, RunsPrebuilt, resolve_options
from ngraphbench.testing import observe
from ngraphbench.testing.workloads import reference_arrays, write_workload
from ngraphbench.types import Device, TensorSpec
from ngraphbench.workload import ARTEFACT, PORTABLE, Workload

CPU = Device()


def saved(compiler: Compiler, folder: Path, sample: str, *, device: Device = CPU) -> Path:
    """Return the one file that a program of ``sample`` at batch 2 is saved as."""
    forms = ("onnx", "torch", *((PORTABLE,) if PORTABLE in compiler.accepts else ()))
    root = write_workload(folder / "source", sample, batches=(2,), forms=forms)
    target = folder / "saved"
    target.mkdir()
    program = compiler.compile(
        observe.open_workload(root, batch=2), device, resolve_options(compiler, {})
    )
    program.save(target)
    program.close()
    assert isinstance(compiler, RunsPrebuilt)
    (file,) = [path for path in target.iterdir() if path.suffix in compiler.prebuilt]
    return file


def check_prebuilt(
    compiler: Compiler,
    file: Path,
    folder: Path,
    sample: str,
    *,
    device: Device = CPU,
    given: Sequence[TensorSpec] = (),
) -> None:
    """Fail unless the file's signature is the sample's, and its program computes the sample."""
    assert isinstance(compiler, RunsPrebuilt)
    root = write_workload(folder / "prebuilt", sample, batches=(2,), forms=("onnx",))
    plain = observe.open_workload(root, batch=2)
    inputs, outputs = compiler.signature(file, given)
    for found, wanted in ((inputs, plain.inputs), (outputs, plain.outputs)):
        assert [spec.dtype for spec in found] == [spec.dtype for spec in wanted]
        for have, want in zip(found, wanted, strict=True):
            pairs = zip(have.shape, want.shape, strict=True)
            assert all(isinstance(n, str) or n == m for n, m in pairs), (have, want)
    workload = _bound(root, compiler, file, inputs=inputs, outputs=outputs)
    program = compiler.open_prebuilt(
        workload.artefact_path, workload, device, resolve_options(compiler, {})
    )
    try:
        arrays = list(plain.input_arrays("a").values())
        names = [spec.name for spec in workload.inputs]
        program.load(dict(zip(names, arrays, strict=True)))
        program.run()
        program.sync()
        found_arrays = list(program.outputs().values())
    finally:
        program.close()
    wanted_arrays = list(reference_arrays(root, batch=2).values())
    for value, wanted_value in zip(found_arrays, wanted_arrays, strict=True):
        assert observe.relative_error(value, wanted_value) < 1e-5


def _bound(
    root: Path,
    compiler: Compiler,
    file: Path,
    *,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
) -> Workload:
    plain = observe.open_workload(root, batch=2)
    place = root / "b2" / "artefact"
    place.mkdir()
    for path in file.parent.glob(f"{file.stem}.*"):
        shutil.copy(path, place)

    def concrete(specs: Sequence[TensorSpec], like: Sequence[TensorSpec]) -> list[object]:
        pairs = zip(specs, like, strict=True)
        return [TensorSpec(s.name, s.dtype, m.shape).to_json() for s, m in pairs]

    about = json.loads((root / "b2" / "batch.json").read_text())
    about["forms"] = [f"{ARTEFACT}{compiler.name}"]
    about["inputs"] = concrete(inputs, plain.inputs)
    about["outputs"] = concrete(outputs, plain.outputs)
    (root / "b2" / "batch.json").write_text(json.dumps(about))
    whole = json.loads((root / "workload.json").read_text())
    whole["model"]["path"] = str(file)
    (root / "workload.json").write_text(json.dumps(whole))
    return observe.open_workload(root, batch=2)
