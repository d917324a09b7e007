"""OpenVINO models quantised by NNCF. Reached for from ``openvino`` alone."""

from __future__ import annotations

import importlib
import os
from typing import Any

from ngraphbench.compilers.checks import cause
from ngraphbench.errors import CompileFailed, Unsupported
from ngraphbench.types import Json
from ngraphbench.workload import Workload

__all__ = ["count_products", "quantised_model"]

PRODUCTS = ("Convolution", "Deconvolution", "FullyConnected", "MatMul", "Gemm")
IN_INT8 = ("i8", "u8")


def quantised_model(model: Any, workload: Workload, *, transformer: bool) -> Any:
    """Return the model with fake-quantise nodes, set by the workload's calibration items.

    Raises Unsupported where there are none or NNCF is not installed, CompileFailed with
    NNCF's own words.
    """
    batches = list(workload.calibration_batches())
    # It would report to its makers.
    os.environ["NNCF_CI"] = "1"
    try:
        nncf: Any = importlib.import_module("nncf")
    except ImportError as error:
        raise Unsupported(
            f"OpenVINO quantises by NNCF, which cannot be imported: {cause(error)}.",
            reason="not-installed",
            hint="`pip install nncf` beside openvino, or use its own environment, which has it:"
            " --environments managed.",
        ) from error
    kind = {"model_type": nncf.ModelType.TRANSFORMER} if transformer else {}
    try:
        return nncf.quantize(model, nncf.Dataset(batches), subset_size=len(batches), **kind)
    except Exception as error:
        raise CompileFailed(f"nncf: {cause(error)}", reason="quantise") from error


def count_products(layers: list[tuple[str, str]]) -> Json:
    """Return how many products and convolutions run in int8, and how many do not.

    ``layers`` holds kind and executed precision of each layer of the runtime model.
    """
    products = [precision for kind, precision in layers if kind in PRODUCTS]
    int8 = sum(precision in IN_INT8 for precision in products)
    return {"int8": int8, "wider": len(products) - int8}
