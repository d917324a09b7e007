"""From an ONNX file to a StableHLO module that jaxlib takes: torch-mlir imports and lowers it."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from typing import Any

import numpy as np

from ngraphbench.compilers.checks import cause
from ngraphbench.errors import CompileFailed, NGraphBenchError, Unsupported
from ngraphbench.models.onnxdata import load_whole
from ngraphbench.types import BFLOAT16, Array, Arrays, TensorSpec
from ngraphbench.workload import Workload

__all__ = ["jaxlib_module", "read_model", "stablehlo_text"]

# Smaller ones, such as the scales of a Resize, may have to be known when ops are converted.
WEIGHT_ELEMENTS = 17
# Ops of older sets have no lowering.
OPSET = 17
# An executable is a protocol buffer, and those end at 2 GiB.
CONSTANTS_MAX_BYTES = 2**31 - 2**24

PIPELINE = (
    "builtin.module(torch-onnx-to-torch-backend-pipeline,"
    "torch-backend-to-stablehlo-backend-pipeline,canonicalize,cse)"
)
DIALECTS = ("builtin", "func", "stablehlo", "chlo")

# What MLIR calls the types of StableHLO.
ELEMENTS = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    BFLOAT16: "bf16",
    "bool": "i1",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"ui{bits}" for bits in (8, 16, 32, 64)},
}


def read_model(workload: Workload) -> tuple[Any, Arrays]:
    """Return the ONNX model with its weights made inputs, and the weights by name."""
    onnx = importlib.import_module("onnx")
    try:
        model = load_whole(workload.onnx_path)
        graph = model.graph
        types = onnx.TensorProto
        floats = (types.FLOAT, types.DOUBLE, types.FLOAT16, types.BFLOAT16)
        weights: Arrays = {}
        kept = []
        for tensor in graph.initializer:
            if tensor.data_type not in floats or np.prod(tensor.dims) < WEIGHT_ELEMENTS:
                kept.append(tensor)
                continue
            weights[tensor.name] = onnx.numpy_helper.to_array(tensor)
            make = onnx.helper.make_tensor_value_info
            graph.input.append(make(tensor.name, tensor.data_type, list(tensor.dims)))
        del graph.initializer[:]
        graph.initializer.extend(kept)
        graph.name = "main"
        _check_names(graph, weights, workload)
        _check_pools(graph)
        if any(s.domain in ("", "ai.onnx") and s.version < OPSET for s in model.opset_import):
            model = importlib.import_module("onnx.version_converter").convert_version(model, OPSET)
        # The importer asks for the type of every value.
        return onnx.shape_inference.infer_shapes(model, data_prop=True), weights
    except NGraphBenchError:
        raise
    except Exception as error:
        raise CompileFailed(
            f"The ONNX file was not read: {cause(error)}", reason="load-model"
        ) from error


def _check_names(graph: Any, weights: Arrays, workload: Workload) -> None:
    inputs = [value.name for value in graph.input if value.name not in weights]
    for found, specs in (
        (inputs, workload.inputs),
        ([o.name for o in graph.output], workload.outputs),
    ):
        wanted = [spec.name for spec in specs]
        if found != wanted:
            raise CompileFailed(
                f"The file has {found} where the workload has {wanted}.", reason="interface"
            )


def _check_pools(graph: Any) -> None:
    for node in graph.node:
        rounded_up = any(a.name == "ceil_mode" and a.i for a in node.attribute)
        if rounded_up and node.op_type in ("MaxPool", "AveragePool"):
            # Seen on ONNX's own cases of MaxPool: windows beyond the edge come out wrong.
            raise Unsupported(
                f"torch-mlir makes wrong StableHLO of {node.op_type} with ceil_mode.",
                reason="operator",
            )


def stablehlo_text(model: Any) -> str:
    """Return the model as StableHLO text. Raises Unsupported with the op that has no lowering."""
    ir = importlib.import_module("torch_mlir.ir")
    importer = importlib.import_module("torch_mlir.extras.onnx_importer")
    passes = importlib.import_module("torch_mlir.passmanager")
    with ir.Context() as context, ir.Location.unknown():
        importlib.import_module("torch_mlir.dialects.torch").register_dialect(context)
        try:
            information = importer.ModelInfo(model)
            module = information.create_module(context=context).operation
            importer.NodeImporter.define_function(
                information.main_graph, module, _constants(importer, ir)(context)
            ).import_all()
            module.verify()
        except Exception as error:
            raise Unsupported(
                f"torch-mlir does not take this file: {cause(error)}", reason="operator"
            ) from error
        try:
            passes.PassManager.parse(PIPELINE).run(module)
        except Exception as error:
            raise _not_lowered(error, module, ir) from error
        _check_dialects(module, ir)
        text = str(module.get_asm())
    if "!quant." in text:
        raise Unsupported("XLA takes no StableHLO with quantised types.", reason="operator")
    return text


def _constants(importer: Any, ir: Any) -> Any:
    """Return the importer's cache of types, but with constants XLA can read."""

    class Constants(importer.ContextCache):
        def tensor_proto_to_attr(self, tensor: Any) -> Any:
            # As resources, the importer's way, their values would be left out of the text.
            array = importlib.import_module("onnx.numpy_helper").to_array(tensor)
            return _dense(ir, array, self.tensor_proto_to_builtin_type(tensor).element_type)

    return Constants


def _dense(ir: Any, array: Array, element: Any) -> Any:
    """Return an array as an attribute of MLIR, whose bools are bits."""
    shape = list(array.shape)
    packed = np.ascontiguousarray(array)
    if array.dtype == np.bool_:
        packed = np.packbits(packed, axis=None, bitorder="little")
    elif array.dtype.kind not in "fiu":
        packed = packed.view(np.uint16)
    return ir.DenseElementsAttr.get(packed, type=element, shape=shape)


def _not_lowered(error: Exception, module: Any, ir: Any) -> Unsupported | CompileFailed:
    """Return the error for passes that failed, with the ops they left in the module."""
    left: Counter[str] = Counter()

    def note(operation: Any) -> Any:
        name = operation.name
        if name == "torch.operator":
            left[ir.StringAttr(operation.attributes["name"]).value] += 1
        elif name.startswith(("torch.aten.", "torch.prim.If", "torch.prim.Loop")):
            left[name.removeprefix("torch.")] += 1
        return ir.WalkResult.ADVANCE

    module.walk(note)
    first = re.search(r"failed to legalize operation 'torch\.((?:aten|prim)\.[\w.]+)'", str(error))
    if left and "failed to legalize" in str(error):
        named = first[1] if first else ", ".join(sorted(left))
        return Unsupported(
            f"torch-mlir does not lower {named} to StableHLO.",
            reason="operator",
            hint=cause(error),
        )
    return CompileFailed(f"torch-mlir: {cause(error)}", reason="lower")


def _check_dialects(module: Any, ir: Any) -> None:
    left: Counter[str] = Counter()

    def note(operation: Any) -> Any:
        name = operation.name
        if name.partition(".")[0] not in DIALECTS and name != "arith.constant":
            left[name] += 1
        return ir.WalkResult.ADVANCE

    module.walk(note)
    if left:
        raise Unsupported(
            f"torch-mlir leaves {', '.join(sorted(left))}, which XLA does not take.",
            reason="operator",
        )


def jaxlib_module(text: str, constants: Arrays, *, workload: Workload) -> Any:
    """Return the program as jaxlib's MLIR, its last arguments replaced by ``constants``."""
    ir = importlib.import_module("jaxlib.mlir.ir")
    constant = importlib.import_module("jaxlib.mlir.dialects.stablehlo").constant
    size = sum(array.nbytes for array in constants.values())
    if size > CONSTANTS_MAX_BYTES:
        raise Unsupported(
            f"Weights of {size / 2**30:.1f} GiB do not fit into an executable.",
            reason="size",
            hint="Set weights=arguments.",
        )
    context = importlib.import_module("jax.interpreters.mlir").make_ir_context()
    with context, ir.Location.unknown(context):
        module = ir.Module.parse(text)
        function = next(iter(module.body.operations))
        block = function.regions[0].blocks[0]
        _check_types(function.attributes["function_type"].value, workload)
        count = len(block.arguments) - len(constants)
        with ir.InsertionPoint.at_block_begin(block):
            arguments = list(block.arguments)[count:]
            for argument, array in zip(arguments, constants.values(), strict=True):
                value = _dense(ir, array, argument.type.element_type)
                argument.replace_all_uses_with(constant(value))
        for place in reversed(range(count, count + len(constants))):
            block.erase_argument(place)
        types = function.attributes["function_type"].value
        kept = ir.FunctionType.get(types.inputs[:count], types.results)
        function.attributes["function_type"] = ir.TypeAttr.get(kept)
        _ask_for_float32(module.operation, ir)
        module.operation.verify()
    return module


def _ask_for_float32(module: Any, ir: Any) -> None:
    """Set the precision of every product to what is asked for, which on a GPU could be TF32."""
    highest = ir.Attribute.parse("#stablehlo<precision HIGHEST>")

    def ask(operation: Any) -> Any:
        if operation.name in ("stablehlo.dot_general", "stablehlo.convolution"):
            operation.attributes["precision_config"] = ir.ArrayAttr.get([highest, highest])
        return ir.WalkResult.ADVANCE

    module.walk(ask)


def _check_types(found: Any, workload: Workload) -> None:
    """Raise Unsupported where the program's types are not the workload's, as for dynamic dims."""
    inputs = list(found.inputs)[: len(workload.inputs)]
    for specs, types in ((workload.inputs, inputs), (workload.outputs, list(found.results))):
        wanted = [_tensor_type(spec) for spec in specs]
        given = [str(kind) for kind in types]
        if wanted != given:
            raise Unsupported(
                f"torch-mlir makes {', '.join(given)} of {', '.join(wanted)}.", reason="dtype"
            )


def _tensor_type(spec: TensorSpec) -> str:
    dims = (str(dim) if isinstance(dim, int) else "?" for dim in spec.shape)
    return f"tensor<{'x'.join((*dims, ELEMENTS[spec.dtype]))}>"
