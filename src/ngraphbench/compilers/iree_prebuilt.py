"""IREE modules that were compiled elsewhere: which function runs, and what it takes and gives."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraphbench.compilers.checks import cause
from ngraphbench.errors import CompileFailed, Unsupported
from ngraphbench.types import TensorSpec, storage_dtype

__all__ = ["entry_of", "signature_of"]

DECLARATION = "iree.abi.declaration"
DTYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i1": "bool"}
DTYPES |= {f"{sign}{bits}": f"int{bits}" for sign in ("i", "si") for bits in (8, 16, 32, 64)}
DTYPES |= {f"ui{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)}
_TENSOR = re.compile(r"%(\w+)[^:]*: tensor<((?:[0-9?]+x)*)(\w+)>")

Signature = tuple[Sequence[TensorSpec], Sequence[TensorSpec]]


def entry_of(code: bytes) -> str:
    """Return the name of the module's one function that is to be called. Raises CompileFailed."""
    runtime: Any = importlib.import_module("iree.runtime")
    try:
        module = runtime.VmModule.copy_buffer(runtime.VmInstance(), code)
        names = [str(name) for name in module.function_names]
    except Exception as error:
        raise CompileFailed(f"iree: {cause(error)}", reason="load-program") from error
    found = [name for name in names if not name.startswith("__") and not name.endswith("$async")]
    if len(found) != 1:
        raise Unsupported(
            f"The module has the functions {', '.join(found) or 'none'}; one is needed.",
            reason="interface",
        )
    return found[0]


def signature_of(module: Any, given: Sequence[TensorSpec]) -> Signature:
    """Return what the module's function takes and gives, by its declaration where it has one.

    Else it is called once, on zeros of the shapes ``given``. Raises Unsupported.
    """
    declared = dict(module.function.reflection).get(DECLARATION, "")
    takes, _, gives = declared.partition("->")
    if inputs := _tensors(takes):
        return inputs, _tensors(gives)
    if not given:
        raise Unsupported(
            "The module does not tell what it takes: those made from ONNX files never do.",
            reason="input",
            hint="Give --input NAME=2x3x224x224:float32 for each input, in order, or name its"
            " source: FILE.vmfb?reference=MODEL.onnx.",
        )
    return given, _seen(module, given)


def _tensors(text: str) -> list[TensorSpec]:
    return [
        TensorSpec(
            name,
            DTYPES[dtype],
            tuple(
                int(dim) if dim.isdecimal() else f"?{name}.{axis}"
                for axis, dim in enumerate(dims.split("x")[:-1])
            ),
        )
        for name, dims, dtype in _TENSOR.findall(text)
        if dtype in DTYPES
    ]


def _seen(module: Any, given: Sequence[TensorSpec]) -> list[TensorSpec]:
    runtime = module.runtime
    arguments, results = runtime.VmVariantList(len(given)), runtime.VmVariantList(1)
    try:
        for spec in given:
            shape = tuple(int(dim) for dim in spec.shape)
            zeros = np.zeros(shape, storage_dtype(spec.dtype))
            arguments.push_ref(module.buffer(zeros, spec=spec))
        module.context().invoke(module.function, arguments, results)
        views = [results.get_as_object(i, runtime.HalBufferView) for i in range(results.size)]
    except Exception as error:
        raise Unsupported(
            f"The module does not run on inputs of the given shapes: {cause(error)}",
            reason="input",
        ) from error
    map_type = runtime.array_interop.map_dtype_to_element_type
    known = {int(map_type(np.dtype(name))): name for name in DTYPES.values() if name != "bfloat16"}
    types = [int(view.element_type) for view in views]
    if strange := sorted(set(types) - set(known)):
        raise Unsupported(f"The module gives arrays of an element type {strange}.", reason="dtype")
    return [
        TensorSpec(f"output{i}", known[kind], tuple(view.shape))
        for i, (kind, view) in enumerate(zip(types, views, strict=True))
    ]
