"""A torch module as a program, compiled or not, on the CPU or on a CUDA device.

Shared by the compilers that take torch modules. CUDA: not yet run on hardware.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from ngraphbench.compilers.checks import (
    cause,
    check_inputs,
    check_open,
    check_ran,
    check_request,
)
from ngraphbench.compilers.inference import INFERENCE, enter_in_this_thread
from ngraphbench.errors import CompileFailed, NGraphBenchError, RunFailed, Unavailable, Unsupported
from ngraphbench.models.modules import arrange_inputs, flatten_outputs
from ngraphbench.plugin import Compiler, Program
from ngraphbench.types import BFLOAT16, VENDOR_DEFAULT, Array, Arrays, Device, Json, TensorSpec
from ngraphbench.workload import Workload

__all__ = [
    "ACCELERATORS",
    "CUDA",
    "Call",
    "TorchProgram",
    "check_build",
    "prepared_module",
    "torch_version",
    "warmed",
]

PRECISIONS: Mapping[str, str] = {"fp32": "", "fp16": "float16", "bf16": "bfloat16"}
TF32 = "tf32"
CUDA = "cuda"
ACCELERATORS: Mapping[str, str] = {"cpu": "cpu", CUDA: "cuda"}
"""What torch calls the devices."""

Call = Callable[..., Any]
Warm = TypeVar("Warm", bound="TorchProgram")


class TorchProgram(Program):
    """A module, compiled or not, with its inputs as resident tensors."""

    def __init__(
        self, call: Call, *, module: Any, workload: Workload, device: Device | None = None
    ) -> None:
        self._call: Call | None = call
        self._device = device or Device()
        self._place = ACCELERATORS[self._device.accelerator]
        self._module = module
        self._workload = workload
        self._specs = workload.inputs
        self._outputs = {spec.name: spec for spec in workload.outputs}
        self._float = _float_dtype(workload.precision)
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._pairs: list[tuple[Any, Any]] = []
        self._result: Any = None
        self.mutates_inputs = False
        INFERENCE.enter()

    def load(self, inputs: Arrays) -> None:
        check_open(self._call, name="torch")
        check_inputs(self._specs, inputs)
        with importlib.import_module("torch").inference_mode(False):
            # Made in inference mode they would not count writes, which ``warm`` looks for.
            tensors = {
                spec.name: _tensor(inputs[spec.name], spec=spec, cast=self._float).to(self._place)
                for spec in self._specs
            }
        self._args, self._kwargs = arrange_inputs(self._module, tensors)
        self._pairs = []
        if self.mutates_inputs:
            self._pairs = [(tensor, tensor.clone()) for tensor in tensors.values()]
        self._result = None

    def run(self) -> None:
        call = self._call
        if call is None:
            check_open(None, name="torch")
            return
        try:
            for tensor, pristine in self._pairs:
                tensor.copy_(pristine)
            self._result = call(*self._args, **self._kwargs)
        except Exception as error:
            raise RunFailed(f"The module raised {cause(error)}", reason="run") from error

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The loaded inputs as the module is called with them."""
        return self._args, self._kwargs

    def replace(self, call: Call) -> None:
        """Run ``call`` from now on, which was made of the module for these inputs."""
        self._call = call

    def sync(self) -> None:
        if self._device.accelerator == CUDA:
            importlib.import_module("torch").cuda.synchronize()

    def outputs(self) -> Arrays:
        check_open(self._call, name="torch")
        check_ran(self._result)
        return {
            name: _array(tensor, spec=self._outputs.get(name))
            for name, tensor in flatten_outputs(self._result)
        }

    def close(self) -> None:
        if self._call is not None:
            INFERENCE.leave()
        self._call = self._module = self._result = None
        self._args, self._kwargs, self._pairs = (), {}, []

    lanes_note: ClassVar[str] = (
        "threads of one interpreter: its lock is held between operators, and each has its own"
        " pool of threads"
    )

    def lanes(self, count: int) -> list[Program]:
        """Return ``count`` programs over the one module, for a Python thread each."""
        call = self._call
        if call is None:
            check_open(None, name="torch")
            return []
        made = [
            TorchLane(call, module=self._module, workload=self._workload, device=self._device)
            for _ in range(count)
        ]
        for lane in made:
            lane.mutates_inputs = self.mutates_inputs
        return list(made)

    def coverage(self) -> Json:
        return {"mutates_inputs": self.mutates_inputs}

    def device_memory_bytes(self) -> int:
        """Return the most that torch has held on the device, 0 for the CPU."""
        if self._device.accelerator != CUDA:
            return 0
        return int(importlib.import_module("torch").cuda.max_memory_reserved())

    def warm(self, inputs: Arrays) -> None:
        """Run once, so that all is built, and see whether the module changes its inputs."""
        self.load(inputs)
        tensors = [*self._args, *self._kwargs.values()]
        pristine = [(t, t.clone(), t._version) for t in tensors]
        self.run()
        self.sync()
        self.mutates_inputs = any(
            # A changed version also finds writes that left the values as they were.
            tensor._version != version or not _same(tensor, copy)
            for tensor, copy, version in pristine
        )
        self.load(inputs)


class TorchLane(TorchProgram):
    """A module's inputs and outputs for a thread of its own, in inference mode there too."""

    def __init__(
        self, call: Call, *, module: Any, workload: Workload, device: Device | None = None
    ) -> None:
        super().__init__(call, module=module, workload=workload, device=device)
        self._torch = importlib.import_module("torch")

    def run(self) -> None:
        enter_in_this_thread(self._torch)
        super().run()


def warmed(program: Warm, *, workload: Workload, what: str) -> Warm:
    try:
        program.warm(workload.input_arrays("a"))
    except RunFailed as error:
        program.close()
        origin = error.__cause__ or error
        if type(origin).__module__.startswith("torch._dynamo.exc") and (
            type(origin).__name__ == "Unsupported"
        ):
            raise Unsupported(
                f"{what} cannot take the model as one graph: {cause(origin)}",
                reason="operator",
                hint="Without fullgraph it may still run in parts.",
            ) from error
        raise CompileFailed(f"{what} failed: {cause(origin)}", reason="compile") from error
    return program


def check_build(device: Device) -> None:
    """Return None if this torch can compute on the device, else raise Unavailable with the cure."""
    if device.accelerator != CUDA:
        return
    torch: Any = importlib.import_module("torch")
    if not torch.backends.cuda.is_built():
        raise Unavailable(
            f"This torch ({torch.__version__}) is a build for the CPU alone.",
            reason="cpu-only",
            hint="Install a build with CUDA, or name an interpreter that has one:"
            " NAME@/path/to/python (on a Jetson, the system's).",
        )
    if not torch.cuda.is_available():
        raise Unavailable(
            "torch finds no CUDA device here.",
            reason="no-device",
            hint="Look at nvidia-smi: is there a driver, and one new enough for CUDA"
            f" {torch.version.cuda}?",
        )


def prepared_module(compiler: Compiler, workload: Workload, device: Device) -> Any:
    """Return the workload's module in eval mode, in its precision, on its device.

    Raises Unsupported for what ``compiler`` does not do, and CompileFailed.
    """
    on_cuda = (TF32,) if device.accelerator == CUDA else ()
    check_request(
        compiler,
        workload,
        device,
        precisions=(*PRECISIONS, *on_cuda),
    )
    dtype = _float_dtype(workload.precision)
    _set_threads(device.threads)
    _set_products(workload.precision, device)
    try:
        module = workload.module().eval().to(ACCELERATORS[device.accelerator])
        return module.to(dtype) if dtype is not None else module
    except NGraphBenchError:
        raise
    except Exception as error:
        raise CompileFailed(f"The module was not built: {cause(error)}", reason="model") from error


def _set_threads(threads: int) -> None:
    if threads == VENDOR_DEFAULT:
        return
    import torch

    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:
        try:
            torch.set_num_interop_threads(1)
        except RuntimeError:
            # Torch takes this only before its first parallel work. A worker's process is
            # fresh; elsewhere the pool stays idle, since nothing here forks tasks.
            return


def _float_dtype(precision: str) -> Any:
    """Return the dtype that floating weights and inputs are cast to; None leaves them."""
    name = PRECISIONS.get(precision, "")
    return getattr(importlib.import_module("torch"), name) if name else None


def _tensor(array: Array, *, spec: TensorSpec, cast: Any) -> Any:
    import torch

    try:
        tensor = torch.from_numpy(np.array(array, copy=True, order="C"))
    except TypeError as error:
        raise Unsupported(
            f"torch has no tensor of {array.dtype} (input {spec.name!r}).", reason="dtype"
        ) from error
    if spec.dtype == BFLOAT16:
        tensor = tensor.view(torch.bfloat16)
    return tensor.to(cast) if cast is not None and tensor.is_floating_point() else tensor


def _array(tensor: Any, *, spec: TensorSpec | None) -> Array:
    """Return an owned array; bfloat16 as bits where the spec says so, else widened."""
    import torch

    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    declared = spec.dtype if spec is not None else str(tensor.dtype).removeprefix("torch.")
    if tensor.dtype in (torch.bfloat16, torch.float16) and declared == "float32":
        tensor = tensor.to(torch.float32)
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.contiguous().view(torch.uint16)
    return np.array(tensor.numpy(), copy=True, order="C")


def _same(left: Any, right: Any) -> bool:
    import torch

    if left.shape != right.shape:
        return False
    equal_nan = left.is_floating_point() or left.is_complex()
    return bool(torch.allclose(left, right, rtol=0, atol=0, equal_nan=equal_nan))


def _set_products(precision: str, device: Device) -> None:
    """Let float32 products be made of TF32 where that was asked for, and nowhere else."""
    torch: Any = importlib.import_module("torch")
    torch.set_float32_matmul_precision("high" if precision == TF32 else "highest")
    if device.accelerator == CUDA:
        # Left alone, convolutions take TF32.
        torch.backends.cudnn.allow_tf32 = precision == TF32


def torch_version() -> str:
    """Return torch's own version, with the build behind the plus sign."""
    return str(importlib.import_module("torch").__version__)
