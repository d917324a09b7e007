"""ONNX files quantised by ONNX Runtime's tool: Q/DQ nodes around what is to run in int8.

Also where int8 really ran. Reached for from ``onnxruntime`` alone.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ngraphbench.compilers.checks import cause
from ngraphbench.errors import CompileFailed, Unsupported
from ngraphbench.models.onnxdata import load_whole
from ngraphbench.types import Arrays, Json
from ngraphbench.workload import Workload

__all__ = ["count_products", "quantised_file"]

IN_INT8 = (
    *("QLinearConv", "QLinearMatMul", "QGemm", "QAttention"),
    *("ConvInteger", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"),
)
WIDER = (
    *("Conv", "ConvTranspose", "FusedConv", "NhwcFusedConv", "Attention"),
    *("MatMul", "FusedMatMul", "Gemm", "FusedGemm"),
)


def quantised_file(workload: Workload, *, per_channel: bool) -> bytes:
    """Return the workload's ONNX file quantised by its calibration items.

    Raises Unsupported where there are none, or where the tool lacks its packages, and
    CompileFailed with the tool's own words.
    """
    batches = workload.calibration_batches()
    try:
        tool: Any = importlib.import_module("onnxruntime.quantization")
        shapes: Any = importlib.import_module("onnxruntime.quantization.shape_inference")
    except ImportError as error:
        raise Unsupported(
            f"onnxruntime's quantisation cannot be imported: {cause(error)}.",
            reason="not-installed",
            hint="pip install onnx, beside onnxruntime.",
        ) from error
    with tempfile.TemporaryDirectory(prefix="qdq-") as folder:
        prepared, target = Path(folder) / "prepared.onnx", Path(folder) / "quantised.onnx"
        try:
            # It folds batch norms, as the tool's own documentation asks for.
            shapes.quant_pre_process(
                load_whole(workload.onnx_path), str(prepared), skip_symbolic_shape=True
            )
            reader = _reader(tool.CalibrationDataReader, batches)
            tool.quantize_static(str(prepared), str(target), reader, per_channel=per_channel)
            return target.read_bytes()
        except Unsupported:
            raise
        except Exception as error:
            raise CompileFailed(f"onnxruntime: {cause(error)}", reason="quantise") from error


def _reader(base: type[Any], batches: Iterator[Arrays]) -> Any:
    class Reader(base):
        """The items, batch by batch, then None."""

        def get_next(self) -> Arrays | None:
            return next(batches, None)

    return Reader()


def count_products(build: Callable[[Path], None], read: Callable[[Path], Any]) -> Json:
    """Return how many products and convolutions of a graph run in int8, and how many do not.

    ``build`` writes the optimised graph to a file; ``read`` gives a session that runs it
    as it is written. Sessions of a file in ORT's own format do not tell their nodes.
    """
    with tempfile.TemporaryDirectory(prefix="qdq-") as folder:
        path = Path(folder) / "optimised.onnx"
        build(path)
        parts = read(path).get_provider_graph_assignment_info()
        kinds = [node.op_type for part in parts for node in part.get_nodes()]
    return {
        "int8": sum(kind in IN_INT8 for kind in kinds),
        "wider": sum(kind in WIDER for kind in kinds),
    }
