"""ncnn: pnnx turns an ONNX file into ncnn's two files, and ncnn's CPU layers run them."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ngraphbench.compilers.checks import (
    check_inputs,
    check_open,
    check_ran,
    check_request,
    probe_vendor,
    ran_once,
)
from ngraphbench.compilers.converter import ConvertedFiles, run_converter, told
from ngraphbench.errors import CompileFailed, RunFailed, Unsupported
from ngraphbench.plugin import PRESET, Compiler, Program
from ngraphbench.types import (
    VENDOR_DEFAULT,
    Array,
    Arrays,
    Device,
    Json,
    Option,
    OptionValue,
    Support,
    TensorSpec,
)
from ngraphbench.workload import Workload

__all__ = ["Ncnn"]

INSTALL = "pip install ncnn pnnx (pnnx without its dependencies will do), or ngb env create ncnn"

GRAPH, WEIGHTS, LAYOUT = "model.param", "model.bin", "layout.json"
SCRIPT = "model_ncnn.py"
INTEGERS = ("int32", "int64")
NO_BATCH = 233
RANK_MAX = 4

# Everything that makes ncnn compute or store in 16 bits, all but the last on by default.
HALF = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage")
PRECISIONS: Mapping[str, Mapping[str, bool]] = {"fp32": {}, "bf16": {"use_bf16_storage": True}}

# What pnnx says of each blob in the script it writes: the axis that ncnn keeps as its batch.
_INPUT = re.compile(r'ex\.input\("in(\d+)", ncnn\.Mat\(in\1\.numpy\(\), batch_index=(\d+)\)')
_OUTPUT = re.compile(r"out\.append\(torch\.from_numpy\(out(\d+)\.numpy\(batch_index=(\d+)\)\)\)")


@dataclass(frozen=True, slots=True)
class Layout:
    """The batch axis of each input and output in order; 233 is ncnn's word for none."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class NcnnProgram(Program):
    """A net; each run is an extractor of its own, which is how ncnn forgets what it computed."""

    def __init__(
        self, net: Any, *, layout: Layout, workload: Workload, files: ConvertedFiles
    ) -> None:
        self._net = net
        self._layout = layout
        self._specs = workload.inputs
        self._outputs = workload.outputs
        self._files = files
        self._inputs: list[tuple[str, Any]] = []
        self._results: list[Any] = []

    def load(self, inputs: Arrays) -> None:
        check_open(self._net, name="ncnn")
        check_inputs(self._specs, inputs)
        axes = self._layout.inputs
        self._inputs = [
            (f"in{i}", _mat(inputs[spec.name], spec=spec, axis=axis))
            for i, (spec, axis) in enumerate(zip(self._specs, axes, strict=True))
        ]
        self._results = []

    def run(self) -> None:
        if self._net is None:
            check_open(None, name="ncnn")
        extractor = self._net.create_extractor()
        for name, mat in self._inputs:
            extractor.input(name, mat)
        results = []
        for i in range(len(self._outputs)):
            code, mat = extractor.extract(f"out{i}")
            if code:
                raise RunFailed(f"ncnn: extracting out{i} gave code {code}.", reason="run")
            results.append(mat)
        self._results = results

    def outputs(self) -> Arrays:
        check_open(self._net, name="ncnn")
        check_ran(self._results or None)
        arrays: Arrays = {}
        axes = self._layout.outputs
        for spec, mat, axis in zip(self._outputs, self._results, axes, strict=True):
            array = np.array(mat.numpy(batch_index=axis), copy=True, order="C")
            if array.shape != spec.shape or array.dtype != np.float32:
                raise RunFailed(
                    f"ncnn gave {spec.name!r} as {array.dtype} {list(array.shape)},"
                    f" not float32 {list(spec.shape)}.",
                    reason="shape",
                )
            arrays[spec.name] = array
        return arrays

    def close(self) -> None:
        # Mats of the net's own allocator must go before the net does.
        self._inputs, self._results = [], []
        self._net = None
        self._files.remove()

    def save(self, folder: Path) -> None:
        check_open(self._net, name="ncnn")
        self._files.write(folder)

    def coverage(self) -> Json:
        """Return the layers by type. ncnn runs a graph whole or not at all."""
        check_open(self._net, name="ncnn")
        layers = Counter(str(layer.type) for layer in self._net.layers())
        return {
            "share": 1.0,
            "unit": "nodes",
            "parts": {"ncnn": sum(layers.values())},
            "layers": dict(sorted(layers.items())),
            "notes": [],
        }


class Ncnn(Compiler):
    """ncnn on the CPU, over pnnx."""

    name: ClassVar[str] = "ncnn"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    packages: ClassVar[tuple[str, ...]] = ("ncnn", "pnnx")
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="winograd",
            type="bool",
            default=True,
            help="let 3x3 convolutions use Winograd's algorithm",
        ),
        Option(
            name="sgemm",
            type="bool",
            default=True,
            help="let convolutions become matrix products",
        ),
        Option(
            name="packing",
            type="bool",
            default=True,
            help="keep channels interleaved, as the vector units like them",
        ),
    )

    def probe(self, device: Device) -> Support:
        return probe_vendor(self, device, look=_version, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> NcnnProgram:
        check_request(self, workload, device, precisions=PRECISIONS)
        _check_dtypes(workload)
        files = ConvertedFiles(GRAPH, WEIGHTS, LAYOUT, prefix="ncnn-")
        try:
            _convert(workload, files.folder)
            return _program(files, workload, device=device, options=options)
        except BaseException:
            files.remove()
            raise

    def load_artifact(
        self,
        folder: Path,
        workload: Workload,
        device: Device,
        options: Mapping[str, OptionValue],
    ) -> NcnnProgram:
        files = ConvertedFiles(GRAPH, WEIGHTS, LAYOUT, prefix="ncnn-")
        files.read(folder)
        return _program(files, workload, device=device, options=options)


def _version() -> str:
    importlib.import_module("ncnn")
    _pnnx()
    return ""


def _check_dtypes(workload: Workload) -> None:
    for spec in workload.inputs:
        if spec.dtype != "float32" and spec.dtype not in INTEGERS:
            raise Unsupported(
                f"ncnn takes float32 and int32, not {spec.dtype} (input {spec.name!r}).",
                reason="dtype",
            )
    for spec in workload.outputs:
        if spec.dtype != "float32":
            # Its matrices do not say whether four bytes are a float or an integer.
            raise Unsupported(
                f"ncnn gives float32 only, not {spec.dtype} (output {spec.name!r}).",
                reason="dtype",
            )


def _pnnx() -> str:
    """Return the path of pnnx, which lies beside its Python package; that one imports torch."""
    spec = importlib.util.find_spec("pnnx")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for path in (Path(place) / "pnnx", Path(place) / "bin" / "pnnx"):
            if path.is_file():
                return str(path)
    raise ModuleNotFoundError("There is no pnnx, which makes ncnn's files of an ONNX file.")


def _convert(workload: Workload, folder: Path) -> None:
    # It writes beside the file it reads, and finds weights by that file's name.
    for path in workload.onnx_path.parent.glob(f"{workload.onnx_path.name}*"):
        (folder / path.name).symlink_to(path.resolve())
    files = (f"ncnnparam={GRAPH}", f"ncnnbin={WEIGHTS}", f"ncnnpy={SCRIPT}")
    command = [_pnnx(), workload.onnx_path.name, *files, "fp16=0"]
    text = run_converter(command, folder=folder, name="pnnx")
    if "no external data" in text:
        # It writes nonsense for weights then, and ends well.
        raise Unsupported(
            f"pnnx finds weights in {workload.onnx_path.name}.data only, in one file.",
            reason="external-data",
        )
    graph = folder / GRAPH
    if not graph.is_file() or not (folder / SCRIPT).is_file():
        raise CompileFailed(f"pnnx wrote no graph: {told(text)}", reason="converter")
    _check_layers(graph.read_text())
    _check_integers(graph.read_text(), workload.inputs)
    layout = _layout((folder / SCRIPT).read_text(), workload)
    (folder / LAYOUT).write_text(json.dumps(layout))


def _check_layers(graph: str) -> None:
    """Return None if pnnx lowered every operator, else raise Unsupported naming them."""
    import ncnn

    # What it could not lower keeps its name of PyTorch or ONNX, such as torch.where.
    types = {line.split()[0] for line in graph.splitlines()[2:] if line.strip()}
    if foreign := sorted(name for name in types if ncnn.layer_to_index(name) < 0):
        raise Unsupported(f"ncnn has no layer for {', '.join(foreign)}.", reason="operator")


def _check_integers(graph: str, inputs: Sequence[TensorSpec]) -> None:
    """Return None if only layers that look rows up read the integer inputs, else Unsupported.

    Any other layer would take the integers' bits for floats, and say nothing.
    """
    readers: dict[str, list[tuple[str, list[str]]]] = {}
    for line in graph.splitlines()[2:]:
        kind, _, bottoms, tops, *rest = line.split()
        blobs = rest[: int(bottoms) + int(tops)]
        for blob in blobs[: int(bottoms)]:
            readers.setdefault(blob, []).append((kind, blobs[int(bottoms) :]))
    for i, spec in enumerate(inputs):
        waiting = [f"in{i}"] if spec.dtype in INTEGERS else []
        while waiting:
            for kind, tops_of in readers.get(waiting.pop(), []):
                if kind == "Split":
                    waiting += tops_of
                elif kind != "Embed":
                    raise Unsupported(
                        f"ncnn's {kind} reads floats, and input {spec.name!r} is {spec.dtype}.",
                        reason="dtype",
                    )


def _layout(script: str, workload: Workload) -> Json:
    """Return which axis of each input and output is ncnn's batch, as pnnx's own script has it."""
    found = {
        key: [int(axis) for _, axis in sorted(pattern.findall(script), key=lambda f: int(f[0]))]
        for key, pattern in (("inputs", _INPUT), ("outputs", _OUTPUT))
    }
    wanted = {"inputs": len(workload.inputs), "outputs": len(workload.outputs)}
    if {key: len(axes) for key, axes in found.items()} != wanted:
        raise Unsupported(
            f"pnnx's script tells of {len(found['inputs'])} inputs and {len(found['outputs'])}"
            f" outputs; the model has {wanted['inputs']} and {wanted['outputs']}.",
            reason="layout",
        )
    specs = (*workload.inputs, *workload.outputs)
    for spec, axis in zip(specs, (*found["inputs"], *found["outputs"]), strict=True):
        rank = len(spec.shape) - (axis != NO_BATCH)
        if not 1 <= rank <= RANK_MAX:
            raise Unsupported(
                f"{spec.name!r} has {rank} dims besides the batch; ncnn has 1 to {RANK_MAX}.",
                reason="rank",
            )
    return dict(found)


def _program(
    files: ConvertedFiles,
    workload: Workload,
    *,
    device: Device,
    options: Mapping[str, OptionValue],
) -> NcnnProgram:
    folder = files.folder
    net = _net(folder, precision=workload.precision, device=device, options=options)
    found = json.loads((folder / LAYOUT).read_text())
    layout = Layout(inputs=tuple(found["inputs"]), outputs=tuple(found["outputs"]))
    # A layer says only when it runs that it cannot.
    return ran_once(NcnnProgram(net, layout=layout, workload=workload, files=files), workload)


def _net(
    folder: Path, *, precision: str, device: Device, options: Mapping[str, OptionValue]
) -> Any:
    import ncnn

    net = ncnn.Net()
    settings = {
        "use_vulkan_compute": False,
        "use_winograd_convolution": bool(options.get("winograd", True)),
        "use_sgemm_convolution": bool(options.get("sgemm", True)),
        "use_packing_layout": bool(options.get("packing", True)),
        **dict.fromkeys(HALF, False),
        **PRECISIONS[precision],
    }
    for name, value in settings.items():
        # Not every build has every switch.
        if hasattr(net.opt, name):
            setattr(net.opt, name, value)
    if device.threads != VENDOR_DEFAULT:
        net.opt.num_threads = device.threads
    for load, name in ((net.load_param, GRAPH), (net.load_model, WEIGHTS)):
        if code := load(str(folder / name)):
            raise CompileFailed(f"ncnn could not load {name}: code {code}.", reason="load-model")
    return net


def _mat(array: Array, *, spec: TensorSpec, axis: int) -> Any:
    """Return ncnn's own copy of the array; integers become the int32 that its layers read."""
    import ncnn

    value = np.ascontiguousarray(array)
    if spec.dtype in INTEGERS:
        value = value.astype(np.int32)
        if not np.array_equal(value, array):
            raise RunFailed(
                f"Input {spec.name!r} holds values beyond int32, which is all ncnn has.",
                reason="dtype",
            )
    return ncnn.Mat(value, batch_index=axis).clone()
