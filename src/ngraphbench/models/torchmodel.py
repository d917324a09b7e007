"""A torch model in the exporter: its weights, its inputs, eager runs and the ONNX export."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngraphbench.errors import CompileFailed, NGraphBenchError, Unsupported, first_line
from ngraphbench.models.configinputs import declared_inputs
from ngraphbench.models.double import nudged_values
from ngraphbench.models.inputs import BATCH, Declared, InputPlan, plan_inputs
from ngraphbench.models.modules import (
    arrange_inputs,
    check_names,
    create_module,
    flatten_inputs,
    flatten_outputs,
)
from ngraphbench.models.portable import export_program, flat_module, run_program
from ngraphbench.models.reference import Outputs, Runner
from ngraphbench.models.zeroweights import fill_zero_weights
from ngraphbench.types import BFLOAT16, Array, Arrays, Json, TensorSpec

__all__ = ["TorchModel"]

FP64_PARAMETERS_MAX = 500_000_000
EMBEDDED_BYTES_MAX = 256 * 1024**2
_LIBRARIES = ("timm", "torchvision", "transformers")


class TorchModel:
    """The module of a model reference, on the CPU, with its inputs."""

    def __init__(self, model: Json) -> None:
        self.model = model
        self.module, self.examples = create_module(model, pretrained=_has_weights(model))
        if model.get("checkpoint"):
            _load_checkpoint(self.module, Path(model["checkpoint"]))
        self.notes: tuple[str, ...] = ()
        if model["kind"] in _LIBRARIES and model.get("weights") == "random":
            self.notes = fill_zero_weights(self.module, seed=int(model.get("seed", 0)))

    @property
    def weights(self) -> str:
        """What the weights are, as records say it."""
        wish = str(self.model.get("weights", "random"))
        if wish == "checkpoint":
            return f"checkpoint {Path(self.model['checkpoint'] or self.model['path']).name}"
        return (
            wish if wish in ("pretrained", "file") else f"random(seed {self.model.get('seed', 0)})"
        )

    def save_weights(self, path: Path) -> None:
        """Write the state_dict to ``path``, whole or not at all."""
        import torch

        partial = path.with_name(path.name + ".part")
        torch.save(self.module.state_dict(), partial)
        partial.replace(path)

    def weight_arrays(self) -> Iterator[tuple[Array, str]]:
        """Yield the value and dtype of each parameter and buffer."""
        for tensor in self.module.state_dict().values():
            if hasattr(tensor, "is_floating_point") and tensor.is_floating_point():
                yield to_array(tensor), _dtype(tensor)

    def plan(self, overrides: Mapping[str, Any]) -> InputPlan:
        """Return the input plan; raises Unsupported (``input``) when nothing says the inputs."""
        declared = self._declared()
        if declared is None:
            if not overrides:
                names = [name for name, _ in self._named((_nothing(),))]
                raise Unsupported(
                    f"Nothing says which inputs {self.model['source']} takes.",
                    reason="input",
                    hint="Let the factory return (module, example_inputs), example_inputs(batch)"
                    " giving a tuple of tensors, or give --input"
                    f" {names[0]}=batchx3x224x224:float32.",
                )
            check_names(self.module, list(overrides))
            declared = [Declared(n, "float32", None, strict=False) for n in overrides]
        return plan_inputs(declared, overrides)

    def example_arrays(self, batch: int, *, seed: int) -> Arrays:
        """Return the factory's own example inputs for ``batch`` as arrays; empty without."""
        if self.examples is None:
            return {}
        return {name: to_array(tensor) for name, tensor in self._examples(batch, seed=seed)}

    def run(self, inputs: Arrays, specs: Sequence[TensorSpec]) -> Outputs:
        """Return the outputs of the uncompiled module. Raises CompileFailed (``reference``)."""
        tensors = {spec.name: to_tensor(inputs[spec.name], spec.dtype) for spec in specs}
        try:
            return _outputs(_call(self.module, tensors))
        except NGraphBenchError:
            raise
        except Exception as error:
            raise CompileFailed(
                f"The model fails on its inputs: {type(error).__name__}: {first_line(error)}",
                reason="reference",
                hint="Give fitting inputs with --input or --inputs.",
            ) from error

    def exact(self, specs: Sequence[TensorSpec], *, nudged: bool = False) -> Runner:
        """Return a runner of a copy of the module in fp64.

        ``nudged`` moves weights and inputs by half a unit in the last place of float32.
        """
        import torch

        parameters = sum(p.numel() for p in self.module.parameters())
        if parameters > FP64_PARAMETERS_MAX:
            raise CompileFailed(f"{parameters} parameters are too many for a copy in fp64.")
        module = copy.deepcopy(self.module).double()
        if nudged:
            random = np.random.default_rng(0)
            with torch.no_grad():
                for parameter in module.parameters():
                    if parameter.is_floating_point():
                        moved = nudged_values(parameter.numpy(), random)
                        parameter.copy_(torch.from_numpy(moved))

        def run(inputs: Arrays) -> Outputs:
            tensors = {spec.name: to_tensor(inputs[spec.name], spec.dtype) for spec in specs}
            random = np.random.default_rng(1)
            for name, value in tensors.items():
                if value.is_floating_point():
                    array = value.to(torch.float64).numpy()
                    array = nudged_values(array, random) if nudged else array
                    tensors[name] = torch.from_numpy(array)
            return _outputs(_call(module, tensors))

        return run

    @property
    def quantised(self) -> bool:
        """Whether the module computes with integers that stand for real numbers."""
        return any(".quantized" in type(m).__module__ for m in self.module.modules())

    def state(self) -> dict[str, Any]:
        """Return a copy of every buffer by name, and how often each parameter was written.

        Parameters made in inference mode count no writes, so they are copied too.
        """
        found = {name: to_array(value) for name, value in self.module.named_buffers()}
        for name, value in self.module.named_parameters():
            # Copies of all parameters could be gigabytes; a write is counted by the tensor.
            found[name] = to_array(value) if value.is_inference() else value._version
        return found

    def changed_since(self, before: Mapping[str, Any]) -> str:
        """Return the name of a tensor in the module that differs from ``before``, if any."""
        for name, value in self.state().items():
            if isinstance(value, int):
                if value != before.get(name):
                    return name
            elif name not in before or value.tobytes() != before[name].tobytes():
                return name
        return ""

    def _declared(self) -> list[Declared] | None:
        if self.examples is not None:
            two, three = self._examples(2, seed=0), self._examples(3, seed=0)
            if [name for name, _ in two] != [name for name, _ in three]:
                raise Unsupported(
                    "example_inputs gives other inputs for batch 3 than for batch 2.",
                    reason="input",
                )
            return [
                _from_examples(name, one, other)
                for (name, one), (_, other) in zip(two, three, strict=True)
            ]
        if self.model["kind"] == "transformers":
            return declared_inputs(self.module)
        size = _image_size(self.model, self.module)
        if size is None:
            return None
        name = self._named((_nothing(),))[0][0]
        dtype = next((_dtype(p) for p in self.module.parameters() if p.is_floating_point()), "")
        return [Declared(name, dtype or "float32", (BATCH, *size), strict=False)]

    def _examples(self, batch: int, *, seed: int) -> list[tuple[str, Any]]:
        import torch

        assert self.examples is not None
        torch.manual_seed(seed)
        try:
            found = self.examples(batch)
        except Exception as error:
            raise CompileFailed(
                f"example_inputs({batch}) failed: {type(error).__name__}: {first_line(error)}",
                reason="input",
                hint="It takes a batch size and returns a tuple of tensors.",
            ) from error
        return self._named(found)

    def _named(self, found: Any) -> list[tuple[str, Any]]:
        return flatten_inputs(self.module, found)

    def export(
        self, inputs: Arrays, specs: Sequence[TensorSpec], *, path: Path, axes: Mapping[str, int]
    ) -> None:
        """Write the module as ONNX to ``path``, with the dims in ``axes`` dynamic.

        ``axes`` maps input names to their batch axis; empty for a static export. Raises
        CompileFailed (``export``) with the exporter's reason in one line.
        """
        import torch

        tensors = [to_tensor(inputs[spec.name], spec.dtype) for spec in specs]
        names = [spec.name for spec in specs]
        flat, outputs = flat_module(self.module, dict(zip(names, tensors, strict=True)))
        batch = torch.export.Dim("batch")
        dynamic = tuple({axes[name]: batch} if name in axes else None for name in names)
        try:
            program = torch.onnx.export(
                flat,
                tuple(tensor.clone() for tensor in tensors),
                None,
                dynamo=True,
                dynamic_shapes=(dynamic,) if axes else None,
                input_names=names,
                output_names=outputs,
                verbose=False,
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            size = sum(p.numel() * p.element_size() for p in self.module.state_dict().values())
            program.save(str(path), external_data=size > EMBEDDED_BYTES_MAX)
        except Exception as error:
            raise CompileFailed(
                f"torch.onnx (dynamo): {_root_cause(error)}", reason="export"
            ) from error

    def export_portable(self, inputs: Arrays, specs: Sequence[TensorSpec], *, path: Path) -> None:
        """Write the module with its weights as a ``torch.export`` program of fixed shapes.

        It takes the inputs by position and returns the outputs as one tuple, both in the
        order of the workload. Raises CompileFailed (``export``).
        """
        tensors = {spec.name: to_tensor(inputs[spec.name], spec.dtype) for spec in specs}
        try:
            export_program(self.module, tensors, path=path)
        except Exception as error:
            raise CompileFailed(f"torch.export: {_root_cause(error)}", reason="export") from error

    def run_portable(
        self, path: Path, inputs: Arrays, specs: Sequence[TensorSpec], *, names: Sequence[str]
    ) -> Outputs:
        """Return the outputs of the program in ``path``, named by ``names`` in their order.

        Raises CompileFailed (``export``) when it fails or gives another number of them.
        """
        tensors = [to_tensor(inputs[spec.name], spec.dtype) for spec in specs]
        try:
            found = dict(zip(names, run_program(path, tensors), strict=True))
        except Exception as error:
            raise CompileFailed(f"torch.export: {_root_cause(error)}", reason="export") from error
        return Outputs(
            arrays={name: to_array(tensor) for name, tensor in found.items()},
            dtypes={name: _dtype(tensor) for name, tensor in found.items()},
        )


def _has_weights(model: Json) -> bool:
    """Return whether the module comes with weights of its own, from a library or a folder."""
    in_folder = model["kind"] == "transformers" and not model.get("checkpoint")
    return model.get("weights") in (("pretrained", "checkpoint") if in_folder else ("pretrained",))


def _from_examples(name: str, two: Any, three: Any) -> Declared:
    """Return the declared input whose dims that follow the batch size are named so."""
    dims: list[int | str] = []
    if two.ndim == three.ndim:
        for have, then in zip(two.shape, three.shape, strict=True):
            dims.append(BATCH if (have, then) == (2, 3) else int(have))
            if have != then and dims[-1] != BATCH:
                break
        else:
            return Declared(name, _dtype(two), tuple(dims), generator="file", strict=False)
    raise Unsupported(
        f"Input {name!r} is {tuple(two.shape)} at batch 2 and {tuple(three.shape)} at batch 3;"
        " only dims equal to the batch size may vary.",
        reason="input",
    )


def _image_size(model: Json, module: Any) -> tuple[int, ...] | None:
    """Return channels, height and width of a library model's images."""
    if model["kind"] == "timm":
        config = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", {})
        size = list(config.get("input_size", (3, 224, 224)))
        given = model.get("args", {})
        wanted = given.get("img_size", size[1:])
        height, width = wanted if isinstance(wanted, (list, tuple)) else (wanted, wanted)
        return (int(given.get("in_chans", size[0])), int(height), int(width))
    if model["kind"] == "block":
        side = int(model["args"]["resolution"])
        return (3, side, side)
    if model["kind"] == "torchvision":
        default = 299 if "inception_v3" in str(model["source"]) else 224
        side = int(model.get("args", {}).get("image_size", default))
        if ".video." in type(module).__module__:
            return (3, 16, side, side)
        return (3, side, side)
    return None


def _load_checkpoint(module: Any, path: Path) -> None:
    import torch

    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(str(path))
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        for key in ("state_dict", "model_state_dict", "model", "module"):
            if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
                state = state[key]
        module.load_state_dict({k.removeprefix("module."): v for k, v in state.items()})
    except Exception as error:
        raise CompileFailed(
            f"The checkpoint {path.name} does not fit the model: {first_line(error)}",
            reason="checkpoint",
            hint="It must hold a state_dict of this very model (.pt or .safetensors).",
        ) from error


def _call(module: Any, tensors: Mapping[str, Any]) -> Any:
    import torch

    args, kwargs = arrange_inputs(module, {k: v.clone() for k, v in tensors.items()})
    with torch.no_grad():
        return module(*args, **kwargs)


def _outputs(result: Any) -> Outputs:
    found = flatten_outputs(result)
    return Outputs(
        arrays={name: to_array(tensor) for name, tensor in found},
        dtypes={name: _dtype(tensor) for name, tensor in found},
    )


def _nothing() -> Any:
    import torch

    return torch.empty(0)


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def to_tensor(array: Array, dtype: str) -> Any:
    """Return a tensor with a copy of ``array``, whose uint16 are bfloat16 bits if so said."""
    import torch

    owned = np.array(array, order="C", copy=True)
    if dtype == BFLOAT16:
        return torch.from_numpy(owned.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(owned)


def to_array(tensor: Any) -> Array:
    """Return a copy of ``tensor`` as an array; bfloat16 as uint16 bits."""
    import torch

    dense = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    owned = dense.cpu().resolve_conj().resolve_neg().contiguous()
    if owned.dtype == torch.bfloat16:
        return np.array(owned.view(torch.int16).numpy().view(np.uint16), copy=True)
    return np.array(owned.numpy(), copy=True)


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {first_line(error)}"
