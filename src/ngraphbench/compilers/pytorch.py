"""PyTorch: eager execution, the uncompiled baseline, and Inductor behind ``torch.compile``."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from ngraphbench.compilers.checks import (
    cause,
    check_inputs,
    check_open,
    check_ran,
    check_request,
    probe_vendor,
)
from ngraphbench.compilers.dynamo import captured_share, dynamo_counts
from ngraphbench.compilers.inference import INFERENCE, enter_in_this_thread
from ngraphbench.errors import CompileFailed, NGraphBenchError, RunFailed, Unavailable, Unsupported
from ngraphbench.models.modules import arrange_inputs, flatten_outputs
from ngraphbench.plugin import PRESET, Compiler, Program
from ngraphbench.types import (
    BFLOAT16,
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

__all__ = ["Eager", "Inductor"]

INSTALL = "pip install 'ngraphbench[torch]'"
PRECISIONS: Mapping[str, str] = {"fp32": "", "fp16": "float16", "bf16": "bfloat16"}

Call = Callable[..., Any]
Warm = TypeVar("Warm", bound="TorchProgram")


class TorchProgram(Program):
    """A module, compiled or not, with its inputs as resident tensors."""

    def __init__(self, call: Call, *, module: Any, workload: Workload) -> None:
        self._call: Call | None = call
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
                spec.name: _tensor(inputs[spec.name], spec=spec, cast=self._float)
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
        made = [TorchLane(call, module=self._module, workload=self._workload) for _ in range(count)]
        for lane in made:
            lane.mutates_inputs = self.mutates_inputs
        return list(made)

    def coverage(self) -> Json:
        return {"mutates_inputs": self.mutates_inputs}

    def warm(self, inputs: Arrays) -> None:
        """Run once, so that all is built, and see whether the module changes its inputs."""
        self.load(inputs)
        tensors = [*self._args, *self._kwargs.values()]
        pristine = [(t, t.clone(), t._version) for t in tensors]
        self.run()
        self.mutates_inputs = any(
            # A changed version also finds writes that left the values as they were.
            tensor._version != version or not _same(tensor, copy)
            for tensor, copy, version in pristine
        )
        self.load(inputs)


class TorchLane(TorchProgram):
    """A module's inputs and outputs for a thread of its own, in inference mode there too."""

    def __init__(self, call: Call, *, module: Any, workload: Workload) -> None:
        super().__init__(call, module=module, workload=workload)
        self._torch = importlib.import_module("torch")

    def run(self) -> None:
        enter_in_this_thread(self._torch)
        super().run()


class InductorProgram(TorchProgram):
    """A compiled module that can say how much of it Dynamo took in."""

    def __init__(self, call: Call, *, module: Any, workload: Workload) -> None:
        super().__init__(call, module=module, workload=workload)
        self._before = dynamo_counts()
        self._graphs = self._breaks = self._at_rest = 0
        self._share: float | None = None
        self._known = False

    def warm(self, inputs: Arrays) -> None:
        super().warm(inputs)
        seen = dynamo_counts()
        self._at_rest = seen["graphs"]
        self._graphs = seen["graphs"] - self._before["graphs"]
        # Dynamo does not count a break at a branch on data, only its second graph.
        self._breaks = max(seen["breaks"] - self._before["breaks"], self._graphs - 1, 0)

    def coverage(self) -> Json:
        recompiles = dynamo_counts()["graphs"] - self._at_rest
        if not self._known:
            self._share, self._known = self._captured(), True
        return super().coverage() | {
            "share": self._share,
            "unit": "flops",
            "graphs": self._graphs,
            "graph_breaks": self._breaks,
            "recompiles": recompiles,
            "fell_back_to_eager": self._graphs == 0,
        }

    def _captured(self) -> float | None:
        if not self._graphs or not self._breaks:
            return 1.0 if self._graphs else 0.0
        try:
            return captured_share(self._module, self._args, self._kwargs)
        except Exception:
            return None  # a module that cannot be counted has its breaks told all the same
        finally:
            self.run()
            self._at_rest = dynamo_counts()["graphs"]


class Eager(Compiler):
    """PyTorch as it is, without a compiler."""

    name: ClassVar[str] = "eager"
    accepts: ClassVar[tuple[str, ...]] = ("torch",)
    packages: ClassVar[tuple[str, ...]] = ("torch",)
    environment: ClassVar[str] = "torch"
    threads_env: ClassVar[tuple[str, ...]] = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

    def probe(self, device: Device) -> Support:
        return probe_vendor(self, device, look=_version, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> TorchProgram:
        module = _prepared_module(self, workload, device)
        program = TorchProgram(module, module=module, workload=workload)
        return _warmed(program, workload=workload, what="The module")


class Inductor(Compiler):
    """TorchInductor, the compiler behind ``torch.compile``."""

    name: ClassVar[str] = "inductor"
    accepts: ClassVar[tuple[str, ...]] = ("torch",)
    packages: ClassVar[tuple[str, ...]] = ("torch",)
    environment: ClassVar[str] = "torch"
    threads_env: ClassVar[tuple[str, ...]] = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    cache_env: ClassVar[tuple[str, ...]] = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option(
            name="mode",
            type="str",
            default="default",
            choices=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
            help="torch.compile's mode",
        ),
        Option(
            name="fullgraph",
            type="bool",
            default=False,
            help="refuse a model that needs more than one graph",
        ),
        Option(
            name="freezing",
            type="bool",
            default=False,
            presets={"recommended": True},
            help="make weights constants, as PyTorch's CPU inference guide advises",
        ),
    )

    def probe(self, device: Device) -> Support:
        def look() -> str:
            version = _version()
            if not _cxx():
                raise Unavailable(
                    "Inductor needs a C++ compiler.", hint="Install g++ or clang++, or set CXX."
                )
            return version

        return probe_vendor(self, device, look=look, install=INSTALL)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> InductorProgram:
        import torch

        module = _prepared_module(self, workload, device)
        inductor: Any = importlib.import_module("torch._inductor.config")
        # As many compiling processes as the program may use threads; see _stop_workers.
        if device.threads != VENDOR_DEFAULT:
            inductor.compile_threads = device.threads
        try:
            compiled = torch.compile(
                module,
                dynamic=False,
                fullgraph=bool(options.get("fullgraph", False)),
                mode=str(options.get("mode", "default")),
            )
            program = InductorProgram(compiled, module=module, workload=workload)
            with inductor.patch(freezing=bool(options.get("freezing", False))):
                return _warmed(program, workload=workload, what="Inductor")
        finally:
            _stop_workers()


def _warmed(program: Warm, *, workload: Workload, what: str) -> Warm:
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


def _prepared_module(compiler: Compiler, workload: Workload, device: Device) -> Any:
    import torch

    check_request(compiler, workload, device, precisions=PRECISIONS)
    dtype = _float_dtype(workload.precision)
    _set_threads(device.threads)
    # Leave float32 matrix products in float32, also where bf16 or TF32 would be faster.
    torch.set_float32_matmul_precision("highest")
    try:
        module = workload.module().eval()
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
    name = PRECISIONS[precision]
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


def _stop_workers() -> None:
    """End Inductor's compiling processes, which would idle beside the measurement."""
    importlib.import_module("torch._inductor.async_compile").shutdown_compile_workers()


def _cxx() -> str:
    wanted = (os.environ.get("CXX", ""), "g++", "clang++")
    return next((found for name in wanted if name and (found := shutil.which(name))), "")


def _version() -> str:
    return str(importlib.import_module("torch").__version__)
