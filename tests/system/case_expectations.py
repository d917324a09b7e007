"""What each case must come to on the command line: by case, batch size and candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

__all__ = [
    "BIG",
    "CHOSEN",
    "INDUCTOR",
    "MODULES",
    "NOT_HELD",
    "ONNX",
    "REFUSED",
    "Expected",
    "expected_of",
]


@dataclass(frozen=True)
class Expected:
    """A record's status and reason, words of its message, flags and evidence.

    ``statuses`` are alternatives to ``status``, for what a machine's rounding decides.
    ``shapes`` are those of the outputs. ``fp64``: the reference is in double precision.
    """

    status: str = "ok"
    reason: str = ""
    words: str = ""
    flags: tuple[str, ...] = ()
    no_flags: tuple[str, ...] = ()
    verdict: str = ""
    tolerance: float | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    fp64: bool = False
    statuses: tuple[str, ...] = ()


OK = Expected()
EXACT = Expected(fp64=True)


def unsupported(reason: str, words: str = "") -> Expected:
    return Expected("unsupported", reason, words)


FIXED = unsupported("batch-fixed")
RANDOM = Expected("unverifiable", "non-deterministic", verdict="unverifiable")
ENDLESS = Expected("timeout", "deadline", "8 s")

By = Mapping[object, Expected]
"""By batch size or by candidate, the latter first; None is for all others."""

ONNX: dict[str, By] = {
    # The batch axis
    "batch_hardcoded_reshape": {1: EXACT, 2: FIXED},
    "batch_folded_silently": {1: EXACT, 2: replace(FIXED, words="1x128x6 at batch 2")},
    "axis0_not_a_batch": {None: Expected(flags=("rows-depend-on-batch",), shapes=((2, 6),))},
    "batch_axis_one": {
        1: Expected(shapes=((5, 1, 4), (1, 1, 4))),
        2: Expected(
            shapes=((5, 2, 4), (1, 2, 4)), no_flags=("output-has-no-batch", "rows-depend-on-batch")
        ),
    },
    "shared_symbol_no_batch_out": {1: EXACT, 2: FIXED},
    "dynamic_quant_batch": {
        None: Expected(flags=("quantised", "rows-depend-on-batch"), tolerance=5e-2)
    },
    # Inputs
    "gather_bound": {None: EXACT},
    "bool_and_scalar_inputs": {None: OK},
    "bf16_io": {
        None: Expected(tolerance=3e-2),
        "onnxruntime": unsupported("operator"),
        "onnxruntime:level=none": unsupported("operator"),
    },
    "fp16_io": {None: Expected(tolerance=1e-2, fp64=True)},
    "string_input": {None: unsupported("dtype", "strings")},
    "string_identity": {None: unsupported("dtype", "strings")},
    "sequence_output": {None: unsupported("output-type", "sequence")},
    "odd_dims": {None: Expected(shapes=((2, 3),), fp64=True)},
    "input_without_shape": {None: unsupported("input-shape", "no declared shape")},
    "zero_batch_matmul_i64": {None: Expected(shapes=((2, 4, 4),))},
    "int64_big_constant": {
        None: OK,
        "openvino": Expected("wrong", "values", "int64 values differ"),
    },
    "size_multiple": {None: EXACT},
    "min_length": {None: EXACT},
    "weights_as_inputs": {None: EXACT},
    "no_inputs": {1: OK, 2: FIXED},
    # Outputs and their comparison
    "passthrough_output": {1: EXACT, 2: FIXED},
    "nan_from_random": {None: Expected(flags=("not-finite",))},
    "random_op": {None: RANDOM},
    "dropout_training": {None: RANDOM, "openvino": unsupported("operator")},
    "tiny_outputs": {None: Expected(fp64=True, tolerance=1e-4)},
    "cancellation": {
        None: Expected(flags=("ill-conditioned",), fp64=True, statuses=("ok", "unverifiable"))
    },
    "constant_output": {
        None: Expected(flags=("constant", "output-has-no-batch"), verdict="constant")
    },
    # Files and names
    "ir_too_new": {None: unsupported("model-format", "IR version 99")},
    "opset_too_new": {None: unsupported("model-format", "opset 999")},
    "custom_op": {None: unsupported("operator", "com.example")},
    "duplicate_node_names": {
        None: OK,
        "onnxruntime": Expected("failed", "load-model", "same node name"),
        "onnxruntime:level=none": Expected("failed", "load-model", "same node name"),
    },
    "unsorted_nodes": {None: Expected(flags=("invalid-onnx",))},
    "hostile_names": {None: OK},
    "external_ok": {None: EXACT},
    "external_odd_dir": {None: EXACT},
    # Cost
    "endless_loop": {None: ENDLESS},
    "memory_per_row": {1: EXACT, 64: Expected("oom", "memory", "2048 MiB")},
    "denormal_weights": {None: Expected(flags=("denormals",))},
    "denormal_control": {None: Expected(no_flags=("denormals",))},
    "trivially_fast": {None: OK},
}

REFUSED: dict[str, tuple[str, ...]] = {
    "corrupt_truncated": ("truncated",),
    "corrupt_empty": ("empty file",),
    "corrupt_text": ("cannot be read as ONNX",),
    "corrupt_no_graph": ("no ONNX graph",),
    "lfs_pointer": ("git lfs pull",),
    "external_traversal": ("../secret_outside.bin", "outside the model's folder"),
    "external_absolute": ("secret_outside.bin", "outside the model's folder"),
    "external_missing": ("nowhere.bin",),
}
"""Cases that cannot be planned, and what the message must say."""

BIG = "external_over_2gb"
"""Has a test of its own: its data takes 2.4 GB, most of them holes."""

NO_EXPORT = unsupported("form", "Export to ONNX failed")

MODULES: dict[str, By] = {
    "functional_dropout": {None: RANDOM},
    "left_in_train_mode": {None: EXACT},
    "in_place_input": {None: EXACT},
    "dict_out": {None: Expected(shapes=((2, 8),) * 3, fp64=True)},
    "data_dependent": {None: EXACT, "onnxruntime": NO_EXPORT},
    "hard_batch": {None: Expected(flags=("output-has-no-batch",), shapes=((1, 8),))},
    "batch_in_python": {None: Expected(flags=("rows-depend-on-batch",), shapes=((2, 8),))},
    "alias_out": {None: Expected(shapes=((2, 8), (2, 2), (8, 2)))},
    "prints_a_lot": {None: OK, "eager": Expected(flags=("output-flood",))},
    "changes_threads": {None: OK},
}

INDUCTOR = ("in_place_input", "data_dependent")
"""Modules that Inductor is tried on through the command line; it is on all others in one process.

The command line starts a process for each, which takes minutes for all of them.
"""

CHOSEN = {
    "sequence_output": "element by element, or unsupported: it is unsupported",
    "int64_big_constant": "exact compare for integers: OpenVINO 2026.4.1 is called wrong. Its CPU"
    " device computes this graph in int32 and answers 2147483647 for 1099511627777, also with"
    " EXECUTION_MODE_HINT=ACCURACY",
    "duplicate_node_names": "rename in a copy, or report it per backend: ONNX Runtime's refusal is"
    " reported, for renaming measures another file than the user's. No name of a node is a key",
    "hard_batch": "warn: the flag output-has-no-batch. It is measured all the same",
}
"""What holds of expectations that leave a choice, or that say what a compiler does wrong."""

NOT_HELD = {
    "string_input": "held: one clear record, no crash. Not held: that --inputs would help: it takes"
    " numbers alone. Fed with strings, this would run nowhere here: ONNX Runtime 1.32 needs the"
    " locale en_US.UTF-8 for it, and OpenVINO 2026.4.1 has no StringNormalizer",
    "string_identity": "held: one clear record. Not held: that it is measured. ONNX Runtime 1.32"
    " runs it; OpenVINO 2026.4.1 answers once, and its process then dies (free(): invalid pointer)",
}
"""What is held, what is not, and why, where the right behaviour is not had as a whole."""


def expected_of(by: By, *, label: str, batch: int) -> Expected:
    """Return what a cell must come to."""
    return by.get(label) or by.get(batch) or by[None]
